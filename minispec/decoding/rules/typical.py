"""Typical acceptance (Medusa: Cai et al. 2401.10774). Lossy: the output has not the target's law.

A proposed token is kept if the target finds it likely *enough*, the bar being lower where the target is unsure:

    p(x) > min(epsilon, delta exp(-H(p))),   H(p) = entropy of p in nats.

No coin is thrown, whatever the draft likes passes, and the law of the output depends on the draft. At temperature 0 it
is exact, like everything else: p is one-hot.
"""

from __future__ import annotations

import math

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ORIGINS, ROOT, TokenTree
from .base import Rule


class Typical(Rule):
    """Lossy. Keep the longest path of likely enough tokens (of several, the likeliest), then the target's top token.

    epsilon, delta: the defaults are those of Medusa's generate. Raises ValueError unless both are in (0, 1].
    """

    exact = False
    origins = ORIGINS

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3):
        if not (0 < epsilon <= 1 and 0 < delta <= 1):
            raise ValueError(f"epsilon and delta must be in (0, 1], got {epsilon} and {delta}")
        self.epsilon, self.delta = epsilon, delta

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)
        kept = {ROOT: (0, 1.0)}                                            # node: (depth, product of p from the root)
        for node, (x, parent) in enumerate(zip(tree.tokens, tree.parents)):
            p = target_probs[parent + 1]                                   # (V,)
            if parent in kept and float(p[x]) > self.bar(p):
                depth, product = kept[parent]
                kept[node] = (depth + 1, product * float(p[x]))
        best = max(kept, key=kept.get)
        return Verdict(tree.path(best), int(target_probs[best + 1].argmax()), bonus=not tree.children(best))

    def bar(self, p: Tensor) -> float:
        """How likely a token must be. p: (V,)."""
        entropy = float(-(p * p.clamp_min(1e-300).log()).sum())
        return min(self.epsilon, self.delta * math.exp(-entropy))
