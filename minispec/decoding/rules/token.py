"""Token by token rejection sampling on a chain (Leviathan et al. 2211.17192, Algorithm 1; Chen et al. 2302.01318).

Why it is exact, in one line: a token x is emitted at this position with probability
    q(x) min(1, p(x)/q(x)) + P(reject) residual(x) = min(p(x), q(x)) + max(p(x) - q(x), 0) = p(x).
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ROOT, SAMPLED, TokenTree
from .base import Rule, ratio, residual


class Token(Rule):
    """Accept x with probability min(1, p(x)/q(x)); at the first rejection draw the correction from the residual."""

    exact = True
    origins = (SAMPLED,)
    chains_only = True

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)
        node, path = ROOT, []
        for child, x in enumerate(tree.tokens):
            p, q = target_probs[node + 1], tree.draft_probs[node]          # (V,), (V,)
            if not dice.accept(min(1.0, ratio(p, q, x))):
                return Verdict(path, dice.draw(residual(p, q)), bonus=False)
            path.append(child)
            node = child
        return Verdict(path, dice.draw(target_probs[node + 1]), bonus=True)
