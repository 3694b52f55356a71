"""Heads: the target guesses several tokens ahead by itself (Medusa, 2401.10774).

After each pass the target holds a hidden state h of the last token that was judged right; its own head makes from it
the law of the next token, which is the one just committed. Further heads, trained for it, guess from the same h what
comes after:

    head_k(h) = unembed(h + silu(W_k h))       the law of the token k places after the committed one, k = 1 .. K

All guesses come from one small product, without a draft model and without a cache. No guess sees another, so later
places are guessed less well; a tree of candidates makes up for some of it. The committed token itself is not seen
either: it is h's own guess, or the correction of it.
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
from ..decoding.sampling import Sampling
from ..decoding.tree import CHOSEN, ROOT, SAMPLED, TokenTree, uniform_parents
from ..model.listening import Listening
from ..model.pair import load_part
from .lm_tree import pick


@dataclass(frozen=True)
class HeadsConfig:
    heads: int                   # K
    n_embd: int                  # C, the target's


class Heads(nn.Module):
    """K heads over one hidden state. Zero at first: each then repeats the target's own guess."""

    def __init__(self, config: HeadsConfig):
        super().__init__()
        self.config = config
        self.h = nn.ModuleList(nn.Linear(config.n_embd, config.n_embd, bias=False) for _ in range(config.heads))
        for head in self.h:
            nn.init.zeros_(head.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """The target's residual stream (..., C) -> that of K tokens further on, (..., K, C), for its `unembed`."""
        return torch.stack([self.ahead(hidden, k) for k in range(1, len(self.h) + 1)], dim=-2)

    def ahead(self, hidden: Tensor, k: int) -> Tensor:
        """The k-th of them alone, k = 1 .. K. (..., C) -> (..., C)."""
        return hidden + F.silu(self.h[k - 1](hidden))

    @property
    def device(self) -> torch.device:
        return self.h[0].weight.device

    def num_params(self) -> int:
        return sum(p.numel() for p in self.parameters())


class HeadsDrafter:
    """Proposes from `heads` on the hidden states that `target`, the one given to `speculate`, had in its latest pass.

    branching: children of every node, depth by depth, at most as deep as there are heads; default: a chain.
    origin:    how children are picked from a head's law (see TreeDrafter); "chosen" ranks by temperature 1.
    A prompt of one token leaves no hidden state: the first round then proposes nothing. In a FallbackDrafter it stays
    exact, and guesses worse. Raises ValueError for no tree, for one deeper than the heads, for an unknown origin, and
    for heads of another width than the target's.
    """

    def __init__(self, target: Listening, heads: Heads, branching: Sequence[int] | None = None, *,
                 origin: str = SAMPLED, sampling: Sampling | None = None):
        self.branching = (1,) * heads.config.heads if branching is None else tuple(branching)
        if len(self.branching) > heads.config.heads:
            raise ValueError(f"a tree {len(self.branching)} deep needs as many heads, there are {heads.config.heads}")
        if heads.config.n_embd != target.config.n_embd:
            raise ValueError(f"heads of width {heads.config.n_embd} don't fit a target of width {target.config.n_embd}")
        self.target, self.heads, self.origin = target, heads, origin
        self.own_sampling = sampling or (Sampling() if origin == CHOSEN else None)
        parents = uniform_parents(self.branching)
        if not parents:
            raise ValueError("a tree needs at least one node: decode without a drafter instead")
        self.max_nodes = len(TokenTree((0,) * len(parents), parents, origin=origin))       # refuses a bad origin

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.target.check_heard(prompt)
        self.sampling = self.own_sampling or sampling
        self.hidden = self.target.latest[0, -1] if len(prompt) > 1 else None           # (C,): the loop has just read it

    def propose(self, dice: Dice, room: int) -> TokenTree:
        depth = min(room, len(self.branching))
        if self.hidden is None or depth < 1:
            return TokenTree()
        laws = self.sampling.probs(self.target.unembed(self.heads(self.hidden))).cpu()       # (K, V)
        tokens, parents, draft_probs, level = [], [], {}, [ROOT]
        for q, count in zip(laws, self.branching[:depth]):
            start = len(tokens)
            for node in level:
                drawn = pick(q, count, self.origin, dice)
                draft_probs[node] = q
                tokens += drawn
                parents += [node] * len(drawn)
            level = range(start, len(tokens))
        return TokenTree(tuple(tokens), tuple(parents), draft_probs, self.origin)

    def commit(self, verdict: Verdict) -> None:
        row = verdict.path[-1] + 1 if verdict.path else 0                                    # row 0 was the root
        self.hidden = self.target.latest[0, row]

    def cache_length(self) -> None:
        return None


def load_heads(path: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Heads:
    """Read heads written by `save_model`. Raises ValueError, naming the file, if it is missing, damaged or foreign."""
    return load_part(path, lambda config: Heads(HeadsConfig(**config)), "heads", dtype=dtype, device=device)
