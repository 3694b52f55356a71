"""The recipes behind the shipped files: what is trained, on what, for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from ..model.gpt import GPT, GPTConfig
from . import losses
from .corpus import KINDS
from .data import Mixture, cache_dir, token_array
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class Recipe:
    """A model to train from scratch on text."""
    name: str
    config: GPTConfig
    weights: dict[str, float]          # share of each kind of document
    schedule: Schedule
    seed: int = 0


TARGET = Recipe("target", GPTConfig(n_layer=8, n_head=6, n_embd=384, context=512),
                {"code": 0.70, "docs": 0.10, "agent": 0.11, "records": 0.09}, Schedule(steps=1200, short_until=0.8))


def mixture(tokenizer: Tokenizer, weights: dict[str, float], split: str) -> Mixture:
    return Mixture({kind: token_array(tokenizer, kind, split) for kind in weights}, weights)


def held_out(tokenizer: Tokenizer, kinds: Iterable[str]) -> dict[str, Mixture]:
    """{kind: text of that kind that no recipe reads}. Of the reader's own text that is the part kept for validation."""
    return {kind: mixture(tokenizer, {kind: 1.0}, "held-out" if kind in KINDS else "validation") for kind in kinds}


@torch.no_grad()
def text_loss(model: GPT, data: Mixture, batches: int = 4, size: int = 8, length: int = 256) -> float:
    """Mean next-token loss in nats on fixed windows of `data`."""
    was, total = model.training, 0.0
    model.eval()
    for step in range(batches):
        batch = data.batch(10_000, step, size, length).to(model.device)
        total += float(losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]))
    model.train(was)
    return total / batches


def train(recipe: Recipe, tokenizer: Tokenizer, report: Callable[[str], None] = print, start: GPT | None = None) -> GPT:
    """Run a recipe from scratch, or on from its checkpoint in the cache folder. start: weights to begin with.

    Raises ValueError if `start` is of another architecture than the recipe's.
    """
    torch.manual_seed(recipe.seed)
    model, length = GPT(recipe.config), min(256, recipe.config.context)
    if start is not None:
        if start.config != recipe.config:
            raise ValueError(f"cannot start from a model with {start.config}: the recipe {recipe.name} has {recipe.config}")
        model.load_state_dict(start.state_dict())
    validation = {kind: mixture(tokenizer, {kind: 1.0}, "validation") for kind in recipe.weights}
    fit(model, lambda batch, _: losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]),
        mixture(tokenizer, recipe.weights, "train"), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(model.device), evaluate=lambda: "validation " + "  ".join(
            f"{kind} {text_loss(model, part, 2, length=length):.3f}" for kind, part in validation.items()))
    return model
