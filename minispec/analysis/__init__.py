"""What theory says, what a trace says, and the proof that both are about the same law."""

from .exact import (Memoised, law_error, output_law, output_law_by_rounds, sequential_law, total_variation)
from .metrics import Metrics, loop_overhead, metrics
from .optimal import acceptance_of, expected_accepted, optimal_acceptance
from .prove import CHAINS, TREES, Proof, prove
from .shapes import Shape, best_first, best_size, best_tree, child_acceptance, tree_tokens
from .theory import best_draft_length, expected_tokens, interpolate, speedup

__all__ = ["CHAINS", "Memoised", "Metrics", "Proof", "Shape", "TREES", "acceptance_of", "best_draft_length",
           "best_first", "best_size", "best_tree", "child_acceptance", "expected_accepted", "expected_tokens",
           "interpolate", "law_error", "loop_overhead", "metrics", "optimal_acceptance", "output_law",
           "output_law_by_rounds", "prove", "sequential_law", "speedup", "total_variation", "tree_tokens"]
