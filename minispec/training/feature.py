"""Training a feature drafter on what it will read: its own guesses (EAGLE-3, 2503.01840; HASS, 2408.15766).

At the first drafted token all features are the target's; at the k-th, k - 1 of them are the draft's own guesses, which
it never met if it was trained on true features alone. So each training step drafts ahead from every position of the
text (training-time test). A row is (anchor a, depth k): the last position with a true feature, and how many guesses
follow.

    (a, 0)  reads x_{a+1}    and h_a                         all rows of a depth run in one pass; the depths one after
    (a, k)  reads x_{a+k+1}  and what (a, k - 1) put out     another, since each needs the outputs of the one before

    (a, k) may attend to     (a', 0) for a' <= a             the rows with true features up to its anchor
                             (a, k') for 1 <= k' <= k        the guesses of its own chain

which is what the drafter's cache holds at its (k + 1)-th token, if it drew the text's own tokens. Every row learns the
target's law of the token it predicts, nearer ones more: weight^k. Left out, as in EAGLE-3: the regression of the guess
on the true feature (EAGLE, 2401.15077). A guess may be anything that the head reads well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.feature import FeatureConfig, FeatureDraft
from ..model.gpt import GPT
from . import losses
from .block import Packing
from .data import cache_dir
from .distill import DRAFT, Distillation, training_data
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class FeatureDistillation(Distillation):
    """As a distillation, and how many tokens it drafts ahead, each counting `weight` times the one before."""
    steps_ahead: int = 3
    weight: float = 0.8


FEATURE = FeatureDistillation("feature", None, DRAFT.weights,
                              Schedule(steps=300, short_until=0.85, learning_rate=2e-3))


def distill_feature(recipe: FeatureDistillation, target: GPT, tokenizer: Tokenizer,
                    report: Callable[[str], None] = print) -> FeatureDraft:
    """Train a feature draft for `target`, from scratch or on from its checkpoint in the cache folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        draft = FeatureDraft(FeatureConfig(target.config.n_head, target.config.n_embd)).to(target.device)
    fit(draft, lambda batch, progress: feature_loss(draft, target, batch[:, :-1], recipe, progress),
        training_data(recipe, target, tokenizer, report), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return draft


def feature_loss(draft: FeatureDraft, target: GPT, inputs: Tensor, recipe: FeatureDistillation,
                 progress: float) -> Tensor:
    """Weighted mean over depths of each depth's mean loss over its rows. inputs (B, T) -> ()."""
    with torch.no_grad():
        hidden = target.hidden(inputs)                                                         # (B, T, C)
        target_logits = target.unembed(hidden)                                                 # (B, T, V)
        embedded = target.embed(inputs, torch.arange(inputs.shape[1], device=inputs.device))   # (B, T, C)
    mix, total = min(1.0, progress / recipe.anneal_until), 0.0
    weights = [recipe.weight ** k for k in range(recipe.steps_ahead)]
    for k, guesses in enumerate(draft_ahead(draft, embedded, hidden, recipe.steps_ahead)):
        logits = target.unembed(guesses)                                                       # (B, T - 1 - k, V)
        total = total + weights[k] * losses.DISTILL[recipe.loss](logits, target_logits[:, k + 1:], mix).mean()
    return total / sum(weights)


def draft_ahead(draft: FeatureDraft, embedded: Tensor, features: Tensor, steps: int) -> list[Tensor]:
    """Draft along a text from each of its positions: embedded (B, T, C), the text's tokens; features (B, T, C) ->
    for each depth k < steps the guesses (B, T - 1 - k, C) at the features of positions k + 1 .. T - 1."""
    counts = [embedded.shape[1] - 1 - k for k in range(steps)]                  # a row's token must lie in the text
    packing = Packing(torch.cat([torch.arange(count) for count in counts]),
                      torch.arange(steps).repeat_interleave(torch.tensor(counts)))
    mask, cache, guesses = packing.mask.to(embedded.device), ConcatCache(), []
    for k, count in enumerate(counts):
        start, stop = cache.length, cache.length + count
        features = draft(embedded[:, k + 1:], features[:, :count], cache, mask[start:stop, :stop])
        guesses.append(features)
    return guesses


class ConcatCache:
    """The KV cache of one layer in training. It makes a longer tensor where KVCache writes in place, since autograd
    still needs what earlier passes saw, and their gradients come back through the keys and values that later ones read.
    """

    def __init__(self):
        self.length = 0

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """keys, values: (B, H, T, D) -> those of all rows so far, (B, H, S, D)."""
        new = keys, values
        self.kept = new if start == 0 else tuple(torch.cat(pair, dim=2) for pair in zip(self.kept, new))
        return self.kept

    def advance(self, count: int) -> None:
        self.length += count
