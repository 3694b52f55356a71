"""The early-exit drafter: the target's own lower layers propose a chain (LayerSkip, 2404.16710; Kangaroo, 2404.18911).

It has no model and no cache of its own: it drafts in its target's, which continues from there (shared_backbone.py). So
nothing lags behind and nothing is rolled back here. A model exits early well only if it was trained to
(training/early_exit.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree
from ..model.shared_backbone import SharedBackbone


class EarlyExitDrafter:
    """Proposes `length` tokens from the exit of `backbone`, which must be the target given to `speculate`.

    sampling: default: the target's own. Raises ValueError for a length below 1, and at the start of a generation that
    has another target.
    """

    def __init__(self, backbone: SharedBackbone, length: int = 3, sampling: Sampling | None = None):
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"draft length must be a whole number >= 1, got {length!r}")
        self.backbone, self.length, self.own_sampling = backbone, length, sampling
        self.max_nodes = length

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.sampling = self.own_sampling or sampling
        self.cache, self.last = self.backbone.cache, prompt[-1]                      # the loop has just filled it,
        self.backbone.cache = None                                                   # for this generation alone
        if self.cache is None or self.cache.length != len(prompt) - 1:
            raise ValueError("an early-exit drafter drafts in its target's cache: its backbone must be the target")

    def propose(self, dice: Dice, room: int) -> TokenTree:
        tokens, draft_probs, feed = [], [], self.last
        self.backbone.begin(self.cache)
        for _ in range(min(room, self.length)):
            q = self.sampling.probs(self.backbone.draft(feed)).cpu()                 # (V,)
            feed = dice.draw(q)
            tokens.append(feed)
            draft_probs.append(q)
        return TokenTree.chain(tokens, draft_probs)

    def commit(self, verdict: Verdict) -> None:
        self.last = verdict.token

    def cache_length(self) -> None:
        return None
