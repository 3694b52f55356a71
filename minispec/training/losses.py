"""Losses for a language model and for a draft that should be *accepted* by its target.

A drafted token is accepted with probability alpha = sum_x min(p(x), q(x)) = 1 - TV(p, q). Cross-entropy and KL reach
alpha = 1 only at their common optimum q = p; a small draft never gets there, so what it trades away matters.

All losses take draft logits and *target* logits (..., V) and return one number per position (...), in nats or as a
probability. Softmaxes are computed in float32: sums of minima over a vocabulary are too coarse in half precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean next-token loss in nats: logits (B, T, V), labels (B, T) -> ()."""
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def acceptance(draft_logits: Tensor, target_logits: Tensor) -> Tensor:
    """alpha = sum_x min(p, q), the exact chance that a sampled draft token is kept. (..., V) -> (...)."""
    return torch.minimum(target_logits.float().softmax(-1), draft_logits.float().softmax(-1)).sum(-1)


def kl(draft_logits: Tensor, target_logits: Tensor) -> Tensor:
    """Forward KL(p || q) in nats. (..., V) -> (...)."""
    log_p, log_q = target_logits.float().log_softmax(-1), draft_logits.float().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def tv(draft_logits: Tensor, target_logits: Tensor) -> Tensor:
    """Total variation 1 - alpha: the chance of a rejection. Flat where the draft is badly wrong. (..., V) -> (...)."""
    return 1 - acceptance(draft_logits, target_logits)


def kl_to_tv(draft_logits: Tensor, target_logits: Tensor, progress: float) -> Tensor:
    """(1 - progress) KL + progress TV: start where KL has gradient, end at the rejection rate itself. (..., V) -> (...).

    As the two functions above, from one softmax of each side, since over a vocabulary that is what costs.
    """
    log_p, log_q = target_logits.float().log_softmax(-1), draft_logits.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    return (1 - progress) * (p * (log_p - log_q)).sum(-1) + progress * (1 - torch.minimum(p, q).sum(-1))


DISTILL: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "kl": lambda q, p, progress: kl(q, p),
    "tv": lambda q, p, progress: tv(q, p),
    "kl-tv": kl_to_tv,
}
