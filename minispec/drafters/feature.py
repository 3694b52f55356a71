"""The feature drafter: one small layer carries the target's own hidden state on (EAGLE, 2401.15077, section 3.1).

A target pass leaves a *feature* at every position it read: h_t, the residual stream after the last layer, from which
its head makes the law of x_{t+1}. A draft that continues features starts from all that the target knew, and needs far
less model of its own than one that starts from tokens. What h_t cannot know is which token was drawn from that law, so
the token is read beside it. Row t of the draft is

    fc [embed(x_{t+1}) ; h_t]  ->  one layer  ->  h'_{t+1}, a guess at h_{t+1}  ->  unembed  ->  q of x_{t+2}

Embeddings and head are the target's, so only fc and the layer are learned. To draft on, the guess stands in for the
feature that isn't known yet. With x0 .. x3 committed:

    row              0       1       2    |    3'        4'
    reads         x1 h0   x2 h1   x3 h2   |  d4 h'3    d5 h'4         d4, d5, d6: the proposal, one pass a token
    draws                            d4   |    d5        d6

The primed rows were computed from guesses. They leave the cache when the proposal has been judged, whether accepted or
not: verification brings the true features, and the next proposal's first pass reads those, one row for each token that
was committed.

Both inputs are normalised first, as in EAGLE-3 (2503.01840): a feature is far larger than an embedding, which would
drown beside it. Left out: EAGLE-3's features of several layers, EAGLE's trees, and its smaller vocabulary.
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
from ..model.gpt import Block, GPTConfig
from ..model.listening import Listening
from ..model.pair import load_part


@dataclass(frozen=True)
class FeatureConfig:
    n_head: int                  # H
    n_embd: int                  # C, the target's


class FeatureDraft(nn.Module):
    """fc and one layer. `h` holds both, as a GPT's `h` its layers."""

    def __init__(self, config: FeatureConfig):
        super().__init__()
        self.config = config
        C, sizes = config.n_embd, GPTConfig(n_layer=1, n_head=config.n_head, n_embd=config.n_embd)
        self.h = nn.ModuleList([nn.Linear(2 * C, C), Block(sizes)])

    def forward(self, embedded: Tensor, features: Tensor, cache: KVCache | None = None,
                mask: Tensor | None = None) -> Tensor:
        """One pass over T new rows: embedded (B, T, C), the target's vectors of the tokens x_{t+1}; features (B, T, C),
        h_t -> guesses at h_{t+1}, (B, T, C), for the target's `unembed`.

        cache: earlier rows; the new ones are appended. mask: (T, S) bool, default causal.
        """
        fc, layer = self.h
        T, at = embedded.shape[1], cache.length if cache is not None else 0
        if mask is None and T > 1:
            mask = torch.ones(T, at + T, dtype=torch.bool, device=self.device).tril(at)            # (T, S)
        C = (self.config.n_embd,)
        x = fc(torch.cat([F.layer_norm(embedded, C), F.layer_norm(features, C)], dim=-1))          # (B, T, C)
        x = layer(x, 0, cache, at, mask)                                                           # (B, T, C)
        if cache is not None:
            cache.advance(T)
        return x

    def new_cache(self, capacity: int) -> KVCache:
        c, weight = self.config, self.h[0].weight
        return KVCache(1, c.n_head, c.n_embd // c.n_head, capacity, dtype=weight.dtype, device=weight.device)

    @property
    def device(self) -> torch.device:
        return self.h[0].weight.device

    def num_params(self) -> int:
        return sum(p.numel() for p in self.parameters())


class FeatureDrafter:
    """Proposes a chain of `length` tokens from `draft` and the features of `target`, the one given to `speculate`.

    Between rounds its cache holds rows with true features only; those of the latest verification are yet to be read.
    A prompt of one token leaves no feature: the first round then proposes nothing. It hears the verification of its
    own proposals only: in a FallbackDrafter it stays exact, and guesses worse. Raises ValueError for a length below 1,
    or for a draft of another width than the target's.
    """

    def __init__(self, target: Listening, draft: FeatureDraft, length: int = 5, sampling: Sampling | None = None):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        if draft.config.n_embd != target.config.n_embd:
            raise ValueError(f"a feature draft of width {draft.config.n_embd} doesn't fit a target of width "
                             f"{target.config.n_embd}")
        self.target, self.draft, self.length, self.own_sampling = target, draft, length, sampling
        self.max_nodes = length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.target.check_heard(prompt)
        self.sampling = self.own_sampling or sampling
        self.ids = list(prompt)                          # committed tokens
        self.proposed: tuple[int, ...] = ()
        self.cache = self.draft.new_cache(self.target.config.context)
        # true features that the cache has yet to read, (1, T, C); the target has just read all of the prompt but one
        self.unread = self.target.latest if len(prompt) > 1 else None
        if len(prompt) > 2:                              # the last row waits: its guess starts the first proposal
            self.draft(self.embed(self.ids[1:-1]), self.unread[:, :-1], self.cache)
            self.unread = self.unread[:, -1:]

    def propose(self, dice: Dice, room: int) -> TokenTree:
        if self.unread is None:
            return TokenTree()
        tokens, draft_probs = [], []
        feed, features = self.ids[self.cache.length + 1:], self.unread           # row t reads x_{t+1} and h_t
        for _ in range(min(room, self.length)):
            features = self.draft(self.embed(feed), features, self.cache)[:, -1:]                  # (1, 1, C)
            q = self.sampling.probs(self.target.unembed(features)[0, 0]).cpu()                     # (V,)
            tokens.append(dice.draw(q))
            draft_probs.append(q)
            feed = tokens[-1:]
        self.proposed = tuple(tokens)
        return TokenTree.chain(tokens, draft_probs)

    def commit(self, verdict: Verdict) -> None:
        self.cache.rollback(min(self.cache.length, len(self.ids) - 1))           # drop what was computed from guesses
        self.ids += [*(self.proposed[node] for node in verdict.path), verdict.token]
        heard = self.target.latest[:, [0, *(node + 1 for node in verdict.path)]]                   # row 0 was the root
        known = heard if self.unread is None else torch.cat([self.unread, heard], dim=1)           # (1, T, C)
        self.unread, self.proposed = known[:, -self.lag:], ()

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """The target's vectors of the next rows' tokens, (1, T, C). Row t holds token t + 1, at its own position."""
        first = self.cache.length + 1
        positions = torch.arange(first, first + len(tokens), device=self.target.device)            # (T,)
        return self.target.model.embed(as_batch(tokens, self.target), positions)

    def cache_length(self) -> int:
        return self.cache.length

    @property
    def lag(self) -> int:
        """Rows whose feature is known and that the cache has yet to read: as many as the latest rounds committed."""
        return len(self.ids) - 1 - self.cache.length


def load_feature_draft(path: str | Path, *, dtype: torch.dtype = torch.float32,
                       device: torch.device | str = "cpu") -> FeatureDraft:
    """Read what `save_model` wrote. Raises ValueError, naming the file, if it is missing, damaged or foreign."""
    return load_part(path, lambda config: FeatureDraft(FeatureConfig(**config)), "feature draft", dtype=dtype,
                     device=device)
