"""Sample and match: let the target draw its own token, and go on where the tree holds it.

Exact for any tree whose choice of tokens didn't look at these dice, because every emitted token is the target's own
sample; the tree only decides how far one pass reaches. The price is a lower acceptance than rejection sampling has:
sum p(x) q(x) on a sampled chain, instead of sum min(p(x), q(x)).

It equals point-mass verification (accept the children one by one against what is left of p) in law.
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ORIGINS, ROOT, TokenTree
from .base import Rule


class Match(Rule):
    """Draw y from p at each node; descend while a child holds y. Siblings with the same token count once."""

    exact = True
    origins = ORIGINS

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        self.check(tree)
        node, path = ROOT, []
        while True:
            children = tree.children(node)
            y = dice.draw(target_probs[node + 1])                          # (V,) -> token
            match = next((child for child in children if tree.tokens[child] == y), None)
            if match is None:
                return Verdict(path, y, bonus=not children)
            path.append(match)
            node = match
