"""A drafter with a table for a model: the next token's law depends on the last token only. For proofs and lessons."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree


class TableDrafter:
    """Proposes a chain of `length` tokens from table (V, V), rows of probabilities: row = last token."""

    def __init__(self, table: Tensor, length: int = 2):
        self.table, self.length, self.max_nodes = table.double(), length, length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.last = prompt[-1]

    def propose(self, dice: Dice, room: int) -> TokenTree:
        tokens, draft_probs = [], []
        while len(tokens) < min(self.length, room):
            draft_probs.append(self.table[tokens[-1] if tokens else self.last])      # (V,)
            tokens.append(dice.draw(draft_probs[-1]))
        return TokenTree.chain(tokens, draft_probs)

    def commit(self, verdict: Verdict) -> None:
        self.last = verdict.token

    def cache_length(self) -> None:
        return None
