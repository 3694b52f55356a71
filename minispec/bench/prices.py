"""What a draft pass costs where the draft is no GPT: passes as the drafter makes them, for timing.measure_passes.

The first three return a maker of passes: (width, context) -> a pass over `width` rows after `context` others.
"""

from __future__ import annotations

import torch

from ..decoding.request import as_batch
from ..decoding.tree import TokenTree
from ..drafters.diffusion import DiffusionDraft
from ..drafters.feature import FeatureDraft
from ..drafters.glide import GlideDraft
from ..model.cache import KVCache
from ..model.listening import Listening
from ..model.shared_backbone import SharedBackbone
from .timing import Pass, PassMaker, Passes, measure_passes


def of_feature(target: Listening, draft: FeatureDraft) -> PassMaker:
    """A pass over rows of token and feature, and the target's head on the last of them."""
    def make(width: int, context: int) -> Pass:
        cache = draft.new_cache(context + width)
        rows = torch.zeros(1, max(context, width), target.config.n_embd, device=target.device,
                           dtype=target.model.wte.weight.dtype)                      # (1, T, C)
        draft(rows[:, :context], rows[:, :context], cache)

        def run() -> None:
            x = target.model.embed(as_batch([0] * width, target), torch.arange(context, context + width,
                                                                               device=target.device))
            target.unembed(draft(x, rows[:, :width], cache)[:, -1:])
            cache.rollback(context)

        return run

    return make


def of_diffusion(target: Listening, draft: DiffusionDraft) -> PassMaker:
    """A block of an anchor and width - 1 masks over a context with two new positions; the head on the masks."""
    def make(width: int, context: int) -> Pass:
        features = draft.fuse.weight.new_zeros(1, context, draft.fuse.in_features)   # (1, T, S C)
        old = draft.context(features)                                                # of each layer: keys, values
        positions = torch.arange(context, context + width, device=target.device)[None]

        def run() -> None:
            draft.context(features[:, :2])
            rows = draft.block(target.model, as_batch([0], target), positions)
            target.unembed(draft(rows, old)[0, 1:])

        return run

    return make


def of_glide(target: Listening, draft: GlideDraft) -> PassMaker:
    """A pass that also reads the target's cache."""
    def make(width: int, context: int) -> Pass:
        heard, cache = target.new_cache(context + 1), draft.new_cache(context + width)
        target(as_batch([0] * context, target), heard)
        draft(as_batch([0] * context, draft), cache, target_cache=heard)
        rows = as_batch([0] * width, draft)

        def run() -> None:
            draft(rows, cache, target_cache=heard)
            cache.rollback(context)

        return run

    return make


def of_early_exit(backbone: SharedBackbone) -> Passes:
    """Its passes, measured. A draft pass runs the lower layers and the head on one token. A pass that verifies k tokens
    finds the lower layers of the first k - 1 done. Unit: an ordinary one-token pass, in which nothing is.
    A draft pass over k tokens is k passes: each token waits for the one before."""
    def draft_pass(width: int, context: int) -> Pass:
        cache = _filled(backbone, context, width)

        def run() -> None:
            backbone.begin(cache)
            for _ in range(width):
                backbone.draft(0)

        return run

    def verify_pass(width: int, context: int) -> Pass:
        cache, chain = _filled(backbone, context, width), TokenTree.chain([0] * (width - 1))
        rows = as_batch([0] * width, backbone)
        where = dict(positions=chain.depths().to(backbone.device) + context, mask=chain.mask().to(backbone.device))
        backbone.begin(cache)
        for _ in range(width - 1):
            backbone.draft(0)
        drafted = backbone.drafted

        def run() -> None:
            backbone.drafted = drafted                                               # as if drafted again
            backbone(rows, cache, **where)
            cache.rollback(context)

        return run

    return measure_passes(backbone, draft_pass, target_pass=verify_pass)


def _filled(backbone: SharedBackbone, context: int, more: int) -> KVCache:
    cache = backbone.new_cache(context + more)
    backbone(as_batch([0] * context, backbone), cache)
    return cache
