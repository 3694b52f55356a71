"""Training heads on a frozen target (Medusa-1, 2401.10774, section 2.2.1).

Head k, at text position i, learns the target's own law of the token k places after the next one, which the target
gives at position i + k having read all up to there. Nearer places count more: weight^k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.heads import Heads, HeadsConfig
from ..model.gpt import GPT
from . import losses
from .data import cache_dir
from .distill import DRAFT, Distillation, training_data
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class HeadsDistillation(Distillation):
    heads: int = 4
    weight: float = 0.8


HEADS = HeadsDistillation("heads", None, DRAFT.weights, Schedule(steps=400, short_until=0.85), loss="kl")


def distill_heads(recipe: HeadsDistillation, target: GPT, tokenizer: Tokenizer,
                  report: Callable[[str], None] = print) -> Heads:
    """Train the recipe's heads on `target`, from scratch or on from their checkpoint in the cache folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        heads = Heads(HeadsConfig(recipe.heads, target.config.n_embd)).to(target.device)
    fit(heads, lambda batch, progress: heads_loss(heads, target, batch[:, :-1], recipe, progress),
        training_data(recipe, target, tokenizer, report), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return heads


def heads_loss(heads: Heads, target: GPT, inputs: Tensor, recipe: HeadsDistillation, progress: float) -> Tensor:
    """Weighted mean loss over heads and positions. inputs (B, T) -> ()."""
    with torch.no_grad():
        hidden = target.hidden(inputs)                                                         # (B, T, C)
        target_logits = target.unembed(hidden)                                                 # (B, T, V)
    mix, total = min(1.0, progress / recipe.anneal_until), 0.0
    weights = [recipe.weight ** k for k in range(1, recipe.heads + 1)]
    for k, weight in enumerate(weights, start=1):
        logits = target.unembed(heads.ahead(hidden[:, :-k], k))                                # (B, T - k, V)
        total = total + weight * losses.DISTILL[recipe.loss](logits, target_logits[:, k:], mix).mean()
    return total / sum(weights)
