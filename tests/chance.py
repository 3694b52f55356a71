"""How likely counts are under a law: Pearson's chi-square, in closed form (no statistics package is needed)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

Law = dict[Hashable, float]


def chance_of(samples: Iterable[Hashable], law: Law) -> float:
    """P(a sample of `law` fits it no better than this one): below 1e-6 no honest run of a right sampler will come.

    `law` {outcome: probability} must have an odd number of outcomes, so that the degrees of freedom 2m are even and
    the tail is exp(-x/2) sum_{i<m} (x/2)^i / i!.
    """
    counts = dict.fromkeys(law, 0)
    for outcome in samples:
        counts[outcome] += 1                                    # KeyError: an outcome the law does not know
    total, m = sum(counts.values()), (len(law) - 1) // 2
    assert len(law) == 2 * m + 1 and min(law.values()) * total > 20, "the approximation needs enough of each outcome"
    half = sum((counts[key] - total * p) ** 2 / (total * p) for key, p in law.items()) / 2
    return math.exp(-half) * sum(half**i / math.factorial(i) for i in range(m))
