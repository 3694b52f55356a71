"""One rule for each kind of tree: for drafters that sample in some rounds and look things up in others.

A round is exact by itself: given everything committed before, the tokens it emits have the target's law. So each round
may be judged by another rule, as long as the choice depends on nothing that this round's dice decide. A tree's origin
is such a thing: it says how the tokens were found, and was settled before they were. Its shape need not be: a tree may
grow as its tokens fall, and to pick Token for the chains among such trees would be a bias.
"""

from __future__ import annotations

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import ORIGINS, TokenTree
from .base import Rule


class ByOrigin(Rule):
    """The first of `rules` that takes a tree's origin judges it: ByOrigin(Token(), Match()).

    Raises ValueError without rules; for an origin that none takes, what the last of them says to it.
    """

    def __init__(self, *rules: Rule):
        if not rules:
            raise ValueError("ByOrigin needs at least one rule: ByOrigin(Token(), Match())")
        self.rules = rules
        self.exact = all(rule.exact for rule in rules)
        self.origins = tuple(origin for origin in ORIGINS if any(origin in rule.origins for rule in rules))
        self.chains_only = any(rule.chains_only for rule in rules)         # where such a rule judges

    @property
    def name(self) -> str:
        return "/".join(rule.name for rule in self.rules)

    def __call__(self, tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
        return self.judge(tree)(tree, target_probs, dice)

    def check(self, tree: TokenTree) -> None:
        self.judge(tree).check(tree)

    def judge(self, tree: TokenTree) -> Rule:
        return next((rule for rule in self.rules if tree.origin in rule.origins), self.rules[-1])
