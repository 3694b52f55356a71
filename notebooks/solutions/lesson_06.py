"""Solutions to the exercises of lesson 06, how fast."""

from collections.abc import Callable, Sequence


def tokens_per_round(alphas: Sequence[float]) -> float:
    """Position k is reached if all before it were accepted: add up the chances, and 1 for the target's own token."""
    total, reached = 1.0, 1.0
    for alpha in alphas:
        reached *= alpha
        total += reached
    return total


def predicted_speedup(alphas: Sequence[float], cost: float, verify: Callable[[int], float]) -> float:
    """Tokens over time; the target's pass is one row longer than the draft, for the last committed token."""
    length = len(alphas)
    return tokens_per_round(alphas) / (length * cost + verify(length + 1))


def choose_length(alpha: float, cost: float, verify: Callable[[int], float], longest: int) -> int:
    """Not to speculate is a choice too: its speedup is 1."""
    speedups = [1.0] + [predicted_speedup([alpha] * length, cost, verify) for length in range(1, longest + 1)]
    return speedups.index(max(speedups))
