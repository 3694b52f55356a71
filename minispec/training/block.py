"""Training a block drafter: many blocks of masks beside one text, in one pass (PARD, 2504.18583, section 3).

A row of the training pass is (anchor a, depth k). Depth 0 is the text itself: token a, predicting a + 1. At depth k the
input is the mask token, standing at position a + k and predicting token a + k + 1 from the text up to a alone:

    (a, k) may attend to    (a', 0) for a' <= a      the text up to its anchor
                            (a, k') for 1 <= k' <= k    the masks of its own block

which is what the drafter's pass looks like when x_a is the last committed token. All blocks share the text's rows, so
they cost little; and because most of what is learned at depth k was learned at depth k - 1, deeper blocks are dropped
at random (conditional drop): a share `keep` survives each depth, always the first k masks of a block with the k-th, so
that no block has a hole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.block import with_mask_token
from ..model.gpt import GPT
from . import losses
from .data import cache_dir
from .distill import DRAFT, Distillation, training_data
from .train import Schedule, fast_dtype, fit


class Packing(NamedTuple):
    """Which block row is what: anchor (R,), depth (R,); the first rows are the text."""
    anchor: Tensor
    depth: Tensor

    @property
    def positions(self) -> Tensor:
        """(R,) position ids; also the text position whose next token the row predicts."""
        return self.anchor + self.depth

    @property
    def mask(self) -> Tensor:
        """(R, R) bool: which rows each row may attend to."""
        of_text = (self.depth == 0)[None, :] & (self.anchor[None, :] <= self.anchor[:, None])
        of_block = ((self.depth > 0)[None, :] & (self.anchor[None, :] == self.anchor[:, None])
                    & (self.depth[None, :] <= self.depth[:, None]))
        return of_text | of_block


def pack(length: int, depths: int, rng: np.random.Generator, keep: float = 0.7, least: float = 0.2) -> Packing:
    """A text of `length` tokens and its blocks: the anchors of depth k are a random share max(keep^k, least) of all,
    drawn from those of depth k - 1, and only where a + k is still inside the text.

    Example: pack(4, 1, rng) is the text alone, anchors 0 1 2 3 at depth 0.
    """
    anchors = [np.arange(length)]
    for k in range(1, depths):
        inside = anchors[-1][anchors[-1] + k < length]
        count = min(len(inside), max(1, round(length * max(keep ** k, least))))
        anchors.append(np.sort(rng.choice(inside, size=count, replace=False)))
    depth = np.repeat(np.arange(depths), [len(a) for a in anchors])
    return Packing(torch.from_numpy(np.concatenate(anchors)), torch.from_numpy(depth))


@dataclass(frozen=True)
class BlockDistillation(Distillation):
    """As a distillation, and how deep its blocks go: the longest proposal that it is trained for."""
    depths: int = 6


BLOCK = BlockDistillation("block", None, DRAFT.weights,
                          Schedule(steps=600, short_until=0.85, learning_rate=2e-3))


def distill_block(recipe: BlockDistillation, draft: GPT, target: GPT, tokenizer: Tokenizer,
                  report: Callable[[str], None] = print) -> GPT:
    """Teach `draft`, a trained chain draft, to propose blocks against `target`; returns a model with the mask token."""
    block = with_mask_token(draft).requires_grad_(True)

    def loss_of(batch: Tensor, progress: float) -> Tensor:
        return block_loss(block, target, batch[:, :-1], recipe, progress)

    fit(block, loss_of, training_data(recipe, target, tokenizer, report), recipe.schedule,
        cache_dir() / f"{recipe.name}.pt", seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return block


def block_loss(block: GPT, target: GPT, inputs: Tensor, recipe: BlockDistillation, progress: float) -> Tensor:
    """Mean distillation loss over all rows of a packed pass. inputs (B, T) -> ()."""
    B, T = inputs.shape
    packing = pack(T, recipe.depths, np.random.default_rng([recipe.seed, round(progress * 1e9)]))
    positions = packing.positions.to(inputs.device)                                            # (R,)
    masks = inputs.new_full((B, len(positions) - T), block.config.vocab_size - 1)
    with torch.no_grad():
        target_logits = target(inputs)[:, positions]                                           # (B, R, V)
    logits = block(torch.cat([inputs, masks], dim=1), positions=positions, mask=packing.mask.to(inputs.device))
    mix = min(1.0, progress / recipe.anneal_until)
    return losses.DISTILL[recipe.loss](logits[..., :-1], target_logits, mix).mean()
