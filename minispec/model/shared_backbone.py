"""One model that drafts and verifies, with one KV cache: the exact speculative KV cache.

The layers below an *exit* are the draft, with the model's own output head (LayerSkip 2404.16710, section 4.3; Kangaroo
2404.18911, section 3). Drafting and verifying then share weights and inputs up to the exit, so they share keys, values
and residual streams too. Nothing is converted and nothing is approximated:

    drafting      layers 0 .. exit-1 for last, x1 .. xγ-1, a token a pass, in the target's cache past its length
    verifying     layers 0 .. exit-1 for xγ alone, which was never fed; then layers exit .. L-1 for all γ + 1 rows

So every layer processes γ + 1 rows a round, as in a verification pass without any drafting. Where rows are what costs
(a CPU, in wide passes) drafting costs the head alone. Where passes cost, whatever their width (a GPU at batch 1), what
is saved is the memory of a second model.

Rolling back takes nothing new: rows past the cache's length are never read, and one length holds for all layers.
Left out: drafting a tree from the exit; adapters between exit and head, as Kangaroo has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch import Tensor

from .cache import KVCache
from .gpt import GPT, GPTConfig


@dataclass
class Drafted:
    """Rows that went through the lower layers only. They stand in `cache` one after another, from `start` on."""
    cache: KVCache
    start: int
    tokens: list[int] = field(default_factory=list)
    streams: list[Tensor] = field(default_factory=list)          # at the exit, each (1, 1, C)

    def shared_rows(self, tokens: Tensor, cache: KVCache | None, positions: Tensor | None, mask: Tensor | None) -> int:
        """How many first rows of a pass are these: same cache, tokens and positions, attending to the same rows.

        tokens (B, T), positions (T,) or (B, T), mask (T, K) bool -> 0 .. T. A pass without positions or mask has none.
        """
        if cache is not self.cache or cache.length != self.start or positions is None or mask is None:
            return 0
        rows, count = zip(tokens[0].tolist(), positions.flatten().tolist()), 0
        for place, (row, token) in enumerate(zip(rows, self.tokens), self.start):
            if row != (token, place):
                break
            count += 1
        causal = torch.ones_like(mask).tril(mask.shape[1] - mask.shape[0])           # (T, K)
        return count if torch.equal(mask[:count], causal[:count]) else 0


class SharedBackbone(nn.Module):
    """The target of `speculate`, called as `model` is, and the model of its EarlyExitDrafter.

    exit: how many layers draft, 1 .. L-1; else ValueError. One sequence at a time drafts; passes may have any shape.
    Example:
        backbone = SharedBackbone(model, exit=2); speculate(backbone, EarlyExitDrafter(backbone), ids)
    """

    def __init__(self, model: GPT, exit: int):
        super().__init__()
        if type(exit) is not int or not 1 <= exit < model.config.n_layer:
            raise ValueError(f"exit must be a whole number from 1 to {model.config.n_layer - 1}, got {exit!r}")
        self.model, self.exit = model, exit
        self.cache: KVCache | None = None                        # the latest one made: a drafter starts right after it
        self.drafted: Drafted | None = None                      # what the next pass may go on from
        self.layer_tokens = [0] * model.config.n_layer           # rows that each layer processed

    # --- drafting ----------------------------------------------------------------------------------------------------

    def begin(self, cache: KVCache) -> None:
        """Start a chain after what `cache` holds. An earlier chain that no pass verified is forgotten."""
        self.drafted = Drafted(cache, cache.length)

    def draft(self, token: int) -> Tensor:
        """Feed the chain's next token to the lower layers -> logits at the exit (V,). The cache's length stays."""
        chain = self.drafted
        at = chain.start + len(chain.tokens)
        x = self.model.embed(torch.tensor([[token]], device=self.device), torch.tensor([at], device=self.device))
        x = self._run(x, 0, self.exit, cache=chain.cache, at=at)                     # (1, 1, C)
        chain.tokens.append(token)
        chain.streams.append(x)
        return self.model.unembed(x)[0, 0]

    # --- the target --------------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, cache: KVCache | None = None, *, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:
        """As GPT.forward, same logits: (B, T) -> (B, T, V). Rows that were drafted go on from the exit."""
        chain, self.drafted = self.drafted, None                 # for one pass: the next has another prefix
        known = chain.shared_rows(tokens, cache, positions, mask) if chain else 0
        if not known:
            self._count(0, self.model.config.n_layer, tokens.numel())
            return self.model(tokens, cache, positions=positions, mask=mask)
        x = self.model.embed(tokens[:, known:], positions[..., known:])              # (1, T - known, C)
        x = self._run(x, 0, self.exit, cache=cache, at=cache.length + known, mask=mask[known:])
        x = torch.cat([*chain.streams[:known], x], dim=1)                            # (1, T, C)
        x = self._run(x, self.exit, self.model.config.n_layer, cache=cache, mask=mask)
        cache.advance(tokens.shape[1])
        return self.model.unembed(x)

    def new_cache(self, capacity: int | None = None, batch: int = 1) -> KVCache:
        self.cache = self.model.new_cache(capacity, batch)
        return self.cache

    @property
    def config(self) -> GPTConfig:
        return self.model.config

    @property
    def device(self) -> torch.device:
        return self.model.device

    # --- the counter -------------------------------------------------------------------------------------------------

    def take_layer_tokens(self) -> list[int]:
        """Rows that each of the L layers processed since the last call."""
        taken, self.layer_tokens = self.layer_tokens, [0] * self.model.config.n_layer
        return taken

    def _run(self, x: Tensor, start: int, stop: int, **where) -> Tensor:
        """GPT.run_layers, counted. (B, T, C) -> (B, T, C)."""
        self._count(start, stop, x.shape[0] * x.shape[1])
        return self.model.run_layers(x, start, stop, **where)

    def _count(self, start: int, stop: int, rows: int) -> None:
        for layer in range(start, stop):
            self.layer_tokens[layer] += rows
