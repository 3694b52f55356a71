"""A projected KV cache: a target whose keys and values are guessed from a draft's. Lossy, and shown as what it is.

The thought is old and tempting: the draft has read the text already, so map its keys and values to the target's and
spare the target the work. Here every target layer's [K ; V] is a linear map of [K ; V] of the draft's layer at the same
share of the depth; queries, MLPs and head stay the target's own. What comes out is another model, with a law p~ of its
own, and what follows from that is plain:

    verified by it     the loop has p~'s law, not p's: the draft's errors are in the cache, where no rule looks
    drafting with it   exact: p~ is then only a draft q, and the true target judges it

Nor is there much to save (`projection_cost`): W_K and W_V are 2 C^2 of the 12 C^2 weights of a layer, a sixth, and the
map that replaces them is larger where C_d > C / 2. Keys and values depend on the model, not only on the tokens.

Left out on purpose: maps with hidden layers, which fuse caches for quality and change the law too (C2C, 2510.03215).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from .cache import KVCache
from .gpt import GPT, GPTConfig


def flat(keys: Tensor, values: Tensor) -> Tensor:
    """Keys and values (B, H, T, D) -> one row a position, (B, T, 2 C): all heads of K, then all heads of V."""
    return torch.cat([side.transpose(1, 2).flatten(2) for side in (keys, values)], dim=-1)


def sources(draft: GPTConfig, target: GPTConfig) -> list[int]:
    """For each target layer the draft layer at the same share of the depth: 2 and 8 layers give 0 0 0 0 1 1 1 1."""
    return [layer * draft.n_layer // target.n_layer for layer in range(target.n_layer)]


class Projection(nn.Module):
    """One linear map for each target layer. Made by `fit_projection` (training/projection.py).

    weight (L, 2 C, 2 C_d), bias (L, 2 C), with L, C and `n_head` the target's and C_d the draft's.
    """

    def __init__(self, weight: Tensor, bias: Tensor, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The draft's keys and values (B, H_d, T, D_d) -> those guessed for the target's `layer`, (B, H, T, D) each."""
        rows = F.linear(flat(keys, values), self.weight[layer], self.bias[layer])            # (B, T, 2 C)
        keys, values = rows.unflatten(-1, (2, self.n_head, -1)).permute(2, 0, 3, 1, 4)       # (B, H, T, D) each
        return keys, values


class JointCache(KVCache):
    """The layers of two caches under one length, the first one's before the second's: they can't fall out of step."""

    def __init__(self, first: KVCache, second: KVCache):
        self.keys, self.values = first.keys + second.keys, first.values + second.values
        self.capacity, self.length = first.capacity, 0


class LossyProjectedTarget(nn.Module):
    """Called as a GPT is; its law is not the target's. Each pass runs the draft, and the target without W_K and W_V.

    Raises ValueError where the draft has another vocabulary or a shorter context than the target, or the projection
    was fitted to models of other sizes.
    """

    def __init__(self, target: GPT, draft: GPT, projection: Projection):
        super().__init__()
        own, other = target.config, draft.config
        if other.vocab_size != own.vocab_size or other.context < own.context:
            raise ValueError(f"a draft of {other.vocab_size} tokens and a context of {other.context} can't stand in "
                             f"for a target of {own.vocab_size} tokens and a context of {own.context}")
        if projection.weight.shape != (wanted := (own.n_layer, 2 * own.n_embd, 2 * other.n_embd)):
            raise ValueError(f"the projection's weight is {tuple(projection.weight.shape)}, this pair needs {wanted}")
        self.target, self.draft, self.projection = target, draft, projection
        self.config, self.sources = own, sources(other, own)

    def forward(self, tokens: Tensor, cache: JointCache | None = None, *, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:
        """As GPT.forward: (B, T) -> logits (B, T, V)."""
        B, T = tokens.shape
        cache = self.new_cache(T, batch=B) if cache is None else cache
        at = cache.length
        if positions is None:
            if at + T > self.config.context:
                raise ValueError(f"{at + T} positions do not fit the model's context of {self.config.context}")
            positions = torch.arange(at, at + T, device=tokens.device)                       # (T,)
        self.draft.run_layers(self.draft.embed(tokens, positions), cache=cache, mask=mask)   # writes the draft's layers
        x, full = self.target.embed(tokens, positions), self.target.attention_mask(mask, T, at, tokens.device)
        for layer, block in enumerate(self.target.h):
            x = x + self._attend(layer, block.ln_1(x), cache, at, full)
            x = x + block.mlp(block.ln_2(x))                                                 # (B, T, C)
        cache.advance(T)
        return self.target.unembed(x)

    def _attend(self, layer: int, x: Tensor, cache: JointCache, at: int, mask: Tensor | None) -> Tensor:
        """The layer's attention, x (B, T, C) -> (B, T, C): its own queries, keys and values from the draft's."""
        (B, T, C), attn, source = x.shape, self.target.h[layer].attn, self.sources[layer]
        q = F.linear(x, attn.c_attn.weight[:C], attn.c_attn.bias[:C])                        # (B, T, C)
        q = q.view(B, T, attn.n_head, attn.head_dim).transpose(1, 2)                         # (B, H, T, D)
        drafted = (side[source][:, :, at:at + T] for side in (cache.keys, cache.values))     # (B, H_d, T, D_d) each
        k, v = cache.write(self.draft.config.n_layer + layer, at, *self.projection(layer, *drafted))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and T > 1)
        return attn.c_proj(y.transpose(1, 2).reshape(B, T, C))

    @property
    def device(self) -> torch.device:
        return self.target.device

    def new_cache(self, capacity: int | None = None, batch: int = 1) -> JointCache:
        capacity = self.config.context if capacity is None else capacity
        return JointCache(self.draft.new_cache(capacity, batch), self.target.new_cache(capacity, batch))


class ProjectionCost(NamedTuple):
    """Weights of one target layer: those of all its matrices, those no longer used, those of the map instead."""
    layer: int
    saved: int
    added: int


def projection_cost(draft: GPTConfig, target: GPTConfig) -> ProjectionCost:
    """12 C^2, 2 C^2 and 4 C C_d; the draft's own pass comes on top.

    Example: C = 384 and C_d = 256 -> 1,769,472 weights, 294,912 saved (a sixth), 393,216 added.
    """
    C = target.n_embd
    return ProjectionCost(layer=12 * C * C, saved=2 * C * C, added=4 * C * draft.n_embd)
