"""The drafter protocol: who proposes.

A drafter owns its state: its cache, its rollback, whatever it learned so far. The loop tells it what was committed and
never looks inside. For one generation the calls are

    start(prompt, sampling)            forget everything, read the prompt
    propose(dice, room) -> TokenTree   at most `room` tokens deep; an empty tree is always allowed
    commit(verdict)                    the proposal just made was judged: keep verdict.path, append verdict.token

Exactness asks two things of a drafter: `draft_probs` are the very distributions its dice drew from, and whether a
token is proposed may depend on the tokens before it but not on its own value (no peeking, METHODS: non-anticipating).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .dice import Dice
from .sampling import Sampling
from .tree import TokenTree


class Verdict(NamedTuple):
    """What a rule decided: the accepted nodes from the root down, and the target's own token after them."""
    path: list[int]
    token: int
    bonus: bool             # True: nothing was rejected, `token` came free; False: `token` corrects a rejection


class Drafter(Protocol):
    max_nodes: int          # the most nodes one proposal can have: caches are allocated for it

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None: ...

    def propose(self, dice: Dice, room: int) -> TokenTree: ...

    def commit(self, verdict: Verdict) -> None: ...

    def cache_length(self) -> int | None:
        """Positions in the drafter's own cache, None if it has none (for the trace)."""
        ...
