"""A draft that reads the target's keys and values: the cross-attention of GLIDE (2402.02082, section 3.1).

The target has read the text before the draft is asked, and what it made of it lies in its cache. A layer of this draft
is self-attention, then *cross*-attention into that cache, then an MLP; the i-th of its L layers reads the i-th of the
target's last L. Only the queries' and the output's matrix are new: keys and values are the target's own, never copied.

    committed   x0 x1 x2 x3 x4          the target's cache holds x0 .. x3: the last committed token is not yet fed
    row x4      sees the target at 0 .. 3
    row d1      sees the target at 0 .. 3 too: of what was drafted there are no target keys yet. d2, d3, ... likewise

One rule covers these rows, those of the prompt, and those that catch up after a full acceptance: *a row at position t
sees the target's first min(t, b) positions, b being how many the target's cache holds when the row is fed*. So it never
sees the target at its own position or later, which is also how it is trained (training/glide.py). A row is fed once: in
the draft's cache it stays as it was computed, though the target has read more since.

q is what the dice draw from, whatever it was read from, so chain rules stay exact. Left out on purpose: CaPE, which
widens the proposal where the draft is unsure (the paper's section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..model.cache import KVCache
from ..model.gpt import GPT, Block, GPTConfig
from ..model.listening import Listening
from ..model.pair import load_part
from .lm import LMDrafter


@dataclass(frozen=True)
class GlideConfig(GPTConfig):
    """The draft's own sizes, and those of the target it reads; 1.08 M parameters as it stands."""
    n_layer: int = 1
    n_head: int = 3
    n_embd: int = 192
    target_heads: int = 6
    target_head_dim: int = 64
    reads_target: bool = True    # False: without cross-attention, an ordinary draft to compare with

    def __post_init__(self):
        GPTConfig(self.vocab_size, self.context, self.n_layer, self.n_head, self.n_embd)      # raises if bad


class CrossAttention(nn.Module):
    """Attention into the target's keys and values."""

    def __init__(self, config: GlideConfig):
        super().__init__()
        self.n_head, width = config.target_heads, config.target_heads * config.target_head_dim
        self.q_proj = nn.Linear(config.n_embd, width)
        self.o_proj = nn.Linear(width, config.n_embd)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, views: Tensor) -> Tensor:
        """x (B, T, C), keys and values (B, H_t, S, D_t), views (T,): how many of them each row sees -> (B, T, C)."""
        q = self.q_proj(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)                  # (B, H_t, T, D_t)
        blind = (views == 0)[:, None]                   # (T, 1): a softmax over nothing is NaN, so these rows look too,
        sees = (torch.arange(keys.shape[2], device=x.device) < views[:, None]) | blind       # (T, S)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=sees)
        y = self.o_proj(y.transpose(1, 2).flatten(2))                                        # (B, T, C)
        return torch.where(blind, 0.0, y)               # but it counts for nothing


class GlideLayer(Block):
    """A GPT's layer with cross-attention between its two halves."""

    def __init__(self, config: GlideConfig):
        super().__init__(config)
        if config.reads_target:
            self.ln_cross, self.cross = nn.LayerNorm(config.n_embd), CrossAttention(config)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None, start: int, mask: Tensor | None,
                read: tuple[Tensor, Tensor] | None, views: Tensor) -> Tensor:
        """As Block.forward; read: the target's keys and values (B, H_t, S, D_t), None where there are none."""
        x = x + self.attn(self.ln_1(x), layer, cache, start, mask)
        if read is not None:
            x = x + self.cross(self.ln_cross(x), *read, views)
        return x + self.mlp(self.ln_2(x))                                                    # (B, T, C)


class GlideDraft(GPT):
    """A GPT whose passes also take the target's cache."""

    def __init__(self, config: GlideConfig):
        super().__init__(config)
        self.h = nn.ModuleList(GlideLayer(config) for _ in range(config.n_layer))
        self.h.apply(self._init)

    def forward(self, tokens: Tensor, cache: KVCache | None = None, *, target_cache: KVCache | None = None,
                views: Tensor | None = None) -> Tensor:
        """New tokens (B, T) -> logits (B, T, V). A cache grows as in GPT.forward; the target's is only read.

        views: (T,) how many of the target's positions each row sees; default: as drafting has it, see above.
        """
        T, at = tokens.shape[1], cache.length if cache is not None else 0
        known = target_cache.length if target_cache is not None and self.config.reads_target else 0
        positions = torch.arange(at, at + T, device=tokens.device)                           # (T,)
        views = positions.clamp(max=known) if views is None else views
        x, mask = self.embed(tokens, positions), self.attention_mask(None, T, at, tokens.device)
        for layer, block in enumerate(self.h):
            read = None
            if known:
                sides = target_cache.keys, target_cache.values
                read = tuple(side[layer - len(self.h)][:, :, :known] for side in sides)      # (B, H_t, S, D_t) each
            x = block(x, layer, cache, at, mask, read, views)                                # (B, T, C)
        if cache is not None:
            cache.advance(T)
        return self.unembed(x)


class Reader:
    """A GlideDraft with the cache it reads, called as any draft is."""

    def __init__(self, draft: GlideDraft):
        self.draft, self.config, self.device = draft, draft.config, draft.device
        self.target_cache: KVCache | None = None

    def __call__(self, tokens: Tensor, cache: KVCache) -> Tensor:
        return self.draft(tokens, cache, target_cache=self.target_cache)                     # (1, T, V)

    def new_cache(self, capacity: int) -> KVCache:
        return self.draft.new_cache(capacity)


class GlideDrafter(LMDrafter):
    """A chain of `length` tokens from `draft`, which reads the cache of `target`, the one given to `speculate`.

    Raises ValueError for a length below 1, and for a draft made to read another target's keys.
    """

    def __init__(self, target: Listening, draft: GlideDraft, length: int = 5, sampling: Sampling | None = None):
        check_reads(draft.config, target.config)
        super().__init__(Reader(draft), length, sampling)
        self.target = target

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.target.check_heard(prompt)
        # one token alone was not read by the target: what it heard last belongs to another text
        self.draft.target_cache = self.target.cache if len(prompt) > 1 else None
        super().start(prompt, sampling)

    def commit(self, verdict: Verdict) -> None:
        super().commit(verdict)
        self.draft.target_cache = self.target.cache                  # the loop has rolled it back already


def check_reads(draft: GlideConfig, target: GPTConfig) -> None:
    """Raise ValueError unless this target's keys and values are what the draft reads."""
    made_for = (draft.target_heads, draft.target_head_dim)
    if draft.reads_target and (made_for != (target.n_head, target.head_dim) or draft.n_layer > target.n_layer):
        raise ValueError(f"the draft's {draft.n_layer} layers read {made_for[0]} heads of {made_for[1]}, the target "
                         f"has {target.n_layer} layers with {target.n_head} heads of {target.head_dim}")


def load_glide_draft(path: str | Path, *, dtype: torch.dtype = torch.float32,
                     device: torch.device | str = "cpu") -> GlideDraft:
    """Read one written by `save_model`. Raises ValueError, naming the file, if it is missing, damaged or foreign."""
    build = lambda config: GlideDraft(GlideConfig(**config))
    return load_part(path, build, "draft that reads its target", dtype=dtype, device=device)
