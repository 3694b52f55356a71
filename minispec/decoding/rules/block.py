"""Block verification: judge a chain as a whole, and keep the longest prefix that passes (Sun et al. 2403.10444).

Token by token, x_1 with p/q = 1/2 is rejected half of the time, even if x_2 with p/q = 2 makes the pair exactly as
likely under p as under q. Here such a pair is always kept. The first i tokens may be kept with probability

    P_0 = 1,   P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)),

and a prefix that failed may be rescued by a longer one that passes. So all coins are thrown and the *largest* i that
passes counts. Stopping at the first failure looks like a clean-up and is not exact.

Never keeps fewer tokens than rules.Token on average; with one proposed token the two are the same rule.
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ROOT, SAMPLED, TokenTree
from .base import Rule, ratio, residual


class Block(Rule):
    """Keep the longest prefix whose coin falls right; then draw from what p has left there."""

    exact = True
    origins = (SAMPLED,)
    chains_only = True

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)
        p, q = target_probs, [tree.draft_probs[node] for node in range(ROOT, len(tree) - 1)]
        P = [1.0]                                                          # the laws after i tokens are p[i] and q[i]
        for i, x in enumerate(tree.tokens):
            P.append(min(1.0, P[i] * ratio(p[i], q[i], x)))
        h = [kept_there(P[i], p[i], q[i]) for i in range(len(tree))] + [P[-1]]
        longest = max([0] + [i for i in range(1, len(tree) + 1) if dice.accept(h[i])])        # every coin is thrown
        path = list(range(longest))
        if longest == len(tree):
            return Verdict(path, dice.draw(p[longest]), bonus=True)
        return Verdict(path, dice.draw(residual(P[longest] * p[longest], q[longest])), bonus=False)


def kept_there(mass: float, p: Tensor, q: Tensor) -> float:
    """P(a prefix is kept | nothing longer is), if it may be kept with probability `mass`. p, q (V,): the laws after it.

    Z = sum max(mass p - q, 0) is what its continuations leave over, 1 - mass what it lacks itself: Z / (Z + 1 - mass).
    """
    left = float((mass * p - q).clamp_min(0).sum())
    lacking = 1 - mass
    return left / (left + lacking) if left + lacking > 0 else 1.0          # 0 / 0: its continuation never fails
