"""The language-model drafter: a small model proposes a chain, one pass a token.

Its cache lags behind the committed tokens by design. With n committed, a round that rejected something leaves n - 1
positions, as in the target. After a full acceptance it leaves n - 2: the last proposed token was sampled but never fed.
The next proposal therefore starts by feeding what is missing, one token or two. Forgetting the second is the classic
off-by-one of speculative decoding: nothing crashes, the output law stays right, only the acceptance falls.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.request import as_batch
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree
from ..model.gpt import GPT


class LMDrafter:
    """Proposes `length` tokens sampled from `draft` under `sampling` (default: the target's own).

    Raises ValueError for a length below 1. A draft whose context is shorter than the target's stops proposing there.
    """

    spare = 0                                            # cache rows beyond the context: none for a chain

    def __init__(self, draft: GPT, length: int = 5, sampling: Sampling | None = None):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        self.draft, self.length, self.own_sampling = draft, length, sampling
        self.max_nodes = length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.sampling = self.own_sampling or sampling
        self.ids = list(prompt)                          # committed tokens
        self.proposed: tuple[int, ...] = ()
        self.cache = self.draft.new_cache(self.draft.config.context + self.spare)
        known = self.ids[:-1][:self.draft.config.context]
        if known:
            self.draft(as_batch(known, self.draft), self.cache)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        tokens, draft_probs = [], []
        feed = self.ids[self.cache.length:]              # one token, or two after a full acceptance
        for _ in range(self.reach(room)):
            logits = self.draft(as_batch(feed, self.draft), self.cache)              # (1, T, V)
            q = self.sampling.probs(logits[0, -1]).cpu()                             # (V,)
            tokens.append(dice.draw(q))
            draft_probs.append(q)
            if not self.wants_more(tokens[-1], q, logits[0, -1]):
                break
            feed = tokens[-1:]
        self.proposed = tuple(tokens)
        return TokenTree.chain(tokens, draft_probs)

    def commit(self, verdict: Verdict) -> None:
        accepted = [self.proposed[node] for node in verdict.path]
        right = len(self.ids) + len(accepted)            # cache positions whose tokens turned out right
        self.cache.rollback(min(self.cache.length, right))
        self.ids, self.proposed = [*self.ids, *accepted, verdict.token], ()

    def reach(self, room: int) -> int:
        """How deep the next proposal may go: its last token is never fed, so it may stand just past the context."""
        return min(room, self.length, self.draft.config.context - len(self.ids) + 1)

    def wants_more(self, token: int, q: Tensor, logits: Tensor) -> bool:
        """Draft on after this token, drawn from q (V,) and already proposed? See adaptive.py."""
        return True

    def cache_length(self) -> int:
        return self.cache.length

    @property
    def lag(self) -> int:
        """Committed tokens, the last one aside, that the cache has yet to read: 0, or 1 after a full acceptance; one
        more for every round without a proposal (no room was left, or the draft's context is full)."""
        return len(self.ids) - 1 - self.cache.length
