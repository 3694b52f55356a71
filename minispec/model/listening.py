"""A target whose inside can be read: drafters that build on it wrap it, the loop doesn't notice."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn as nn
from torch import Tensor

from .cache import KVCache
from .gpt import GPT, GPTConfig


class Listening(nn.Module):
    """Called as `model` is. Of the latest pass it keeps

        latest     (B, T, C) the residual stream of the new rows after the last layer, from which `unembed` makes the
                   logits: the features of EAGLE (2401.15077) and Medusa (2401.10774)
        streams    the same after each layer, L of (B, T, C): EAGLE-3 (2503.01840) and DFlash (2602.06036) read several
        cache      the cache it wrote to: GLIDE (2402.02082) reads its keys and values

    Nothing is computed or copied for it. Example:
        target = Listening(target); speculate(target, HeadsDrafter(target, heads), ids)
    """

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model
        self.latest: Tensor | None = None
        self.streams: list[Tensor] = []
        self.cache: KVCache | None = None

    def forward(self, tokens: Tensor, cache: KVCache | None = None, *, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:
        """As GPT.forward: (B, T) -> logits (B, T, V)."""
        self.streams, self.cache = [], cache
        self.latest = self.model.hidden(tokens, cache, positions=positions, mask=mask, streams=self.streams)
        return self.model.unembed(self.latest)

    def check_heard(self, prompt: Sequence[int]) -> None:
        """For a drafter's start: raise ValueError unless the latest pass was the prefill of this prompt."""
        if len(prompt) > 1 and (self.latest is None or self.latest.shape[1] != len(prompt) - 1):
            raise ValueError("a drafter that reads its target must be given the Listening target that `speculate` has")

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
