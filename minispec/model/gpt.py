"""A GPT, written out: the model that minispec speeds up.

GPT-2's architecture (Radford et al. 2019): learned positions, pre-norm blocks, GELU (tanh form), tied output head.
Public GPT-2 weights therefore load one to one (see gpt2.py), and parameter names follow theirs.

Shapes, everywhere in this project:
    B batch    T new tokens in this pass    S all positions attended (cached + new)
    C width    H heads    D = C / H    V vocabulary    L layers

The forward pass is split into `embed`, `run_layers` and `unembed`, because drafting methods enter and leave in the
middle: an early-exit draft is a slice of these calls, not a copy of the model.

Left out on purpose: dropout (the models are small and see each token about once), rotary positions, grouped heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from .cache import KVCache


@dataclass(frozen=True)
class GPTConfig:
    vocab_size: int = 2048       # V: small, so that the head stays a small part of a small model
    context: int = 512           # the longest sequence: there is one learned vector per position
    n_layer: int = 8             # L
    n_head: int = 6              # H
    n_embd: int = 384            # C

    def __post_init__(self):
        for name, value in vars(self).items():
            if type(value) is not int or value < 1:              # a bool is an int, but no size
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} must be a multiple of n_head={self.n_head}")

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


class Attention(nn.Module):
    """Causal self-attention over the cache and the new tokens."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.n_head, self.head_dim = config.n_head, config.head_dim
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)       # queries, keys and values in one product
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None, start: int, mask: Tensor | None) -> Tensor:
        B, T, C = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.n_head, self.head_dim)   # (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)                             # each (B, H, T, D)
        if cache is not None:
            k, v = cache.write(layer, start, k, v)                       # each (B, H, S, D)
        causal = mask is None and T > 1                                  # one token may look at everything
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)      # (B, H, T, D)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))           # (B, T, C)


class MLP(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))     # (B, T, C)


class Block(nn.Module):
    """One layer. Both halves add to the residual stream x, they never replace it."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), Attention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.n_embd), MLP(config)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None, start: int, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), layer, cache, start, mask)
        return x + self.mlp(self.ln_2(x))                                # (B, T, C)


class GPT(nn.Module):
    """`model(tokens)` -> logits; with a cache, `tokens` are only the new ones and the cache grows by their number."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)        # token vectors; also the output head
        self.wpe = nn.Embedding(config.context, config.n_embd)           # position vectors
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.apply(self._init)
        for name, weight in self.named_parameters():                     # GPT-2: the residual stream sums 2L outputs,
            if name.endswith("c_proj.weight"):                           # so each starts smaller by sqrt(2L)
                nn.init.normal_(weight, std=0.02 / (2 * config.n_layer) ** 0.5)

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    # --- the three parts of a pass ---------------------------------------------------------------------------------

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """tokens (B, T), positions (T,) or (B, T) -> residual stream (B, T, C)."""
        return self.wte(tokens) + self.wpe(positions)

    def run_layers(self, x: Tensor, start: int = 0, stop: int | None = None, *, cache: KVCache | None = None,
                   at: int | None = None, mask: Tensor | None = None, streams: list[Tensor] | None = None) -> Tensor:
        """Run layers start..stop-1 on the residual stream x (B, T, C) -> (B, T, C).

        With a cache, the T rows are written to cache positions `at`..at+T-1 (default: its length), which this call
        does not advance. `mask` (T, K), bool, says which of the last K positions each row may see (earlier ones: all);
        without it rows are causal. `streams`, if given, gets the residual stream after each layer appended.
        """
        at = (cache.length if at is None else at) if cache is not None else 0
        full = self.attention_mask(mask, x.shape[1], at, x.device)
        for layer in range(start, self.config.n_layer if stop is None else stop):
            x = self.h[layer](x, layer, cache, at, full)
            if streams is not None:
                streams.append(x)
        return x

    def unembed(self, x: Tensor) -> Tensor:
        """Residual stream (B, T, C) -> logits (B, T, V), with the tied head."""
        return F.linear(self.ln_f(x), self.wte.weight)

    @staticmethod
    def attention_mask(mask: Tensor | None, T: int, at: int, device: torch.device) -> Tensor | None:
        """-> (T, S) bool with S = at + T, or None where attention needs none (one token, or a causal prefill)."""
        if mask is None and (T == 1 or at == 0):
            return None
        if mask is None:
            mask = torch.ones(T, T, dtype=torch.bool, device=device).tril()          # (T, T)
        if mask.shape[0] != T or not T <= mask.shape[1] <= at + T:
            raise ValueError(f"mask must be ({T}, K) with {T} <= K <= {at + T}, got {tuple(mask.shape)}")
        return F.pad(mask, (at + T - mask.shape[1], 0), value=True)                  # (T, S)

    # --- the whole pass --------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, cache: KVCache | None = None, *, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:
        """One pass over the new tokens (B, T), int64 -> logits (B, T, V).

        cache:     earlier positions; the new ones are appended to it.
        positions: (T,) position ids, default: cache length, +1, ... A tree passes depths: siblings share a position.
        mask:      (T, K) bool, see `run_layers`; a tree passes its ancestor mask.
        Raises ValueError where the length does not fit the context or the cache. Token ids are not looked at: on a
        GPU that would cost a wait in every pass, so the decoding loop checks the prompt once.
        """
        return self.unembed(self.hidden(tokens, cache, positions=positions, mask=mask))          # (B, T, V)

    def hidden(self, tokens: Tensor, cache: KVCache | None = None, *, positions: Tensor | None = None,
               mask: Tensor | None = None, streams: list[Tensor] | None = None) -> Tensor:
        """A whole pass but for the head: as `forward`, up to the residual stream (B, T, C) after the last layer.

        `streams`: see `run_layers`.
        """
        B, T = tokens.shape
        past = cache.length if cache is not None else 0
        if positions is None:
            if past + T > self.config.context:
                raise ValueError(f"{past + T} positions do not fit the model's context of {self.config.context}")
            positions = torch.arange(past, past + T, device=tokens.device)           # (T,)
        x = self.embed(tokens, positions)                                            # (B, T, C)
        x = self.run_layers(x, cache=cache, mask=mask, streams=streams)              # (B, T, C)
        if cache is not None:
            cache.advance(T)
        return x

    def new_cache(self, capacity: int | None = None, batch: int = 1) -> KVCache:
        """An empty cache for this model, `capacity` positions long (default: the context)."""
        c = self.config
        return KVCache(c.n_layer, c.n_head, c.head_dim, c.context if capacity is None else capacity, batch=batch,
                       dtype=self.wte.weight.dtype, device=self.wte.weight.device)

    @property
    def device(self) -> torch.device:
        return self.wte.weight.device

    def num_params(self) -> int:
        """All parameters, the tied head counted once."""
        return sum(p.numel() for p in self.parameters())
