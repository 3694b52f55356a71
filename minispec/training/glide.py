"""Training a draft that reads its target (GLIDE, 2402.02082, section 3.1): hide what would not be there yet.

In training the target has read the whole text; in use it lags behind the draft. So the text is cut into blocks, and a
row in the block that starts at b sees the target's first b positions, which is what the last committed token at b and
the rows drafted after it will see:

    block of 3     row    0 1 2 3 4 5 6
                   sees   0 0 0 3 3 3 6     target positions

Where the cuts fall is drawn anew for each batch, so that every row learns to do with old keys and with fresh ones.
In use blocks are as long as what was accepted, yet a row's view is of the same kind: it ends 0 to block - 1 positions
short of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.glide import GlideConfig, GlideDraft, check_reads
from ..model.gpt import GPT
from . import losses
from .data import cache_dir
from .distill import DRAFT, Distillation, training_data
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class GlideDistillation(Distillation):
    """As a distillation, and the length of its blocks: that of the proposals it is trained for."""
    block: int = 5


GLIDE = GlideDistillation("glide", GlideConfig(), DRAFT.weights, Schedule(steps=300, short_until=0.85))
# what reading the target is worth: about as many parameters without it (1.11 M beside 1.08 M), trained alike
CONTROL = replace(GLIDE, name="glide-control", config=GlideConfig(n_embd=216, reads_target=False))


def block_views(length: int, block: int, offset: int) -> Tensor:
    """(T,): how many target positions each row sees; the first block ends `offset` rows early.

    Example: block_views(7, 3, 1) == [0, 0, 2, 2, 2, 5, 5].
    """
    positions = torch.arange(length)
    return (positions - (positions + offset) % block).clamp(min=0)


def distill_glide(recipe: GlideDistillation, target: GPT, tokenizer: Tokenizer,
                  report: Callable[[str], None] = print) -> GlideDraft:
    """Train the recipe's draft against `target`, from scratch or on from its checkpoint in the cache folder.

    Raises ValueError if the recipe's draft reads keys of other sizes than the target's.
    """
    check_reads(recipe.config, target.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        draft = GlideDraft(recipe.config).to(target.device)
    fit(draft, lambda batch, progress: glide_loss(draft, target, batch[:, :-1], recipe, progress),
        training_data(recipe, target, tokenizer, report), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return draft


def glide_loss(draft: GlideDraft, target: GPT, inputs: Tensor, recipe: GlideDistillation, progress: float) -> Tensor:
    """Mean distillation loss over all rows, cut into blocks somewhere. inputs (B, T) -> ()."""
    B, T = inputs.shape
    offset = np.random.default_rng([recipe.seed, round(progress * 1e9)]).integers(recipe.block)
    views = block_views(T, recipe.block, int(offset)).to(inputs.device)                        # (T,)
    with torch.no_grad():
        cache = target.new_cache(T, batch=B)
        target_logits = target(inputs, cache)                                                  # (B, T, V)
    mix = min(1.0, progress / recipe.anneal_until)
    return losses.DISTILL[recipe.loss](draft(inputs, target_cache=cache, views=views), target_logits, mix).mean()
