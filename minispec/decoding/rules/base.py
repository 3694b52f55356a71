"""What every acceptance rule has in common: what it claims, which trees it can judge, what is left of p and of q."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import CHOSEN, SAMPLED, WITHOUT_REPLACEMENT, TokenTree


class Rule:
    """Call with (tree, target_probs (1 + N, V), dice) -> Verdict. Row 0 of target_probs is p after the committed
    tokens, row i + 1 is p after node i.

    exact:       the emitted tokens have the target's law, whatever the draft.
    origins:     how a tree's children may have been chosen for the rule to be exact.
    chains_only: trees with branches are refused.
    """

    exact: ClassVar[bool]
    origins: ClassVar[tuple[str, ...]]
    chains_only: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        raise NotImplementedError

    def check(self, tree: TokenTree) -> None:
        """Raise ValueError, naming the rule to use instead, if this rule can't judge the tree exactly."""
        if tree.origin not in self.origins:
            raise ValueError(f"rules.{type(self).__name__} cannot judge a tree whose children were {tree.origin}: "
                             f"use rules.{_rule_for(tree)}")
        if self.chains_only and not tree.is_chain:
            raise ValueError(f"rules.{type(self).__name__} judges chains, this tree has branches: "
                             f"use rules.{_rule_for(tree)}")
        if CHOSEN not in self.origins and not tree.draft_probs.keys() >= set(tree.parents):
            raise ValueError(f"rules.{type(self).__name__} needs draft_probs at every node that has children: "
                             f"without them give the tree the origin {CHOSEN!r} and use rules.Match")


def _rule_for(tree: TokenTree) -> str:
    if tree.origin == CHOSEN:
        return "Match"
    return "Token" if tree.is_chain and tree.origin == SAMPLED else "Recursive or rules.Traversal"


def ratio(p: Tensor, q: Tensor, x: int) -> float:
    """p(x) / q(x), for a token x that was drawn from q. (V,), (V,).

    Raises ValueError if q cannot have drawn x: 0 in the denominator would accept it, whatever p says.
    """
    if not q[x] > 0:                                                       # NaN is no probability either
        raise ValueError(f"token {x} was proposed, but its draft_probs give it the probability {float(q[x])}: "
                         f"they must be what the dice drew from; for any other choice use rules.Match")
    return float(p[x]) / float(q[x])


def residual(p: Tensor, q: Tensor) -> Tensor:
    """The law of the correction after q's token was rejected: max(p - q, 0), normalised. (V,), (V,) -> (V,).

    Where p <= q everywhere (up to rounding) a rejection has probability 0; p itself is returned, never 0 / 0.
    Example: residual([.5, .3, .2], [.2, .5, .3]) == [1, 0, 0].
    """
    excess = (p - q).clamp_min(0)
    mass = float(excess.sum())
    return excess / mass if mass > 1e-14 else p


def left_over(q: Tensor, taken: Sequence[int]) -> Tensor:
    """What q (V,) has left once the tokens `taken` are gone, normalised: the law of a draw without replacement.

    Once q is exhausted, all tokens that were not tried yet are equally likely (Sequoia, 2402.12374).
    Examples: left_over([.5, .3, .2], [0]) == [0, .6, .4];  left_over([1, 0, 0], [0]) == [0, .5, .5].
    """
    left = q.clone()
    left[list(taken)] = 0
    if not bool(left.any()):
        left = torch.ones_like(q)
        left[list(taken)] = 0
    return left / left.sum()


def siblings(tree: TokenTree, node: int) -> Iterator[tuple[int, int, Tensor]]:
    """The children of a node in the order they were drawn, as (child, its token, the law it was drawn from (V,)).

    With replacement that law is q every time: two siblings may hold one token, and each is judged for itself.
    """
    taken: list[int] = []
    for child in tree.children(node):
        x, q = tree.tokens[child], tree.draft_probs[node]
        yield child, x, left_over(q, taken) if tree.origin == WITHOUT_REPLACEMENT else q
        taken.append(x)
