"""Training a block-diffusion draft: many blocks beside one text, in one pass (DFlash, 2602.06036).

A frozen target reads the text once and leaves its residual streams, which are the draft's context, and its logits,
which are the labels. The draft then runs the rows of A blocks, each at an anchor a drawn at random from the text:

    row (a, k), k = 0 .. γ    stands at position a + k; row (a, 0) is the anchor's token, the others are masks
    may attend to             the context at i < a: what the target had read when x_a was the last committed token
                              all rows of its own block, before and behind
    learns, k >= 1            the target's own law of the token at a + k, which the target gives at a + k - 1

Early places count more, since a late one matters only when all before it were accepted: weight exp(-(k - 1) / decay).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.diffusion import DiffusionConfig, DiffusionDraft
from ..model.gpt import GPT
from . import losses
from .data import cache_dir
from .distill import DRAFT, Distillation, training_data
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class DiffusionDistillation(Distillation):
    layers: int = 1                    # of the draft
    length: int = 6                    # γ: masks in a block, the length it will propose best
    anchors: float = 0.25              # blocks for each token of text
    decay: float = 4.0                 # places after which the weight has fallen to 1 / e


DIFFUSION = DiffusionDistillation("diffusion", None, DRAFT.weights,
                                  Schedule(steps=600, short_until=0.85, learning_rate=2e-3))


def distill_diffusion(recipe: DiffusionDistillation, target: GPT, tokenizer: Tokenizer,
                      report: Callable[[str], None] = print) -> DiffusionDraft:
    """Train a draft inside `target`, from scratch or on from its checkpoint in the cache folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        draft = DiffusionDraft(DiffusionConfig.fitting(target.config, recipe.layers)).to(target.device)
    fit(draft, lambda batch, progress: diffusion_loss(draft, target, batch[:, :-1], recipe, progress),
        training_data(recipe, target, tokenizer, report), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return draft


def diffusion_loss(draft: DiffusionDraft, target: GPT, inputs: Tensor, recipe: DiffusionDistillation,
                   progress: float) -> Tensor:
    """Weighted mean loss over places and blocks; the rows of a batch share their anchors. inputs (B, T) -> ()."""
    B, T = inputs.shape
    rng = np.random.default_rng([recipe.seed, round(progress * 1e9)])
    anchors = draw_anchors(T, recipe.length, recipe.anchors, rng).to(inputs.device)            # (A,)
    positions = anchors[:, None] + torch.arange(recipe.length + 1, device=inputs.device)       # (A, 1 + γ)
    streams: list[Tensor] = []
    with torch.no_grad():
        hidden = target.hidden(inputs, streams=streams)                                        # (B, T, C)
        target_logits = target.unembed(hidden[:, positions[:, :-1]])                           # (B, A, γ, V)
    rows = draft(draft.block(target, inputs[:, anchors], positions), draft.context(draft.features(streams)),
                 block_mask(anchors, recipe.length, T))                                        # (B, A (1 + γ), C)
    logits = target.unembed(rows.unflatten(1, positions.shape)[:, :, 1:])                      # (B, A, γ, V)
    mix = min(1.0, progress / recipe.anneal_until)
    by_place = losses.DISTILL[recipe.loss](logits, target_logits, mix).mean((0, 1))            # (γ,)
    weights = torch.exp(-torch.arange(recipe.length, device=inputs.device) / recipe.decay)     # (γ,)
    return (weights * by_place).sum() / weights.sum()


def draw_anchors(length: int, masks: int, share: float, rng: np.random.Generator) -> Tensor:
    """Anchors (A,), in order, of blocks that lie wholly inside a text of `length` tokens: A = share * length, or all
    that fit. Raises ValueError for a text that holds no block."""
    if length <= masks:
        raise ValueError(f"a block of an anchor and {masks} masks does not fit a text of {length} tokens")
    count = min(length - masks, max(1, round(share * length)))
    return torch.from_numpy(np.sort(rng.choice(length - masks, size=count, replace=False)))


def block_mask(anchors: Tensor, masks: int, length: int) -> Tensor:
    """What each block row may attend to: anchors (A,) -> (R, length + R) bool with R = A (1 + masks); text first."""
    anchor = anchors.repeat_interleave(1 + masks)                                              # (R,): of each row
    of_text = torch.arange(length, device=anchors.device)[None, :] < anchor[:, None]           # (R, length)
    of_block = anchor[None, :] == anchor[:, None]                                              # (R, R)
    return torch.cat([of_text, of_block], dim=1)
