"""Adaptive draft length: go on drafting while it is likely to pay.

A fixed length is too long where the text is hard and too short where it is easy. After every drafted token a *stopping
rule* says whether another one is wanted. It puts together two things: an estimate of the chance that one drafted token
is accepted (estimates: `confidence`, `entropy_bound`, acceptance_head.AcceptanceHead), and what to make of it:

    Threshold   the last token's chance is high enough                 (Kangaroo 2404.18911, SVIP 2411.18462)
    Steered     the same, with a threshold that follows the acceptance (AdaEDL 2410.18351)
    Survival    the chance that all of them are accepted is            (SpecDec++ 2405.19715)
    Payoff      the gain of further tokens is worth their cost at the measured c and v(k)
    All         all of several rules agree

Why this is exact: a rule sees the tokens already proposed, all of which *stay* proposed, and can say no more than "no
more". So whether a token is proposed depends on the tokens before it, never on its own value. LookAheadDrafter does it
the other way round, and is biased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree
from ..model.gpt import GPT
from .lm import LMDrafter

Estimate = Callable[[int, Tensor], float]                # (drafted token, belief (V,)) -> chance that it is accepted


def confidence(token: int, belief: Tensor) -> float:
    """The draft's own probability of its token: a fair chance at temperature 0.

    Where tokens are drawn it is too low: a token that q finds unlikely is mostly unlikely under p as well, and kept.
    """
    return float(belief[token])


def entropy_bound(token: int, belief: Tensor, scale: float = 0.2) -> float:
    """1 - sqrt(scale * entropy in nats), at least 0 (AdaEDL). No true bound: the draft may be sure and wrong."""
    return max(0.0, 1 - math.sqrt(scale * float(torch.special.entr(belief).sum())))


class Stopping:
    """A stopping rule. It may remember what became of earlier rounds of the same generation."""

    def start(self) -> None:
        """A new generation: forget everything."""

    def goes_on(self, tokens: Sequence[int], beliefs: Sequence[Tensor]) -> bool:
        """Is another token wanted after these (at first there are none)? beliefs[k] (V,): the law of tokens[k] as the
        draft sees it, q itself; at temperature 0, where q is one-hot and knows no doubt, q at temperature 1."""
        raise NotImplementedError

    def learn(self, proposed: int, accepted: int) -> None:
        """A round was judged."""


class Threshold(Stopping):
    """On while the last token's estimate is at least `least`. Raises ValueError unless 0 <= least <= 1."""

    def __init__(self, estimate: Estimate = confidence, least: float = 0.4):
        if not 0 <= least <= 1:
            raise ValueError(f"least must be a probability in [0, 1], got {least!r}")
        self.estimate, self.least = estimate, least

    def goes_on(self, tokens: Sequence[int], beliefs: Sequence[Tensor]) -> bool:
        return not tokens or self.estimate(tokens[-1], beliefs[-1]) >= self.least


class Steered(Threshold):
    """Raises its threshold by `step` where the mean acceptance of late is below `goal`, lowers it where it is above.

    `least` is where it starts in each generation. The mean forgets: a round counts 1 - memory.
    """

    def __init__(self, estimate: Estimate = entropy_bound, least: float = 0.4, goal: float = 0.9, step: float = 0.01,
                 memory: float = 0.5):
        super().__init__(estimate, least)
        self.first, self.goal, self.step, self.memory = least, goal, step, memory

    def start(self) -> None:
        self.least, self.rate = self.first, self.goal

    def learn(self, proposed: int, accepted: int) -> None:
        if proposed:
            self.rate = self.memory * self.rate + (1 - self.memory) * accepted / proposed
            self.least = min(1.0, max(0.0, self.least + (self.step if self.rate < self.goal else -self.step)))


class Survival(Threshold):
    """On while the product of all estimates, the chance that everything so far is accepted, is at least `least`."""

    def goes_on(self, tokens: Sequence[int], beliefs: Sequence[Tensor]) -> bool:
        return math.prod(map(self.estimate, tokens, beliefs)) >= self.least


