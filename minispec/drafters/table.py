"""A drafter with a table for a model: the next token's law depends on the last token only. For proofs and lessons."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import ROOT, SAMPLED, TokenTree, uniform_parents
from .lm_tree import pick


class TableDrafter:
    """Proposes from table (V, V), rows of probabilities, row = last token: a chain of `length` tokens, or a tree.

    branching: children of every node, depth by depth; (1,) * length by default. With replacement one child a draw, so
               that siblings may hold the same token; without, fewer children where q has no more tokens.
    origin:    how children are picked from a row (see decoding/tree.py); "chosen" takes the likeliest.
    Raises ValueError for a length below 1, and for rows that are no distributions.
    """

    def __init__(self, table: Tensor, length: int = 2, *, branching: Sequence[int] | None = None,
                 origin: str = SAMPLED):
        sums = table.double().sum(-1, keepdim=True)                                # (V, 1)
        if bool((table < 0).any()) or not torch.allclose(sums, torch.ones_like(sums)):
            raise ValueError(f"rows of the table must be probabilities that sum to 1, got {table.tolist()}")
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        self.table = table.double() / sums                   # float32 rows miss 1 by 1e-8: enough to bias a rule
        self.origin = origin
        self.branching = (1,) * length if branching is None else tuple(branching)
        self.max_nodes = len(uniform_parents(self.branching))

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.last = prompt[-1]

    def propose(self, dice: Dice, room: int) -> TokenTree:
        tokens, parents, draft_probs, level = [], [], {}, [ROOT]
        for count in self.branching[:room]:
            start = len(tokens)
            for node in level:
                q = self.table[self.last if node == ROOT else tokens[node]].clone()      # (V,): rules may write to it
                draft_probs[node] = q
                drawn = self.pick(q, count, dice)
                tokens += drawn
                parents += [node] * len(drawn)
            level = range(start, len(tokens))
        return TokenTree(tuple(tokens), tuple(parents), draft_probs, self.origin)

    def pick(self, q: Tensor, count: int, dice: Dice) -> list[int]:
        """Tokens for the children of one node, in order. q: (V,)."""
        return pick(q, count, self.origin, dice)

    def commit(self, verdict: Verdict) -> None:
        self.last = verdict.token

    def cache_length(self) -> None:
        return None
