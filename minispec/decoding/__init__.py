"""One round of speculative decoding: draft, verify, accept, emit, roll back."""

from . import rules
from .dice import Dice, EnumeratingDice, Outcome, SeededDice
from .drafter import Drafter, Verdict
from .loop import Speculation, speculate
from .plain import generate
from .sampling import Sampling
from .trace import Generation, Round, Trace
from .tree import TokenTree

__all__ = ["Dice", "Drafter", "EnumeratingDice", "Generation", "Outcome", "Round", "Sampling", "SeededDice", "Speculation",
           "TokenTree", "Trace", "Verdict", "generate", "rules", "speculate"]
