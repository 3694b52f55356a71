"""Acceptance rules: pure functions of (tree, target_probs, dice) that return a Verdict. One file, one rule."""

from .base import Rule, residual
from .match import Match
from .token import Token

__all__ = ["Match", "Rule", "Token", "residual"]
