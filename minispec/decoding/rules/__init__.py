"""Acceptance rules: pure functions of (tree, target_probs, dice) that return a Verdict. One file, one rule.

    the tree holds                          exact rules
    a chain drawn from q                    Token, Block (keeps more)
    branches drawn from q, either way       Recursive, Traversal (keeps more); KSeq with replacement only
    tokens chosen in any other way          Match
Typical takes every tree, and is lossy. ByOrigin has one rule for each kind: for drafters whose rounds differ.
"""

from .base import Rule, left_over, ratio, residual
from .block import Block
from .by_origin import ByOrigin
from .kseq import KSeq
from .match import Match
from .recursive import Recursive
from .token import Token
from .traversal import Traversal
from .typical import Typical

__all__ = ["Block", "ByOrigin", "KSeq", "Match", "Recursive", "Rule", "Token", "Traversal", "Typical", "left_over",
           "ratio", "residual"]
