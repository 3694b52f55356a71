"""The block-diffusion drafter: one pass a proposal, fed from inside the target (DFlash, 2602.06036).

The target has read every committed token but the last; what it thought of them lies in its residual streams. The draft
reads these instead of the tokens. It fuses the streams after a few layers into one context vector a position, and each
of its layers makes keys and values from them. Only a block of rows asks queries:

    position   1    2    3    4        5     6     7     8           x5 is the last committed token, the anchor
    row        -    -    -    -        x5    [m]   [m]   [m]         [m] is one learned vector: "not known yet"
    attended   c1   c2   c3   c4   and all rows of the block, before and behind
    output                                   q6    q7    q8          laws of the tokens at these very positions

One denoising step: a masked row gives the law of its own token, through the target's frozen embedding and head. A row
also sees the masked rows behind it, which no causal draft can; but no guess sees the guess beside it, so q factorises.
Tokens are drawn from exactly these q's: chain rules (Token, Block) stay exact. What is lost is coherence: of "ab" and
"cd", equally likely, two places drawn apart give "ad" as often as "ab".

The cache holds keys and values of the context alone. A block leaves nothing in it, so a rejection has nothing to undo.

Left out: more than one denoising step (q would have no closed form), a sequential head on top (DSpark, 2607.05147).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.request import as_batch
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree
from ..model.cache import KVCache
from ..model.gpt import GPT, MLP, GPTConfig
from ..model.listening import Listening
from ..model.pair import load_part

Context = list[tuple[Tensor, Tensor]]        # of each draft layer: keys and values of the context, each (B, H, T, D)


@dataclass(frozen=True)
class DiffusionConfig:
    n_embd: int = 384                        # C, the target's
    n_head: int = 6                          # H
    n_layer: int = 1                         # layers of the draft
    sources: tuple[int, ...] = (3, 6, 8)     # read the target's stream after so many of its layers

    def __post_init__(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} must be a multiple of n_head={self.n_head}")
        if not self.sources or min(self.sources) < 1:
            raise ValueError(f"sources must be one or more layer counts >= 1, got {self.sources}")

    @classmethod
    def fitting(cls, target: GPTConfig, n_layer: int = 1) -> DiffusionConfig:
        """For this target: it is read a third, two thirds and all the way up."""
        sources = {-(-target.n_layer * third // 3) for third in (1, 2, 3)}           # rounded up: 8 layers give 3, 6, 8
        return cls(target.n_embd, target.n_head, n_layer, tuple(sorted(sources)))


class DiffusionLayer(nn.Module):
    """GPT's layer, but its rows attend to a context that is keys and values only, and to each other both ways."""

    def __init__(self, config: DiffusionConfig):
        super().__init__()
        C, self.n_head = config.n_embd, config.n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.c_q, self.c_kv, self.c_proj = nn.Linear(C, C), nn.Linear(C, 2 * C), nn.Linear(C, C)
        self.mlp = MLP(config)                                       # reads n_embd alone

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of context and block rows alike. (B, T, C) -> two (B, H, T, D)."""
        B, T, C = x.shape
        return self.c_kv(x).view(B, T, 2, self.n_head, C // self.n_head).permute(2, 0, 3, 1, 4).unbind()

    def forward(self, x: Tensor, context: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """x (B, R, C), context two (B, H, T, D), mask (R, T + R) -> (B, R, C)."""
        B, R, C = x.shape
        rows = self.ln_1(x)
        q = self.c_q(rows).view(B, R, self.n_head, C // self.n_head).transpose(1, 2)           # (B, H, R, D)
        k, v = (torch.cat(both, dim=2) for both in zip(context, self.keys_values(rows)))       # (B, H, T + R, D)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)                            # (B, H, R, D)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, R, C))
        return x + self.mlp(self.ln_2(x))


class DiffusionDraft(nn.Module):
    """The draft's own weights. Token vectors, position vectors and the head are the target's, frozen.

    S = number of sources. One pass, whose rows go to the target's `unembed`:
        draft(draft.block(target, anchors, positions), draft.context(draft.features(streams)))
    """

    def __init__(self, config: DiffusionConfig):
        super().__init__()
        self.config = config
        self.fuse = nn.Linear(len(config.sources) * config.n_embd, config.n_embd, bias=False)
        self.ln_context = nn.LayerNorm(config.n_embd)
        self.mask = nn.Parameter(torch.zeros(config.n_embd))
        self.h = nn.ModuleList(DiffusionLayer(config) for _ in range(config.n_layer))

    def features(self, streams: Sequence[Tensor]) -> Tensor:
        """The target's residual streams after each layer, L of (B, T, C) -> what is read of them, (B, T, S C)."""
        return torch.cat([streams[layers - 1] for layers in self.config.sources], dim=-1)

    def context(self, features: Tensor) -> Context:
        """Features of T positions (B, T, S C) -> their keys and values in each layer of the draft."""
        fused = self.ln_context(self.fuse(features))                                           # (B, T, C)
        return [layer.keys_values(fused) for layer in self.h]

    def block(self, target: GPT, anchors: Tensor, positions: Tensor) -> Tensor:
        """The rows of A blocks, each an anchor and its masks: anchor tokens (B, A), positions (A, N) -> (B, A N, C)."""
        (B, A), (_, N), C = anchors.shape, positions.shape, self.config.n_embd
        tokens = torch.cat([target.wte(anchors)[:, :, None], self.mask.expand(B, A, N - 1, C)], dim=2)
        return (tokens + target.wpe(positions)).flatten(1, 2)

    def forward(self, x: Tensor, context: Context, mask: Tensor | None = None) -> Tensor:
        """Block rows x (B, R, C) -> residual stream (B, R, C), for the target's `unembed`.

        mask (R, T + R), bool: which of the T context positions and R rows each row may attend to; default: all.
        """
        for layer, of_layer in zip(self.h, context):
            x = layer(x, of_layer, mask)
        return x

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for the context, `capacity` positions long."""
        c = self.config
        return KVCache(c.n_layer, c.n_head, c.n_embd // c.n_head, capacity, dtype=self.mask.dtype, device=self.device)

    @property
    def device(self) -> torch.device:
        return self.mask.device

    def num_params(self) -> int:
        return sum(p.numel() for p in self.parameters())


class DiffusionDrafter:
    """Proposes a chain of `length` tokens from one pass of `draft`, over what `target`, the one given to `speculate`,
    thought in its passes so far.

    In a FallbackDrafter it stays exact, and guesses worse: what was said of others' proposals it doesn't hear rightly.
    A draft guesses best in blocks as long as those it was trained on. After a prompt of one token the context is empty.
    Raises ValueError for a length below 1, and for a draft of another width or with sources that the target lacks.
    """

    def __init__(self, target: Listening, draft: DiffusionDraft, length: int = 5, sampling: Sampling | None = None):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        width, sources, layers = draft.config.n_embd, draft.config.sources, target.config.n_layer
        if width != target.config.n_embd:
            raise ValueError(f"a draft of width {width} doesn't fit a target of width {target.config.n_embd}")
        if max(sources) > layers:
            raise ValueError(f"a draft that reads after layers {sources} doesn't fit a target of {layers} layers")
        self.target, self.draft, self.length, self.own_sampling = target, draft, length, sampling
        self.max_nodes = length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.target.check_heard(prompt)
        self.sampling, self.last = self.own_sampling or sampling, prompt[-1]
        self.cache = self.draft.new_cache(self.target.config.context)
        if len(prompt) > 1:                                           # the loop has just read all but the last token
            self.heard = self.draft.features(self.target.streams)     # (1, T, S C): committed, not yet in the cache
        else:
            self.heard = self.draft.fuse.weight.new_empty(1, 0, self.draft.fuse.in_features)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        context, length = self.read(), min(room, self.length)
        if length < 1:
            return TokenTree()
        positions = self.cache.length + torch.arange(length + 1, device=self.draft.device)     # the anchor's, and on
        rows = self.draft.block(self.target.model, as_batch([self.last], self.target), positions[None])
        logits = self.target.unembed(self.draft(rows, context)[0, 1:])                         # (length, V)
        draft_probs = self.sampling.probs(logits).cpu()
        return TokenTree.chain([dice.draw(q) for q in draft_probs], list(draft_probs))

    def read(self) -> Context:
        """Bring what was heard into the cache -> the context of all committed tokens but the last."""
        new, past = self.draft.context(self.heard), self.cache.length
        context = [self.cache.write(layer, past, *rows) for layer, rows in enumerate(new)]
        self.cache.advance(self.heard.shape[1])
        self.heard = self.heard[:, :0]                                # read once, however often it is asked to propose
        return context

    def commit(self, verdict: Verdict) -> None:
        kept = [0] + [node + 1 for node in verdict.path]              # row 0 of the target's pass was the anchor
        self.heard, self.last = self.draft.features(self.target.streams)[:, kept], verdict.token

    def cache_length(self) -> int:
        return self.cache.length


def load_diffusion_draft(path: str | Path, *, dtype: torch.dtype = torch.float32,
                         device: torch.device | str = "cpu") -> DiffusionDraft:
    """Read a draft saved by `save_model`. Raises ValueError, naming the file, if it is missing, damaged or foreign."""
    def build(config: dict) -> DiffusionDraft:
        return DiffusionDraft(DiffusionConfig(**config | {"sources": tuple(config["sources"])}))

    return load_part(path, build, "diffusion draft", dtype=dtype, device=device)
