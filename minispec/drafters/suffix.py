"""Suffix matching: propose what followed the *longest* match of the text's end, and more of it the longer the match.

Prompt lookup (ngram.py) looks a few tokens back. Agents repeat whole files, diffs and calls, and there a match of
fifty tokens is a far better sign than one of four, so the draft length grows with it (SuffixDecoding, 2411.04975).
Matches are sought in the generation itself, and in earlier texts if some are given.

The longest match of any length is kept up to date token by token in a suffix automaton (Blumer et al. 1985; for
drafting, SAM Decoding 2411.10666): a graph whose walks from the start spell exactly the substrings of what it read,
with at most two states for each token.

Proposals have no distribution: trees are "chosen", and rules.Match is exact for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import CHOSEN, TokenTree

BORDER = -1                                              # stands between earlier texts: no token, so nothing matches it


class Match(NamedTuple):
    """The last `length` tokens stood before, the latest time ending before position `end`."""
    length: int
    end: int


class SuffixAutomaton:
    """All substrings of the tokens read so far. A state stands for substrings that end at the same places.

    after[s] {token: state}, longest[s]: length of its longest substring, link[s]: the state of the longest suffix of
    those substrings that also ends elsewhere, end[s]: where the latest occurrence ends.
    """

    def __init__(self):
        self.after: list[dict[int, int]] = [{}]
        self.longest, self.link, self.end = [0], [-1], [0]
        self.last, self.size = 0, 0                      # the state of the whole text, and its length

    def read(self, token: int) -> Match:
        """Append a token -> the longest suffix of the text that stood before, and where."""
        self.size += 1
        new, state = self._state({}, self.size, 0), self.last
        while state >= 0 and token not in self.after[state]:
            self.after[state][token] = new
            state = self.link[state]
        if state >= 0:
            self.link[new] = self._only(state, token)
        self.last, found = new, self.link[new]
        match = Match(self.longest[found], self.end[found])
        while found > 0:                                 # all suffixes of the text end here, too
            self.end[found] = self.size
            found = self.link[found]
        return match

    def _only(self, state: int, token: int) -> int:
        """The state of (longest substring of `state`) + token: split off, if longer ones share its state."""
        whole = self.after[state][token]
        if self.longest[whole] == self.longest[state] + 1:
            return whole
        part = self._state(dict(self.after[whole]), self.longest[state] + 1, self.link[whole])
        self.end[part], self.link[whole] = self.end[whole], part
        while state >= 0 and self.after[state].get(token) == whole:
            self.after[state][token] = part
            state = self.link[state]
        return part

    def _state(self, after: dict[int, int], longest: int, link: int) -> int:
        self.after.append(after)
        self.longest.append(longest)
        self.link.append(link)
        self.end.append(self.size)
        return len(self.after) - 1

    def follow(self, state: int, length: int, token: int) -> tuple[int, int]:
        """For another text: its longest suffix found here was `length` tokens of `state`. The same after one more."""
        while state and token not in self.after[state]:
            state = self.link[state]
            length = self.longest[state]
        return (self.after[state][token], length + 1) if token in self.after[state] else (0, 0)


class SuffixDrafter:
    """Proposes growth * (length of the match) tokens, at most `length`, and none where fewer than `shortest` match.

    texts: earlier texts to look in as well, each a sequence of token ids; read once, here. The longer match wins; of
           two equally long ones the generation's own.
    Raises ValueError for a length or `shortest` below 1, and for a growth that isn't positive.
    """

    def __init__(self, length: int = 16, growth: float = 2.0, shortest: int = 1, texts: Sequence[Sequence[int]] = ()):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        if not (math.isfinite(growth) and growth > 0):
            raise ValueError(f"growth must be a number > 0 (tokens proposed for each matched one), got {growth!r}")
        if not isinstance(shortest, int) or shortest < 1:
            raise ValueError(f"shortest must be a whole number >= 1, got {shortest!r}")
        self.length, self.growth, self.shortest = length, growth, shortest
        self.max_nodes = length
        self.stored = tuple(token for text in texts for token in (*text, BORDER))
        self.store = SuffixAutomaton()
        for token in self.stored:
            self.store.read(token)

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.ids: list[int] = []
        self.own, self.place = SuffixAutomaton(), (0, 0)             # place: state and match length in the store
        self._read(prompt)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        own, stored = self.match, Match(self.place[1], self.store.end[self.place[0]])
        source, found = (self.stored, stored) if stored.length > own.length else (self.ids, own)
        count = min(room, self.length, math.ceil(self.growth * found.length))
        if found.length < self.shortest:
            count = 0
        self.proposed = continuation(source, found.end, count)
        return TokenTree.chain(self.proposed, origin=CHOSEN)

    def commit(self, verdict: Verdict) -> None:
        accepted, self.proposed = [self.proposed[node] for node in verdict.path], []
        self._read([*accepted, verdict.token])

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.ids.append(token)
            self.match = self.own.read(token)
            self.place = self.store.follow(*self.place, token)

    def cache_length(self) -> None:
        return None


def continuation(source: Sequence[int], start: int, count: int) -> list[int]:
    """`count` tokens of source from `start` on; fewer at a text's border. At the end of the source the copy runs on
    into itself: after "abcab" with start 2, "cab", "cab", ...
    """
    tokens = [source[start + k % (len(source) - start)] for k in range(count)]
    return tokens[:tokens.index(BORDER)] if BORDER in tokens else tokens
