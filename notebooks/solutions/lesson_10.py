"""Solutions to the exercises of lesson 10, parallel drafting."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def may_attend(row: tuple[int, int], other: tuple[int, int]) -> bool:
    """The text up to the row's anchor, and the masks of its own block that are not behind it."""
    (a, k), (b, j) = row, other
    if j == 0:
        return b <= a
    return b == a and j <= k


def drop(length: int, counts: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Each depth's anchors are drawn from those of the depth before, where the place is still inside the text."""
    anchors = [np.arange(length)]
    for k, count in enumerate(counts, start=1):
        inside = [a for a in anchors[-1] if a + k < length]
        anchors.append(rng.choice(inside, size=min(count, len(inside)), replace=False))
    return anchors


def second_kept(joint: Tensor) -> float:
    """The mean over x of sum min(p(y | x), q(y)), with q the second token's law given nothing. joint: (V, V)."""
    first, apart = joint.sum(1, keepdim=True), joint.sum(0)                  # (V, 1), (V,)
    return float(torch.minimum(joint, first * apart).sum())                  # p(x) goes inside the minimum
