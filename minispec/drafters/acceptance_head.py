"""A learned estimate of whether a drafted token will be accepted (after SpecDec++ 2405.19715 and DISCO 2405.04304).

Four numbers describe a drafted token: the draft's probability of it, that probability's logarithm, the probability of
the likeliest token, and the entropy. A network with one small hidden layer turns them into a chance. It knows nothing
of the model's inside, so it is some hundred parameters that train in seconds (training/acceptance_head.py).
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn as nn
from torch import Tensor

from ..model.files import read_weights, save_weights

FEATURES = 4


def features(tokens: Tensor, beliefs: Tensor) -> Tensor:
    """Drafted tokens (N,) and the laws (N, V) as the draft saw them -> (N, 4), float32."""
    own = beliefs.gather(-1, tokens[:, None])[:, 0]                                  # (N,)
    entropy = torch.special.entr(beliefs).sum(-1)                                    # (N,), nats
    return torch.stack([own, own.clamp_min(1e-6).log(), beliefs.amax(-1), entropy], dim=-1).float()


class AcceptanceHead(nn.Module):
    """head(token, belief (V,)) -> chance of acceptance: an estimate for the stopping rules of adaptive.py."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.hidden, self.out = nn.Linear(FEATURES, width), nn.Linear(width, 1)
        self.register_buffer("mean", torch.zeros(FEATURES))                          # of the training features
        self.register_buffer("std", torch.ones(FEATURES))

    def logits(self, x: Tensor) -> Tensor:
        """Features (N, 4) -> log odds of acceptance (N,)."""
        return self.out(torch.tanh(self.hidden((x - self.mean) / self.std)))[:, 0]

    @torch.no_grad()
    def forward(self, token: int, belief: Tensor) -> float:
        return float(self.logits(features(torch.tensor([token]), belief[None])).sigmoid())

    def save(self, path: str | Path, metadata: dict[str, str]) -> None:
        """Write the head, whole or not at all, as safetensors; metadata says how it was trained."""
        save_weights(Path(path), self.state_dict(), metadata)

    @classmethod
    def load(cls, path: str | Path) -> AcceptanceHead:
        """Read what `save` wrote. Raises ValueError for a file that is missing, damaged, or holds something else."""
        weights, _ = read_weights(Path(path))
        head = cls(width=len(weights["out.weight"].flatten()) if "out.weight" in weights else 1)
        try:
            head.load_state_dict(weights)
        except RuntimeError:
            raise ValueError(f"{Path(path).name} holds no acceptance head: its weights are "
                             f"{', '.join(sorted(weights)) or 'missing'}") from None
        return head.eval().requires_grad_(False)
