"""Tiny models: random ones, and ones whose law is known or whose calls are recorded. All are called as a GPT is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minispec import GPT, GPTConfig, KVCache, TokenTree
from minispec.decoding import Verdict
from minispec.decoding.tree import CHOSEN, ROOT


def tiny_gpt(V: int = 3, seed: int = 0, context: int = 16) -> GPT:
    """A float64 GPT whose every parameter is random, and large enough to give lively distributions."""
    model = GPT(GPTConfig(vocab_size=V, context=context, n_layer=2, n_head=2, n_embd=8)).double()
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return model.eval()


def row(ids: Sequence[int]) -> Tensor:
    """Tokens as a batch of one, (1, T)."""
    return torch.tensor([ids])


def random_table(V: int, seed: int) -> Tensor:
    """(V, V), float64: row = last token, each row a distribution."""
    dice = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(V, V, generator=dice, dtype=torch.float64)).softmax(-1)


class Call(NamedTuple):
    """One pass: the tokens fed, their positions, and how many positions the cache held before."""
    tokens: list[int]
    positions: list[int]
    cache_length: int


class FakeLM:
    """A model without weights, of one sequence. Its cache is real and holds the tokens fed; every call is recorded."""

    device = torch.device("cpu")

    def __init__(self, V: int, context: int = 64):
        self.config = GPTConfig(vocab_size=V, context=context, n_layer=1, n_head=1, n_embd=1)
        self.calls: list[Call] = []

    def new_cache(self, capacity: int | None = None) -> KVCache:
        return KVCache(1, 1, 1, self.config.context if capacity is None else capacity, dtype=torch.float64)

    def __call__(self, tokens: Tensor, cache: KVCache, *, positions: Tensor | None = None,
                 mask: Tensor | None = None) -> Tensor:
        past, new = cache.length, tokens.shape[1]
        places = list(range(past, past + new)) if positions is None else positions.tolist()
        assert max(places) < self.config.context, f"positions {places} do not fit a context of {self.config.context}"
        self.calls.append(Call(tokens[0].tolist(), places, past))
        rows = tokens.double().view(1, 1, new, 1)
        cache.write(0, past, rows, rows)
        cache.advance(new)
        return self.probs(tokens[0], torch.tensor(places)).log()[None]               # (1, T, V)

    def probs(self, tokens: Tensor, places: Tensor) -> Tensor:
        raise NotImplementedError


class TableLM(FakeLM):
    """The next token's law depends on the last token only: table (V, V), rows of probabilities."""

    def __init__(self, table: Tensor, context: int = 64):
        super().__init__(len(table), context)
        self.table = table.double()

    def probs(self, tokens: Tensor, places: Tensor) -> Tensor:
        return self.table[tokens]


class ScriptedLM(FakeLM):
    """Knows one text by heart: after position i it is certain of script[i + 1], whatever it reads."""

    def __init__(self, script: Sequence[int], V: int = 64, context: int = 64):
        super().__init__(V, context)
        self.script = torch.tensor([*script, *[script[-1]] * context])

    def probs(self, tokens: Tensor, places: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(self.script[places + 1], self.config.vocab_size).double()


class FixedTree:
    """A drafter that proposes one tree shape, its tokens chosen by `choose(committed tokens, node)`; deeper than the
    room it is cut. It never looks at the dice, so its trees are "chosen"."""

    def __init__(self, parents: Sequence[int], choose: Callable[[list[int], int], int]):
        self.parents, self.choose, self.max_nodes = tuple(parents), choose, len(parents)

    def start(self, prompt, sampling):
        self.ids = list(prompt)

    def propose(self, dice, room):
        depths = TokenTree((0,) * len(self.parents), self.parents).depths()[1:].tolist()
        nodes = [node for node, depth in enumerate(depths) if depth <= room]
        new = {ROOT: ROOT} | {node: k for k, node in enumerate(nodes)}
        self.tree = TokenTree(tuple(self.choose(self.ids, node) for node in nodes),
                              tuple(new[self.parents[node]] for node in nodes), origin=CHOSEN)
        return self.tree

    def commit(self, verdict: Verdict):
        self.ids += [self.tree.tokens[node] for node in verdict.path] + [verdict.token]

    def cache_length(self):
        return None


def assert_like_a_fresh_prefill(model, cache: KVCache, ids: Sequence[int]) -> None:
    """The cache is shorter than the committed tokens, and holds just what reading them anew would write."""
    assert cache.length < len(ids)
    fresh = model.new_cache()
    with torch.no_grad():
        model(torch.tensor([ids[:cache.length]]), fresh)
    for mine, new in zip(cache.keys + cache.values, fresh.keys + fresh.values):
        torch.testing.assert_close(mine[:, :, :cache.length], new[:, :, :cache.length], rtol=0, atol=1e-10)
