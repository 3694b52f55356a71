"""From logits to the distribution that is really sampled: temperature, then top-k, then top-p.

The order is fixed and is the same for target and draft. Rejection sampling compares two probabilities of one token, so
both must be *these* probabilities, after all processing: a ratio of raw softmaxes would be exact for a law nobody uses.

Greedy decoding is not a special case: at temperature 0 the distribution is one-hot (on a tie the lowest id wins), and
every rule works on it unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """temperature >= 0, top_k >= 1 or None, 0 < top_p <= 1. Raises ValueError otherwise."""
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature}")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise ValueError(f"top_k must be a whole number >= 1, or None, got {self.top_k!r}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    def probs(self, logits: Tensor) -> Tensor:
        """Logits (..., V) -> probabilities (..., V), float64. Raises ValueError where a row has NaN or nothing finite.

        float64 whatever the model's dtype: rules take differences of these numbers, and V is small beside a model pass.
        Example: Sampling(temperature=0).probs(tensor([1., 3., 3.])) == tensor([0., 1., 0.])
        """
        logits = logits.double()
        highest = logits.amax(-1, keepdim=True)                       # (..., 1); NaN if any entry is NaN
        if not bool(highest.isfinite().all()):
            raise ValueError("logits hold NaN, +inf, or a row of only -inf: no distribution to sample from")
        if self.temperature == 0:
            return _one_hot_of_first(logits == highest)
        probs = ((logits - highest) / self.temperature).softmax(-1)   # differences first: safe for any temperature
        if self.top_k is not None and self.top_k < probs.shape[-1]:
            probs = _keep(probs, _ranked(probs) < self.top_k)
        if self.top_p < 1:
            order, rank = _order(probs), _ranked(probs)               # both (..., V)
            mass_before = probs.gather(-1, order).cumsum(-1) - probs.gather(-1, order)
            probs = _keep(probs, mass_before.gather(-1, rank) < self.top_p)
        return probs


def _one_hot_of_first(winners: Tensor) -> Tensor:
    """Bool (..., V) -> one-hot float64 at the lowest True. (argmax alone promises no order among ties.)"""
    ids = torch.arange(winners.shape[-1], device=winners.device)
    first = torch.where(winners, ids, winners.shape[-1]).amin(-1, keepdim=True)
    return (ids == first).double()


def _order(probs: Tensor) -> Tensor:
    """Token ids from most to least likely, the lower id first on a tie. (..., V)."""
    return probs.sort(dim=-1, descending=True, stable=True).indices


def _ranked(probs: Tensor) -> Tensor:
    """Rank of each token, 0 = most likely. (..., V)."""
    return _order(probs).argsort(-1)


def _keep(probs: Tensor, kept: Tensor) -> Tensor:
    probs = torch.where(kept, probs, 0.0)
    return probs / probs.sum(-1, keepdim=True)
