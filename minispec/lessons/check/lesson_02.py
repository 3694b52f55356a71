"""Checks of lesson 02: rows computed, attention over a cache, and a greedy loop that feeds every token once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...analysis.prove import tiny_target
from ...decoding import Sampling, generate
from ...model.cache import KVCache
from ...viz.compare import compare
from ...viz.passes import Pass, passes_grid, passes_of
from ...viz.passes import rows_computed as rows_of
from .base import Wrong, judged


def plain_passes(prompt: int, new: int, cached: bool) -> list[Pass]:
    """The target's passes of plain decoding, one by one."""
    with_cache = [(0, prompt - 1)] * (prompt > 1) + [(prompt - 1 + k, 1) for k in range(new)]
    return with_cache if cached else [(0, prompt + k) for k in range(new)]


@judged
def rows_computed(function: Callable) -> Iterator[Wrong]:
    """function(prompt, new, cached) -> token rows that go through the layers while `new` tokens are generated."""
    dice = random.Random(0)
    sizes = [(5, 1), (5, 3), (1, 4), *((dice.randint(1, 200), dice.randint(1, 100)) for _ in range(30))]
    for prompt, new in sizes:
        for cached in (True, False):
            right, given = rows_of(plain_passes(prompt, new, cached)), function(prompt, new, cached)
            if given != right:
                yield Wrong(f"prompt = {prompt}, new = {new}, cached = {cached}: {right} rows, not {given!r}. The picture "
                            "has prompt = 5 and new = 3.", rows_picture(function), "Rows computed for a prompt of 5")


def rows_picture(function: Callable) -> str:
    """The passes for a prompt of 5 and 3 new tokens, and what the answer says of them."""
    return passes_grid({f"{name}: you say {function(5, 3, cached)!r}": plain_passes(5, 3, cached)
                        for name, cached in (("cache", True), ("no cache", False))})


@judged
def attend(function: Callable) -> Iterator[Wrong]:
    """function(query (H, D), keys (H, M, D), values (H, M, D), length) -> (H, D)."""
    dice = torch.Generator().manual_seed(0)
    shapes = [(1, 6, 6, 4), (2, 6, 6, 6), (2, 5, 3, 1), (3, 8, 4, 5), (1, 16, 8, 9)]
    for heads, slots, size, length in shapes:
        query, keys, values = (2 * torch.randn(heads, *rest, dtype=torch.float64, generator=dice)
                               for rest in ((size,), (slots, size), (slots, size)))
        right = reference(query, keys, values, length)
        given = function(query.clone(), keys.clone(), values.clone(), length)
        if not isinstance(given, Tensor) or given.shape != right.shape:
            shown = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            yield Wrong(f"{heads} heads of {size}: return a tensor (H, D) = {tuple(right.shape)}, not {shown}")
        elif not torch.allclose(given.double(), right, atol=1e-10, rtol=0):
            yield Wrong(f"{slots} slots, of which {length} hold something: the result is off by up to "
                        f"{float((given - right).abs().max()):.2g}. The picture shows the weights behind it.",
                        *weights_picture(function))


def reference(query: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """torch's own attention of one row over the first `length` slots. -> (H, D)"""
    known = keys[:, :length], values[:, :length]
    return F.scaled_dot_product_attention(query[:, None], *known)[:, 0]


def weights_picture(function: Callable) -> tuple[str, str]:
    """The weights that the answer gives each slot: with one-hot values, the output is the weights themselves."""
    slots, length = 6, 4
    dice = torch.Generator().manual_seed(3)
    query, keys = torch.randn(1, slots, dtype=torch.float64, generator=dice), torch.randn(
        1, slots, slots, dtype=torch.float64, generator=dice)
    values = torch.eye(slots, dtype=torch.float64)[None]
    right, given = (f(query, keys, values, length)[0].tolist() for f in (reference, function))
    labels = [f"slot {k}" if k < length else f"slot {k}: stale" for k in range(slots)]
    return (compare(labels, right, given, f"Attention weights, {length} of {slots} slots in use"),
            f"Attention weights by slot; slots {length} and {length + 1} are stale")


class Recorder:
    """A small GPT in float64 that writes down each pass: how much was in the cache, how much was fed."""

    def __init__(self):
        self.model = tiny_target(5).model
        self.config, self.device = self.model.config, torch.device("cpu")
        self.passes: list[Pass] = []

    def new_cache(self, capacity: int | None = None) -> KVCache:
        return self.model.new_cache(capacity)

    def __call__(self, tokens: Tensor, cache: KVCache | None = None, **where: Tensor) -> Tensor:
        self.passes.append((cache.length if cache is not None else 0, tokens.shape[1]))
        return self.model(tokens, cache, **where)


@judged
def cached_greedy(function: Callable) -> Iterator[Wrong]:
    """function(model, prompt, count) -> `count` new tokens; every token goes through the model once."""
    for prompt, count in (([1, 0, 3], 4), ([2], 3), ([4, 4, 1, 0], 6), ([3, 1], 1)):
        run = generate(tiny_target(5).model, prompt, max_new_tokens=count, sampling=Sampling(temperature=0))
        model, error, given = Recorder(), "", None
        try:
            with torch.inference_mode():
                given = function(model, list(prompt), count)
        except ValueError as wrong:                      # the context is full: the picture shows with what
            error = f" It raised: {wrong}."
        expected = passes_of(run.trace)
        if given == run.tokens and rows_of(model.passes) <= len(prompt) + count:
            continue
        picture = passes_grid({"yours": model.passes[:12], "one way that is right": expected}) if model.passes else ""
        alt = "The passes that the answer makes, and those of a right one"
        if given == run.tokens:
            yield Wrong(f"the tokens are right, but {rows_of(model.passes)} rows went through the model for "
                        f"{len(prompt)} + {count} tokens: each should go through once", picture, alt)
        else:
            yield Wrong(f"prompt {prompt}, {count} new tokens: {run.tokens} is right, not {given!r}.{error}", picture, alt)
