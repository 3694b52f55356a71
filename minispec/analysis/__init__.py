"""What theory says, what a trace says, and the proof that both are about the same law."""

from .exact import (Memoised, law_error, output_law, output_law_by_rounds, sequential_law, total_variation)
from .metrics import Metrics, loop_overhead, metrics
from .theory import best_draft_length, expected_tokens, interpolate, speedup

__all__ = ["Memoised", "Metrics", "best_draft_length", "expected_tokens", "interpolate", "law_error", "loop_overhead",
           "metrics", "output_law", "output_law_by_rounds", "sequential_law", "speedup", "total_variation"]
