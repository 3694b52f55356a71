"""What every acceptance rule has in common: what it claims, which trees it can judge, and the residual."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..dice import Dice
from ..drafter import Verdict
from ..tree import TokenTree


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


def _rule_for(tree: TokenTree) -> str:
    return "Token" if tree.is_chain and tree.origin == "sampled" else "Match"


def residual(p: Tensor, q: Tensor) -> Tensor:
    """The law of the correction after q's token was rejected: max(p - q, 0), normalised. (V,), (V,) -> (V,).

    Where p <= q everywhere (up to rounding) a rejection has probability 0; p itself is returned, never 0 / 0.
    Example: residual([.5, .3, .2], [.2, .5, .3]) == [1, 0, 0].
    """
    excess = (p - q).clamp_min(0)
    mass = float(excess.sum())
    return excess / mass if mass > 1e-14 else p