class Payoff(Stopping):
    """On while some number of further tokens is expected to be worth its cost.

    With k tokens proposed, m more cost m c + v(k + m + 1) - v(k + 1). Nobody has seen them yet: the first is kept with
    the chance that all k survive times the mean acceptance so far, the next with that times the mean again. Time is
    worth the tokens per cost that this generation has achieved: spent where it brings less, it lowers the average.
    Looking only one token ahead would stop at every step of v. Where nothing pays, nothing is drafted.

    cost, verify: c and v(k), as bench.timing measures them. Raises ValueError unless cost >= 0.
    """

    def __init__(self, cost: float, verify: Callable[[int], float], estimate: Estimate = confidence, ahead: int = 8):
        if not cost >= 0:
            raise ValueError(f"cost must be a number >= 0 (a draft pass in units of a target pass), got {cost!r}")
        self.cost, self.verify, self.estimate, self.ahead = cost, verify, estimate, ahead

    def start(self) -> None:
        self.tokens, self.spent = 1.0, self.verify(1)            # as if one token had been decoded plainly,
        self.reached, self.accepted = 2.0, 1.5                   # and 1.5 of 2 drafted tokens accepted: soon forgotten

    def goes_on(self, tokens: Sequence[int], beliefs: Sequence[Tensor]) -> bool:
        k, kept, gain = len(tokens), math.prod(map(self.estimate, tokens, beliefs)), 0.0
        for more in range(1, self.ahead + 1):
            kept *= self.accepted / self.reached
            gain += kept
            cost = more * self.cost + self.verify(k + more + 1) - self.verify(k + 1)
            if gain * self.spent >= cost * self.tokens:
                return True
        return False

    def learn(self, proposed: int, accepted: int) -> None:
        self.tokens += accepted + 1
        self.spent += proposed * self.cost + self.verify(proposed + 1)
        self.reached += min(proposed, accepted + 1)
        self.accepted += accepted


class All(Stopping):
    """On while all of `rules` want it."""

    def __init__(self, *rules: Stopping):
        self.rules = rules

    def start(self) -> None:
        for rule in self.rules:
            rule.start()

    def goes_on(self, tokens: Sequence[int], beliefs: Sequence[Tensor]) -> bool:
        return all(rule.goes_on(tokens, beliefs) for rule in self.rules)

    def learn(self, proposed: int, accepted: int) -> None:
        for rule in self.rules:
            rule.learn(proposed, accepted)


class AdaptiveDrafter(LMDrafter):
    """A chain of at most `length` tokens that ends where `stopping` says so."""

    def __init__(self, draft: GPT, stopping: Stopping, length: int = 16, sampling: Sampling | None = None):
        super().__init__(draft, length, sampling)
        self.stopping = stopping

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        super().start(prompt, sampling)
        self.stopping.start()

    def propose(self, dice: Dice, room: int) -> TokenTree:
        self.drawn, self.beliefs = [], []
        return super().propose(dice, room if self.stopping.goes_on([], []) else 0)

    def wants_more(self, token: int, q: Tensor, logits: Tensor) -> bool:
        self.drawn.append(token)
        self.beliefs.append(q if self.sampling.temperature > 0 else Sampling().probs(logits).cpu())          # (V,)
        return self.stopping.goes_on(self.drawn, self.beliefs)

    def commit(self, verdict: Verdict) -> None:
        self.stopping.learn(len(self.proposed), len(verdict.path))
        self.drawn, self.beliefs = [], []
        super().commit(verdict)


class LookAheadDrafter(LMDrafter):
    """BIASED, to show how: it draws a token, finds it unlikely, and takes it back, so that the target draws there.

    The tokens that remain no longer have the law q that the rule is told. (rules.Match asks for none, and is exact.)
    """

    def __init__(self, draft: GPT, least: float = 0.3, length: int = 5, sampling: Sampling | None = None):
        super().__init__(draft, length, sampling)
        self.least = least

    def propose(self, dice: Dice, room: int) -> TokenTree:
        chain = super().propose(dice, room)
        q = [chain.draft_probs[k - 1] for k in range(len(chain))]
        kept = next((k for k, token in enumerate(chain.tokens) if confidence(token, q[k]) < self.least), len(chain))
        self.proposed = chain.tokens[:kept]
        return TokenTree.chain(self.proposed, q[:kept])
