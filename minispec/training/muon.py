"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al. 2024; Liu et al. 2025, 2502.16982).

`torch.optim.Muon` iterates in bfloat16, which is slow on CPUs without bf16 units. This version
iterates in the gradient's own dtype and on the small Gram matrix, which squares the spread of the singular values: in
bfloat16 it would lose them. The step is scaled to the size of an
AdamW step (2502.16982, section 2.2), so one learning rate serves matrices here and vectors in AdamW.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Quintic Newton-Schulz: pushes singular values in (0, 1] to about 1. Not exactly 1, which costs nothing in practice.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """(R, C) -> (R, C) with about the same singular vectors and singular values near 1."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if tall else matrix                                    # (r, c), r <= c
    x = x / (x.norm() + 1e-7)
    gram = x @ x.mT                                                      # (r, r)
    total = torch.eye(len(gram), dtype=x.dtype, device=x.device)         # the product of all steps so far
    for _ in range(steps):
        step = _A * torch.eye(len(gram), dtype=x.dtype, device=x.device) + _B * gram + _C * (gram @ gram)
        total = step @ total                                             # all are polynomials of one matrix: they commute
        gram = step @ gram @ step
    x = total @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon for the weight matrices of the layers. Give vectors, embeddings and heads to AdamW."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.1):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(p.grad)
                update = orthogonalise(p.grad + group["momentum"] * velocity)          # Nesterov's look ahead
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)
