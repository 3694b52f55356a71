"""Exactness by enumeration: the *real* loop, run once for every way its dice can fall.

`output_law(run)` adds up the probability of every output; `sequential_law` is what the target alone would emit. A rule
is exact if the two agree to rounding, jointly over all tokens of several rounds, with caches, stops and budgets in play.

Enumeration replays the loop tens of thousands of times, so the models are memoised, in a way that hides no fault: see
`Memoised`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..decoding.dice import Dice, EnumeratingDice
from ..decoding.loop import Speculation
from ..decoding.sampling import Sampling
from ..decoding.trace import Generation
from ..model.cache import KVCache
from ..model.gpt import GPT

Law = dict[tuple[int, ...], float]


class Memoised:
    """A GPT that computes each row once for each *thing it attends to*, and looks it up ever after.

    Its cache is a real KVCache whose one number a slot names a row: (token, position, names of all rows attended, in
    order). Rolling back, gathering and overwriting move these names exactly as they would move keys and values. A wrong
    mask, a wrong position or a stale slot gives a row another name, hence other logits: what the real model would see.
    """

    def __init__(self, model: GPT):
        self.model, self.config, self.device = model, model.config, model.device
        self.names: dict[tuple, int] = {}                      # (token, position, attended names) -> name
        self.logits: list[Tensor] = []                         # name -> (V,)
        self.rows: list[tuple[list[Tensor], list[Tensor]]] = []      # name -> keys and values of each layer, (H, D)

    def new_cache(self, capacity: int | None = None) -> KVCache:
        return KVCache(1, 1, 1, capacity or self.config.context, dtype=torch.float64)

    def __call__(self, tokens: Tensor, cache: KVCache, *, positions: Tensor | None = None,
                 mask: Tensor | None = None) -> Tensor:
        """As GPT.forward for a batch of one: (1, T) -> (1, T, V)."""
        T, past = tokens.shape[1], cache.length
        if positions is None and past + T > self.config.context:
            raise ValueError(f"{past + T} positions do not fit the model's context of {self.config.context}")
        places = range(past, past + T) if positions is None else positions.tolist()
        sees = torch.ones(T, T).tril().bool().tolist() if mask is None else mask.tolist()      # (T, K)
        if any(any(row[k - T:][1:]) or not row[k - T] for k, row in enumerate(sees)):
            raise ValueError("a row must attend to itself and to no row after it")
        if not torch.equal(cache.keys[0][:, :, :past], cache.values[0][:, :, :past]):
            raise ValueError("a position's keys and values no longer belong to one row")
        names = [int(name) for name in cache.keys[0][0, 0, :past, 0].tolist()]
        for row, (token, place) in enumerate(zip(tokens[0].tolist(), places)):
            older = past + T - len(sees[row])                  # positions before these K are seen by all
            attended = names[:older] + [names[older + k] for k in range(past + row - older) if sees[row][k]]
            names.append(self._name(token, place, tuple(attended)))
        fresh = torch.tensor(names[past:], dtype=torch.float64).view(1, 1, T, 1)
        cache.write(0, past, fresh, fresh)
        cache.advance(T)
        return torch.stack([self.logits[name] for name in names[past:]])[None]

    def _name(self, token: int, place: int, attended: tuple[int, ...]) -> int:
        key = (token, place, attended)
        if key not in self.names:
            cache = self.model.new_cache(len(attended) + 1)
            for layer in range(self.config.n_layer):
                for slot, name in enumerate(attended):
                    cache.keys[layer][0, :, slot] = self.rows[name][0][layer]
                    cache.values[layer][0, :, slot] = self.rows[name][1][layer]
            cache.advance(len(attended))
            logits = self.model(torch.tensor([[token]]), cache, positions=torch.tensor([place]))
            self.rows.append(([k[0, :, -1].clone() for k in cache.keys], [v[0, :, -1].clone() for v in cache.values]))
            self.logits.append(logits[0, -1])
            self.names[key] = len(self.names)
        return self.names[key]


def output_law(run: Callable[[Dice], Generation]) -> Law:
    """{new tokens: probability} of run(dice), by replaying it for every branch of the dice.

    run: builds and runs one whole generation, e.g. lambda dice: speculate(target, drafter, prompt, ..., dice=dice).
    """
    law: Law = {}
    for probability, generation in EnumeratingDice().branches(run):
        tokens = tuple(generation.tokens)
        law[tokens] = law.get(tokens, 0.0) + probability
    return law


def output_law_by_rounds(start: Callable[[], Speculation]) -> Law:
    """The same law, round by round: branches that reach the *same state* go on as one, with their probabilities added.

    start: builds a fresh Speculation. A state is everything the next round can depend on: committed tokens, the
    occupied part of every cache, the drafter's memory. Where a fault leaves different states behind, they stay apart.
    """
    law: Law = {}
    first = start()
    waiting: dict[bytes, tuple[float, Speculation]] = {fingerprint(first): (1.0, first)}
    while waiting:
        key = min(waiting, key=lambda k: len(waiting[k][1].ids))         # nothing can lead back to a shortest one
        weight, state = waiting.pop(key)
        for probability, after in EnumeratingDice().branches(lambda dice: _one_round(state, dice)):
            if after.stop_reason:
                tokens = tuple(after.ids[after.prompt_length:])
                law[tokens] = law.get(tokens, 0.0) + weight * probability
            else:
                key = fingerprint(after)
                so_far = waiting[key][0] if key in waiting else 0.0
                waiting[key] = (so_far + weight * probability, after)
    return law


def _one_round(state: Speculation, dice: Dice) -> Speculation:
    state = snapshot(state)
    state.round(dice)
    return state


def snapshot(thing: object) -> object:
    """A copy of a run's state: containers, caches and drafters are copied, models and tensors (never written) shared."""
    if isinstance(thing, KVCache):
        copied = copy.copy(thing)
        copied.keys, copied.values = [k.clone() for k in thing.keys], [v.clone() for v in thing.values]
        return copied
    if type(thing) in (list, tuple, set):
        return type(thing)(map(snapshot, thing))
    if isinstance(thing, dict):
        return {key: snapshot(item) for key, item in thing.items()}
    if isinstance(thing, (Memoised, Tensor, torch.nn.Module)) or not hasattr(thing, "__dict__"):
        return thing
    copied = copy.copy(thing)
    for name, value in vars(thing).items():
        object.__setattr__(copied, name, snapshot(value))
    return copied


