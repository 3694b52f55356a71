"""Prompt lookup: propose what followed the last time these tokens stood here (Saxena 2023; no model, no cache).

Code, transcripts and summaries repeat themselves. The longest suffix of the committed tokens that occurred before is
looked up, the most recent occurrence wins, and the tokens after it are the proposal. It has no distribution, so its
trees are "chosen": rules.Match is exact for them, rejection sampling is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import CHOSEN, TokenTree


class NgramDrafter:
    """Proposes up to `length` tokens after the longest (<= `longest`), most recent match of the last tokens.

    Raises ValueError for a length, or a range of match sizes, below 1.
    """

    def __init__(self, length: int = 8, longest: int = 4, shortest: int = 1):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        if not 1 <= shortest <= longest:
            raise ValueError(f"match sizes must satisfy 1 <= shortest <= longest, got {shortest} and {longest}")
        self.length, self.longest, self.shortest = length, longest, shortest
        self.max_nodes = length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.ids: list[int] = []
        self.ends: dict[tuple[int, ...], int] = {}       # n-gram -> where its latest occurrence with a follower ends
        self._read(prompt)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        for size in range(min(self.longest, len(self.ids)), self.shortest - 1, -1):
            end = self.ends.get(tuple(self.ids[-size:]))
            if end is not None:
                self.proposed = self.ids[end:end + min(self.length, room)]
                return TokenTree.chain(self.proposed, origin=CHOSEN)
        self.proposed = []
        return TokenTree.chain([], origin=CHOSEN)

    def commit(self, verdict: Verdict) -> None:
        accepted, self.proposed = [self.proposed[node] for node in verdict.path], []
        self._read([*accepted, verdict.token])

    def _read(self, tokens: Sequence[int]) -> None:
        """Append tokens one by one; the n-grams that end before each are now followed by something."""
        for token in tokens:
            for size in range(self.shortest, min(self.longest, len(self.ids)) + 1):
                self.ends[tuple(self.ids[-size:])] = len(self.ids)
            self.ids.append(token)

    def cache_length(self) -> None:
        return None
