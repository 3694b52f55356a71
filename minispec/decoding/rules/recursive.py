"""Recursive rejection sampling on a tree, from the root down: rules.Token with second chances.

The children of a node are judged in the order in which they were drawn. A rejected one leaves max(p - q, 0), and the
next child is judged against *that*: for it, the residual is the target. The accepted child becomes the node; where all
are rejected, the correction comes from what is left of p. Each step keeps Token's identity min + max = p, so the whole
is exact.

    sampled                      SpecInfer's multi-step sampling (Miao et al. 2305.09781): every child drawn from q
    sampled_without_replacement  Sequoia (Chen et al. 2402.12374): each drawn from what its elder siblings left of q

Both need children in the order of drawing. Sorted by probability, or picked as the top k, they follow another law than
q and the output is biased: such trees are "chosen", and belong to rules.Match.
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ROOT, SAMPLED, WITHOUT_REPLACEMENT, TokenTree
from .base import Rule, ratio, residual, siblings


class Recursive(Rule):
    """Accept child x with probability min(1, p(x)/q(x)), where p is what the rejected siblings before it have left."""

    exact = True
    origins = (SAMPLED, WITHOUT_REPLACEMENT)

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)
        node, path = ROOT, []
        while True:
            child, p = self.judge(tree, node, target_probs[node + 1], dice)
            if child is None:
                return Verdict(path, dice.draw(p), bonus=not tree.children(node))
            path.append(child)
            node = child

    def judge(self, tree: TokenTree, node: int, p: Tensor, dice: Dice) -> tuple[int | None, Tensor]:
        """(the accepted child, p), or (None, what is left of p (V,)): all of p where the node has no children."""
        for child, x, q in siblings(tree, node):
            if dice.accept(min(1.0, ratio(p, q, x))):
                return child, p
            p = residual(p, q)
        return None, p
