"""K-sequence selection (SpecTr: Sun et al. 2310.15141): k children drawn from q, one price for all of them.

rules.Recursive sells the first child dear and the others cheap. Here all k are accepted with min(1, p(x) / (rho q(x))):
each alone is accepted less often, and what is left over after k rejections is a simple residual, max(p - rho q, 0).
It has the right size for one rho in [1, k] only. With b = sum min(q, p / rho), the chance that one child is accepted,

    1 - (1 - b)^k   (one of k is accepted)   =   rho b   (the part of p that is not left over).
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..dice import Dice
from ..tree import SAMPLED, TokenTree
from .base import ratio, residual, siblings
from .recursive import Recursive


class KSeq(Recursive):
    """Recursive's walk with SpecTr's step. Children drawn with replacement only."""

    origins = (SAMPLED,)

    def judge(self, tree: TokenTree, node: int, p: Tensor, dice: Dice) -> tuple[int | None, Tensor]:
        children = list(siblings(tree, node))
        if not children:
            return None, p
        q = tree.draft_probs[node]                                         # (V,)
        rho = price(p, q, len(children))
        for child, x, _ in children:
            if dice.accept(min(1.0, ratio(p, q, x) / rho)):
                return child, p
        return None, residual(p, rho * q)


def price(p: Tensor, q: Tensor, k: int) -> float:
    """The rho in [1, k] that solves the equation above, by bisection; the smallest up to rounding. p, q: (V,).

    Example: price(p, p, k) == 1, for a draft that is the target: every first child is accepted.
    """
    if k == 1:
        return 1.0                                                         # rules.Token's step
    p, q = p.numpy(), q.numpy()                                            # 60 small steps: numpy starts faster
    low, high = 1.0, float(k)
    for _ in range(60):
        rho = (low + high) / 2
        one = np.minimum(p / rho, q).sum()
        if 1 - (1 - one) ** k > rho * one + 1e-15:
            low = rho
        else:
            high = rho
    return low
