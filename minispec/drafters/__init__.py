"""Who proposes. Each drafter keeps its own state behind the protocol of `minispec.decoding.drafter`."""

from .lm import LMDrafter
from .lm_tree import DynamicTreeDrafter, TreeDrafter
from .ngram import NgramDrafter
from .table import TableDrafter

__all__ = ["DynamicTreeDrafter", "LMDrafter", "NgramDrafter", "TableDrafter", "TreeDrafter"]
