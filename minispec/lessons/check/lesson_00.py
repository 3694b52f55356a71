"""Checks of lesson 00: who made each token, and how many tokens a target pass yields."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

from ...decoding.trace import Round
from ...viz.compare import chip_rows, compare
from .base import Wrong, judged


def a_round(proposed: int, kept: int, stop_at: int | None = None) -> Round:
    """A chain of `proposed` tokens of which `kept` were accepted; stop_at: how many tokens a stop lets through."""
    emitted = [*range(10, 10 + kept), 99][:stop_at]
    return Round(20, list(range(10, 10 + proposed)), list(range(-1, proposed - 1)), "sampled", [], {}, [],
                 list(range(kept)), 99, kept == proposed, emitted, (19, 20 + proposed, 19 + len(emitted)),
                 (None, None, None), {"draft": 0.0, "verify": 0.0, "accept": 0.0})


CASES = [                                                # (what it is, round, its roles) by hand
    ("4 proposed, 2 accepted", a_round(4, 2), ["accepted", "accepted", "correction"]),
    ("4 proposed, none accepted", a_round(4, 0), ["correction"]),
    ("3 proposed, all accepted", a_round(3, 3), ["accepted", "accepted", "accepted", "bonus"]),
    ("nothing proposed", a_round(0, 0), ["target"]),
    ("4 proposed and accepted, but a stop token is the second", a_round(4, 4, stop_at=2), ["accepted", "accepted"]),
]


def random_rounds(dice: random.Random, count: int) -> list[Round]:
    found = []
    for _ in range(count):
        proposed = dice.randint(0, 6)
        kept = dice.randint(0, proposed)
        found.append(a_round(proposed, kept, dice.choice([None, dice.randint(1, kept + 1)])))
    return found


@judged
def roles(function: Callable) -> Iterator[Wrong]:
    """function(round) -> a role for each emitted token: "accepted", "correction", "bonus" or "target"."""
    more = [(f"{len(r.tokens)} proposed, {len(r.path)} accepted, {len(r.emitted)} emitted", r,
             [role for _, role in r.provenance()]) for r in random_rounds(random.Random(0), 40)]
    for name, r, right in CASES + more:
        given = function(r)
        if not isinstance(given, (list, tuple)):
            yield Wrong(f"{name}: return a list of roles, one for each emitted token, not {given!r}")
        elif list(given) != right:
            label = [f"t{k + 1}" for k in range(max(len(right), len(given)))]
            rows = {"right": list(zip(label, right)), "yours": list(zip(label, map(str, given)))}
            yield Wrong(f"{name}: {list(given)} was returned, {right} is right",
                        chip_rows(rows, name), f"The roles of a round: {right} is right, {list(given)} was given")


@judged
def tokens_per_pass(function: Callable) -> Iterator[Wrong]:
    """function(rounds) -> emitted tokens over target passes."""
    dice = random.Random(1)
    cases = [[a_round(4, 2)], [a_round(4, 4), a_round(4, 0)], [a_round(4, 1), a_round(4, 4, stop_at=2)],
             [a_round(0, 0), a_round(0, 0), a_round(3, 3)], *(random_rounds(dice, dice.randint(1, 9)) for _ in range(20))]
    for rounds in cases:
        emitted = [len(r.emitted) for r in rounds]
        right, given = sum(emitted) / len(rounds), function(rounds)
        if not isinstance(given, (int, float)) or not math.isclose(given, right):
            yield Wrong(f"{len(rounds)} rounds emit {emitted} tokens: that is {right:.3g} a pass, not {_number(given)}",
                        *_picture(emitted, right, given))


def _number(given: object) -> str:
    return f"{given:.3g}" if isinstance(given, (int, float)) else repr(given)


def _picture(emitted: Sequence[int], right: float, given: object) -> tuple[str, str]:
    """The tokens of up to eight rounds, then the mean."""
    if not isinstance(given, (int, float)):
        return "", ""
    labels = [f"round {k + 1}" for k in range(len(emitted))][:8] + ["a pass"]
    drawing = compare(labels, [*emitted[:8], right], [*emitted[:8], given], "Tokens that each round emits, and their mean")
    return drawing, f"Tokens a pass: {right:.3g} is right, {given:.3g} was given"
