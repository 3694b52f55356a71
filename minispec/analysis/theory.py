"""What theory says: expected tokens a round, speedup, the best draft length (Leviathan et al. 2211.17192, section 3).

The textbook speedup assumes that a pass over gamma + 1 tokens costs what a pass over one does. That holds where weights
are streamed from memory and nothing else counts; on a CPU it doesn't. So the verify curve v(k), the measured time of a
target pass over k tokens in units of a pass over one, takes the place of the constant 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

VerifyCurve = Callable[[int], float]


def flat(k: int) -> float:
    """The textbook verify curve: k tokens cost what one costs."""
    return 1.0


def expected_tokens(acceptance: float | Sequence[float], length: int) -> float:
    """Expected tokens a round, the correction or bonus included: 1 + sum_k prod_{j <= k} alpha_j.

    acceptance: one alpha for all positions, or alpha by position, *given that it was reached* (a list shorter than
    `length` is continued with its last entry).
    Example: expected_tokens(0.8, 4) == (1 - 0.8**5) / (1 - 0.8).
    """
    alphas = _by_position(acceptance, length)
    total, survival = 1.0, 1.0
    for alpha in alphas:
        survival *= alpha
        total += survival
    return total


def speedup(acceptance: float | Sequence[float], length: int, cost: float, verify: VerifyCurve = flat) -> float:
    """Tokens a second over plain decoding: E[tokens] / (length * c + v(length + 1)) (Theorem 3.8, with measured v).

    cost: c, one draft pass in units of a one-token target pass.
    """
    if length == 0:
        return 1.0
    return expected_tokens(acceptance, length) / (length * cost + verify(length + 1))


def best_draft_length(acceptance: float | Sequence[float], cost: float, verify: VerifyCurve = flat,
                      longest: int = 64) -> int:
    """The draft length in 0..longest with the highest predicted speedup; 0 means that speculation does not pay."""
    return max(range(longest + 1), key=lambda length: speedup(acceptance, length, cost, verify))


def interpolate(curve: dict[int, float]) -> VerifyCurve:
    """A verify curve from measured points {k: v(k)}, linear between them and beyond the last two."""
    ks = sorted(curve)

    def value(k: int) -> float:
        if k in curve or len(ks) == 1:
            return curve.get(k, curve[ks[0]])
        right = min(max(1, next((i for i, known in enumerate(ks) if known > k), len(ks) - 1)), len(ks) - 1)
        a, b = ks[right - 1], ks[right]
        return curve[a] + (curve[b] - curve[a]) * (k - a) / (b - a)

    return value


def _by_position(acceptance: float | Sequence[float], length: int) -> list[float]:
    alphas = [acceptance] if isinstance(acceptance, (int, float)) else list(acceptance)
    if not alphas or not all(0 <= alpha <= 1 for alpha in alphas):
        raise ValueError(f"acceptance must be one or several numbers in [0, 1], got {acceptance}")
    return [alphas[min(k, len(alphas) - 1)] for k in range(length)]
