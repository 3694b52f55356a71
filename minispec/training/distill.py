"""Distilling a draft from its target: learn the target's distribution, on text and on what the target itself writes.

A draft is judged on contexts that the *target* produced. So besides corpus windows it learns on continuations sampled
from the target (half at temperature 1, half greedy): sequence-level distillation data, as DistillSpec (2310.08461)
recommends, with the target's full distribution as the label at every position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..model.gpt import GPT, GPTConfig
from . import losses
from .data import Mixture, cache_dir, save_array, token_array
from .recipes import mixture
from .tokenizer import END
from .train import Schedule, fast_dtype, fit


@dataclass(frozen=True)
class Distillation:
    """A draft, what it reads, and the loss that brings it to its target."""
    name: str
    config: GPTConfig | None           # None: the target's sizes, or the draft's that it goes on from, decide
    weights: dict[str, float]          # shares of corpus kinds; "samples" are the target's own continuations
    schedule: Schedule
    loss: str = "kl-tv"                # a key of losses.DISTILL
    sample_tokens: int = 300_000       # size of the pool of continuations
    anneal_until: float = 0.8          # share of the steps after which the annealed loss is all TV
    seed: int = 0


DRAFT = Distillation("draft", GPTConfig(n_layer=2, n_head=4, n_embd=256, context=512),
                     {"code": 0.45, "docs": 0.10, "samples": 0.45}, Schedule(steps=1150, short_until=0.85))


def rung(name: str, config: GPTConfig) -> Distillation:
    """A draft of another size, trained as all rungs are: for less time than DRAFT, so compare rungs with each other."""
    return replace(DRAFT, name=name, config=config, schedule=Schedule(steps=300, short_until=0.85))


LADDER = (rung("draft-5", GPTConfig(n_layer=3, n_head=4, n_embd=256)),               # 1/5 of the target's parameters
          rung("draft-10", GPTConfig(n_layer=1, n_head=4, n_embd=256)),              # 1/10
          rung("draft-20", GPTConfig(n_layer=1, n_head=4, n_embd=160)))              # 1/20


@torch.inference_mode()
def continuations(target: GPT, prompts: Tensor, length: int, seed: int = 0) -> Tensor:
    """Sample `length` tokens after each prompt, (B, P) -> (B, P + length): even rows at temperature 1, odd rows greedy."""
    generator = torch.Generator().manual_seed(seed)
    B, P = prompts.shape
    out = torch.cat([prompts, prompts.new_zeros(B, length)], dim=1)               # (B, P + length)
    cache, feed = target.new_cache(P + length, batch=B), prompts
    for place in range(P, P + length):
        probs = target(feed, cache)[:, -1].float().softmax(-1).cpu()              # (B, V)
        drawn = torch.multinomial(probs, 1, generator=generator)[:, 0]            # (B,)
        drawn[1::2] = probs[1::2].argmax(-1)
        out[:, place] = drawn.to(out.device)
        feed = out[:, place:place + 1]
    return out


def sample_pool(recipe: Distillation, target: GPT, tokenizer: Tokenizer, report: Callable[[str], None]) -> np.ndarray:
    """The target's continuations of training text as one flat (N,) uint16 array, kept in the cache folder.

    A batch is saved as it is made, so an interrupted pool goes on where it stopped.
    """
    batch, prompt, length = 64, 64, 192
    name = hashlib.sha256(target.h[0].mlp.c_fc.weight.detach().float().cpu().numpy().tobytes()).hexdigest()[:12]
    folder = cache_dir() / f"samples-{name}"
    kinds = {kind: share for kind, share in recipe.weights.items() if kind != "samples"}
    source, end = mixture(tokenizer, kinds, "train"), tokenizer.token_to_id(END)
    parts = []
    for number in range(max(1, recipe.sample_tokens // (batch * (prompt + length)))):
        path = folder / f"{number}.npy"
        if not path.exists():
            prompts = source.batch(recipe.seed + 1, number, batch, prompt)[:, :prompt].to(target.device)
            rows = continuations(target, prompts, length, seed=number).cpu()
            rows = torch.cat([rows, torch.full((batch, 1), end)], dim=1).numpy().astype(np.uint16)
            save_array(path, rows.reshape(-1))
            report(f"sampled {(number + 1) * batch * (prompt + length):,} of {recipe.sample_tokens:,} tokens")
        parts.append(np.load(path))
    return np.concatenate(parts)


@torch.no_grad()
def mean_acceptance(draft: GPT, target: GPT, data: Mixture, batches: int = 2, size: int = 8, length: int = 256) -> float:
    """Mean of sum min(p, q) over fixed windows of `data`: acceptance at temperature 1, teacher-forced."""
    total = 0.0
    for step in range(batches):
        inputs = data.batch(10_000, step, size, length)[:, :-1].to(target.device)
        total += float(losses.acceptance(draft(inputs), target(inputs)).mean())
    return total / batches


def training_data(recipe: Distillation, target: GPT, tokenizer: Tokenizer, report: Callable[[str], None]) -> Mixture:
    """The recipe's mixture of text and of the target's own continuations."""
    arrays = {kind: token_array(tokenizer, kind, "train") for kind in recipe.weights if kind != "samples"}
    if recipe.weights.get("samples"):
        arrays["samples"] = sample_pool(recipe, target, tokenizer, report)
    return Mixture(arrays, recipe.weights)


def distill(recipe: Distillation, target: GPT, tokenizer: Tokenizer, report: Callable[[str], None] = print) -> GPT:
    """Train the recipe's draft against `target`, from scratch or on from its checkpoint in the cache folder."""
    if recipe.loss not in losses.DISTILL:
        raise ValueError(f"unknown loss {recipe.loss!r}: choose from {', '.join(losses.DISTILL)}")
    torch.manual_seed(recipe.seed)
    draft = GPT(recipe.config).to(target.device)
    text = {kind: share for kind, share in recipe.weights.items() if kind != "samples"}
    validation, length = mixture(tokenizer, text, "validation"), min(256, recipe.config.context)
    acceptance_now = lambda: mean_acceptance(draft, target, validation, length=length)

    def loss_of(batch: Tensor, progress: float) -> Tensor:
        inputs = batch[:, :-1]                                                    # (B, T)
        with torch.no_grad():
            target_logits = target(inputs)                                        # (B, T, V)
        loss = losses.DISTILL[recipe.loss](draft(inputs), target_logits, min(1.0, progress / recipe.anneal_until))
        return loss.mean()

    fit(draft, loss_of, training_data(recipe, target, tokenizer, report), recipe.schedule,
        cache_dir() / f"{recipe.name}.pt", seed=recipe.seed, report=report, autocast=fast_dtype(target.device),
        evaluate=lambda: f"mean acceptance on validation text {acceptance_now():.3f}")
    return draft
