"""Traversal verification: judge a tree from its leaves up (Weng et al. 2505.12398). On a chain this is rules.Block.

From the root down, a node that is rejected takes its whole subtree with it. From the leaves up a node comes last: only
when no descendant was kept is its own coin thrown, and what they left over counts for it. As in block.py, `mass` is the
probability with which a node may be kept; a child that failed changes both the mass and the p of its parent.

Keeps more tokens than rules.Recursive on average (no dominance is proved for trees), and reads q and p at every node.
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ROOT, SAMPLED, WITHOUT_REPLACEMENT, TokenTree
from .base import Rule, ratio, residual, siblings
from .block import kept_there


class Traversal(Rule):
    """Keep the first node whose coin falls right, children before parents; then draw from what p has left there."""

    exact = True
    origins = (SAMPLED, WITHOUT_REPLACEMENT)

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)

        def visit(node: int, mass: float) -> Verdict | None:
            p = target_probs[node + 1]                                     # (V,)
            for child, x, q in siblings(tree, node):
                verdict = visit(child, min(1.0, mass * ratio(p, q, x)))
                if verdict is not None:
                    return verdict
                p, mass = residual(mass * p, q), kept_there(mass, p, q)
            if node == ROOT or dice.accept(mass):                         # the root's mass stays 1: nothing is above it
                return Verdict(tree.path(node), dice.draw(p), bonus=not tree.children(node))
            return None

        return visit(ROOT, 1.0)