def fingerprint(thing: object) -> bytes:
    """A value for everything that `thing` holds; equal for equal contents. Slots past a cache's length don't count:
    the model never attends to them (tests/test_gpt.py poisons them to prove it)."""
    if isinstance(thing, KVCache):
        rows = [side[:, :, :thing.length] for side in (*thing.keys, *thing.values)]
        return fingerprint([thing.length, *rows])
    if isinstance(thing, Tensor):
        return thing.contiguous().numpy().tobytes()
    if isinstance(thing, (Memoised, torch.nn.Module)):
        return b"@%d" % id(thing)                              # a model is what it is: it holds no state of the run
    if isinstance(thing, dict):
        return b"{%s}" % b",".join(fingerprint(k) + b":" + fingerprint(v) for k, v in thing.items())
    if isinstance(thing, (list, tuple)):
        return b"[%s]" % b",".join(map(fingerprint, thing))
    if hasattr(thing, "__dict__"):
        return fingerprint(vars(thing))
    return repr(thing).encode()


@torch.inference_mode()
def sequential_law(target: GPT, prompt: Sequence[int], max_new_tokens: int, *, sampling: Sampling = Sampling(),
                   stop_tokens: Sequence[int] = ()) -> Law:
    """The target's own law over the same outputs, from the chain rule: full prefixes, no cache, no dice, no loop."""
    law: Law = {}
    end = min(len(prompt) + max_new_tokens, target.config.context)

    def extend(ids: list[int], probability: float) -> None:
        new = ids[len(prompt):]
        if len(ids) == end or (new and new[-1] in stop_tokens):
            law[tuple(new)] = probability
            return
        logits = target(torch.tensor([ids], device=target.device))[0, -1]            # (V,)
        for token, chance in enumerate(sampling.probs(logits).tolist()):
            if chance > 0:
                extend([*ids, token], probability * chance)

    extend(list(prompt), 1.0)
    return law


def law_error(law: Law, reference: Law) -> float:
    """Largest difference in probability over all outputs of either law."""
    return max(abs(law.get(key, 0.0) - reference.get(key, 0.0)) for key in {*law, *reference})


def total_variation(law: Law, reference: Law) -> float:
    """Half the summed absolute difference: the largest difference over all *events*."""
    return 0.5 * sum(abs(law.get(key, 0.0) - reference.get(key, 0.0)) for key in {*law, *reference})
