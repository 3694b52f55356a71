"""Checks of lesson 05: where both caches stand after a round, what the draft reads next, which round broke the rule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ...analysis.prove import tiny_target
from ...decoding import Generation, Sampling, SeededDice, Speculation, Trace, Verdict, speculate
from ...drafters import LMDrafter
from ...viz import acceptance_chart, cache_grid
from ...viz.cache_lengths import Answer, cache_lengths
from .base import Wrong, judged

PROMPT = (1, 0, 1)


class ReadsBy(LMDrafter):
    """An LMDrafter that reads what feed(ids, cache_length) returns at the start of a proposal."""

    def __init__(self, feed: Callable[[list[int], int], list[int]], *settings: object):
        super().__init__(*settings)
        self.feed = feed

    def commit(self, verdict: Verdict) -> None:
        super().commit(verdict)
        known = self.ids[:self.cache.length]
        self.ids = known + list(self.feed(list(self.ids), self.cache.length))


def letters(ids: Sequence[int]) -> str:
    return "".join("abc"[token] for token in ids)


@judged
def lengths_after(function: Callable) -> Iterator[Wrong]:
    """function(n, length, accepted) -> (target's length, draft's length) after the rollback of a round."""
    for n in (5, 2, 1):
        for length in (3, 5, 1):
            for accepted in range(length + 1):
                right, got = lengths_in_the_loop(n, length, accepted), function(n, length, accepted)
                if not (isinstance(got, (tuple, list)) and len(got) == 2 and all(type(x) is int for x in got)):
                    yield Wrong(f"return two whole numbers (target, draft), yours returned {got!r}.")
                elif tuple(got) != right:
                    written = (n + length, n + length - 1)
                    labels = [f"t{k + 1}" for k in range(n)] + [f"x{k + 1}" for k in range(length)]
                    message = (f"n = {n} committed, {length} drafted, {accepted} accepted: the lengths are {right}, "
                               f"yours are {tuple(got)}. (t: committed before the round, x: drafted.)")
                    answers = {model: Answer(*each) for model, *each in zip(("target", "draft"), written, right, got)}
                    yield Wrong(message, cache_lengths(labels, answers), "Right lengths and yours, below the slots")


@lru_cache(maxsize=None)
def lengths_in_the_loop(n: int, length: int, accepted: int) -> tuple[int, int]:
    """The lengths in the real loop, under a rule that accepts just so many."""
    def rule(tree, target_probs, dice):
        return Verdict(list(range(accepted)), 0, bonus=accepted == len(tree))

    model = tiny_target(2)
    run = Speculation(model, LMDrafter(model, length), [1] * n, max_new_tokens=length + 1, rule=rule)
    r = run.round(SeededDice())
    return r.target_cache[2], r.draft_cache[2]


@judged
def tokens_to_feed(function: Callable) -> Iterator[Wrong]:
    """function(ids, cache_length) -> the tokens that the draft reads first."""
    dice, wrong = random.Random(0), None
    for _ in range(30):
        ids = [dice.randrange(2) for _ in range(dice.randrange(2, 9))]
        for length in (len(ids) - 1, len(ids) - 2, 0):
            got, right = function(list(ids), length), ids[length:]
            if got != right and wrong is None:
                wrong = (f"{ids} is committed and the cache holds {length} of it: {right} has yet to be read, "
                         f"yours reads {got!r}.")
    if wrong is not None:
        yield Wrong(wrong, *what_it_costs(function))


def what_it_costs(feed: Callable) -> tuple[str, str]:
    """(picture, alt) of the acceptance where draft and target are one model, with this feed and with the right one."""
    try:
        yours = twins(feed)
    except (ValueError, TypeError, IndexError, RuntimeError):
        return "", ""                                    # such a loop doesn't run at all: the message says enough
    right = twins(lambda ids, length: ids[length:])
    return acceptance_chart({"right": right, "yours": yours}), "Acceptance where draft and target are one model"


def twins(feed: Callable) -> list[Trace]:
    """Ten short generations in which the draft is the target."""
    model = tiny_target(2)
    return [speculate(model, ReadsBy(feed, model, 2), PROMPT, max_new_tokens=12, dice=SeededDice(seed)).trace
            for seed in range(10)]


@judged
def first_broken(function: Callable) -> Iterator[Wrong]:
    """function(trace) -> the index of the first round whose caches end wrong, or None."""
    dice = random.Random(0)
    for trace in sound_traces():
        got = function(trace)
        if got is not None:
            yield Wrong(f"this trace is sound, yours objects to round {got!r} (counted from 0).", *grid(trace, got))
        for model in ("target_cache", "draft_cache"):
            for shift in (-1, 1):
                index = dice.randrange(len(trace.rounds))
                broken = shifted(trace, index, model, shift)
                got = function(broken)
                if got != index:
                    whose = model.removesuffix("_cache")
                    yield Wrong(f"in round {index} (counted from 0) the {whose}'s cache ends one "
                                f"{'too far' if shift > 0 else 'too early'}, yours says {got!r}.", *grid(broken, index))


@lru_cache(maxsize=1)
def sound_traces() -> list[Trace]:
    """Real runs, in each of which something is accepted whole and something rejected, and every round proposes."""
    target, draft = tiny_target(3), tiny_target(3, seed=1)
    runs = [speculate(target, LMDrafter(draft, 2), PROMPT, max_new_tokens=12, sampling=Sampling(1.5),
                      dice=SeededDice(seed)) for seed in range(40)]
    return [run.trace for run in runs if _shows_both(run)][:6]


def _shows_both(run: Generation) -> bool:
    rounds = run.trace.rounds
    return {r.bonus for r in rounds} == {True, False} and all(len(r.tokens) == 2 for r in rounds)


def shifted(trace: Trace, index: int, model: str, shift: int) -> Trace:
    """A copy of the trace in which one cache ends `shift` slots from where it should, from round `index` on."""
    rounds = list(trace.rounds)
    for k in range(index, len(rounds)):
        before, full, after = getattr(rounds[k], model)
        moved = (before + shift * (k > index), full + shift * (k > index), after + shift)
        rounds[k] = replace(rounds[k], **{model: moved})
    return replace(trace, rounds=rounds)


def grid(trace: Trace, index: object) -> tuple[str, str]:
    """(picture, alt) of one round's caches; none where there is no such round."""
    if not isinstance(index, int) or not 0 <= index < len(trace.rounds):
        return "", ""
    return cache_grid(trace, index, letters, ("accept", "roll back")), "Both caches in that round"
