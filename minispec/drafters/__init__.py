"""Who proposes. Each drafter keeps its own state behind the protocol of `minispec.decoding.drafter`."""

from .acceptance_head import AcceptanceHead
from .adaptive import AdaptiveDrafter, LookAheadDrafter
from .block import BlockDrafter
from .diffusion import DiffusionDrafter, load_diffusion_draft
from .early_exit import EarlyExitDrafter
from .fallback import FallbackDrafter
from .feature import FeatureDrafter, load_feature_draft
from .glide import GlideDrafter, load_glide_draft
from .heads import HeadsDrafter, load_heads
from .lm import LMDrafter
from .lm_tree import DynamicTreeDrafter, TreeDrafter
from .ngram import NgramDrafter
from .quantised import int8
from .suffix import SuffixDrafter
from .table import TableDrafter
from .vocab import SharedTokensDrafter, TextDrafter, Vocabularies

__all__ = ["AcceptanceHead", "AdaptiveDrafter", "BlockDrafter", "DiffusionDrafter", "DynamicTreeDrafter",
           "EarlyExitDrafter", "FallbackDrafter", "FeatureDrafter", "GlideDrafter", "HeadsDrafter", "LMDrafter",
           "LookAheadDrafter", "NgramDrafter", "SharedTokensDrafter", "SuffixDrafter", "TableDrafter", "TextDrafter",
           "TreeDrafter", "Vocabularies", "int8", "load_diffusion_draft", "load_feature_draft", "load_glide_draft",
           "load_heads"]
