"""Solutions of lesson 02: rows computed, attention over a cache, and a greedy loop that feeds every token once."""

import torch
from torch import Tensor

from minispec import GPT


def rows_computed(prompt: int, new: int, cached: bool) -> int:
    """With a cache each token but the last is fed once. Without, pass k feeds the prompt and the k tokens since."""
    return prompt - 1 + new if cached else sum(prompt + k for k in range(new))


def attend(query: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """query (H, D), keys and values (H, M, D), of which the first `length` slots mean something -> (H, D)."""
    keys, values = keys[:, :length], values[:, :length]                      # (H, S, D)
    scores = keys @ query[:, :, None] / query.shape[-1] ** 0.5               # (H, S, 1)
    return (scores.softmax(dim=1) * values).sum(dim=1)                       # (H, D)


def cached_greedy(model: GPT, prompt: list[int], count: int) -> list[int]:
    """The prompt once, then one token a pass: what is fed is always what the cache has not seen."""
    cache, feed, tokens = model.new_cache(), prompt, []
    for _ in range(count):
        logits = model(torch.tensor([feed]), cache)                          # (1, T, V)
        tokens.append(int(logits[0, -1].argmax()))
        feed = tokens[-1:]
    return tokens
