"""A target whose hidden states can be read: drafters that build on them wrap it, the loop doesn't notice."""

from __future__ import annotations

import torch
import torch.nn as nn
from torch import Tensor

from .cache import KVCache
from .gpt import GPT, GPTConfig


class Listening(nn.Module):
    """Called as `model` is. After each pass `latest` (B, T, C) holds the last layer's residual stream of the new rows,
    from which `unembed` makes the logits: the features of EAGLE (2401.15077) and Medusa (2401.10774).

    Example: target = Listening(target); speculate(target, HeadsDrafter(target, heads), ids)
    """

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model
        self.latest: Tensor | None = None

    def forward(self, tokens: Tensor, cache: KVCache | None = None, *, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:
        """As GPT.forward: (B, T) -> logits (B, T, V)."""
        self.latest = self.model.hidden(tokens, cache, positions=positions, mask=mask)
        return self.model.unembed(self.latest)

    @property
    def config(self) -> GPTConfig:
        return self.model.config

    @property
    def device(self) -> torch.device:
        return self.model.device

    def new_cache(self, capacity: int | None = None, batch: int = 1) -> KVCache:
        return self.model.new_cache(capacity, batch)

    def unembed(self, x: Tensor) -> Tensor:
        return self.model.unembed(x)
