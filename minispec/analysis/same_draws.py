"""Two rules on the very same drafts: which one keeps more, with most of the luck taken out.

In real rounds a rule judges a tree that was drawn by chance, with coins thrown by chance. Here every rule judges each
tree of a run, and its coins are enumerated, so that what is compared is E[accepted | tree], to the last digit. With few
enough tokens to draw from, the drafts are enumerated too, and no luck is left at all.

What theory promises (Sun et al. 2403.10444), with P_0 = 1 and P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)) on a chain x:

    Token   E[accepted | x]  =  sum_i prod_{j<=i} min(1, p_j(x_j) / q_j(x_j))  <=  sum_i P_i     for every single chain
    Block   P(first i kept | x_1 .. x_i)  =  P_i     averaged over how the draft goes on after x_i

So Block keeps at least as many as Token averaged over drafts. On one chain it may keep fewer: it gives up a first token
that a luckier second one would have paid for. For trees no such theorem is known (Weng et al. 2505.12398 measure it):
that Traversal keeps more than Recursive on average is an observation about models.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from torch import Tensor

from ..decoding import Drafter, SeededDice, Speculation, Verdict, speculate
from ..decoding.dice import Dice, EnumeratingDice
from ..decoding.loop import verify
from ..decoding.rules import Match, Rule, ratio
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree
from ..model.gpt import GPT
from .exact import snapshot
from .prove import AnyRule

Draft = tuple[TokenTree, Tensor]                 # with target_probs (1 + N, V)


class Gain(NamedTuple):
    """Mean E[accepted | tree] of two rules over the same trees; gain: other - rule, with its standard error."""
    rounds: int
    rule: float
    other: float
    gain: float
    error: float


class Coins(EnumeratingDice):
    """Every way the coins can fall. The closing draw is left out: whatever it is, as many tokens were accepted."""

    def draw(self, probs: Tensor) -> int:
        return 0


def accepted_given(rule: AnyRule, tree: TokenTree, target_probs: Tensor) -> float:
    """E[accepted | tree], for a rule that decides by coins. target_probs: (1 + N, V).

    Raises ValueError for rules.Match, which decides by what it draws.
    """
    if isinstance(rule, Match):
        raise ValueError("rules.Match decides by draws, not by coins: its E[accepted | tree] is a sum of p(path)")
    return sum(chance * len(verdict.path)
               for chance, verdict in Coins().branches(lambda dice: rule(tree, target_probs, dice)))


def prefix_mass(tree: TokenTree, target_probs: Tensor) -> float:
    """sum_i P_i of a chain: over many drafts it has the mean of Block's E[accepted | x]."""
    mass, total = 1.0, 0.0
    for node, x in enumerate(tree.tokens):
        mass = min(1.0, mass * ratio(target_probs[node], tree.draft_probs[node - 1], x))
        total += mass
    return total


@torch.inference_mode()
def over_all_drafts(target: GPT, drafter: Drafter, context: Sequence[int], depth: int, *rules: AnyRule,
                    sampling: Sampling) -> list[float]:
    """E[accepted] of each rule in one round after `context`, over every way the draft *and* the coins can fall.

    No luck is left. A draft of n nodes has top_k^n ways, so ask for a `sampling` of two or three tokens.
    """
    before = Speculation(target, drafter, context, max_new_tokens=depth + 1, sampling=sampling)
    means = [0.0] * len(rules)

    def draft(dice: Dice) -> Draft:
        state = snapshot(before)
        tree = state.drafter.propose(dice, depth)
        return tree, verify(target, state.cache, context[-1], tree, sampling)

    for chance, drafted in EnumeratingDice().branches(draft):
        means = [mean + chance * accepted_given(rule, *drafted) for mean, rule in zip(means, rules)]
    return means


def real_drafts(target: GPT, drafter: Drafter, prompts: Sequence[Sequence[int]], rule: Rule, *,
                sampling: Sampling = Sampling(), max_new_tokens: int = 64, seed: int = 0) -> list[Draft]:
    """The (tree, target_probs) of every round of real generations under `rule`, rounds without a proposal left out.

    Prompt number i has the seed `seed` + i.
    """
    found: list[Draft] = []

    def judge(tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        if tree:
            found.append((tree, target_probs))
        return rule(tree, target_probs, dice)

    for i, prompt in enumerate(prompts):
        speculate(target, drafter, prompt, rule=judge, sampling=sampling, max_new_tokens=max_new_tokens,
                  dice=SeededDice(seed + i))
    return found


def gain(rule: AnyRule, other: AnyRule, drafts: Sequence[Draft]) -> Gain:
    """How many more tokens `other` keeps than `rule`, both judging each of the drafts."""
    kept = [[accepted_given(r, *draft) for draft in drafts] for r in (rule, other)]
    differences = [b - a for a, b in zip(*kept)]
    error = stdev(differences) / len(drafts) ** 0.5
    return Gain(len(drafts), fmean(kept[0]), fmean(kept[1]), fmean(differences), error)
