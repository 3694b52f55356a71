"""What theory says, what a trace says, and the proof that both are about the same law."""

from .exact import (Memoised, law_error, output_law, output_law_by_rounds, sequential_law, total_variation)
from .metrics import Metrics, loop_overhead, metrics
from .optimal import acceptance_of, expected_accepted, optimal_acceptance
from .oracle import oracle_tokens_per_cost, tokens_per_cost
from .prove import CHAINS, TREES, Proof, prove
from .same_draws import Gain, accepted_given, gain, over_all_drafts, prefix_mass, real_drafts
from .shapes import Shape, best_first, best_size, best_tree, child_acceptance, tree_tokens
from .theory import best_draft_length, expected_tokens, interpolate, speedup

__all__ = ["CHAINS", "Gain", "Memoised", "Metrics", "Proof", "Shape", "TREES", "acceptance_of", "accepted_given",
           "best_draft_length", "best_first", "best_size", "best_tree", "child_acceptance", "expected_accepted",
           "expected_tokens", "gain", "interpolate", "law_error", "loop_overhead", "metrics", "optimal_acceptance",
           "oracle_tokens_per_cost", "output_law", "output_law_by_rounds", "over_all_drafts", "prefix_mass", "prove",
           "real_drafts", "sequential_law", "speedup", "tokens_per_cost", "total_variation", "tree_tokens"]
