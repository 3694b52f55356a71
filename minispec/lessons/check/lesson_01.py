"""Checks of lesson 01: what a pass reads and computes, what the roofline says about it, where a curve stops being flat."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from ...bench.roofline import Machine
from ...viz.compare import compare
from ...viz.curves import verify_chart
from ...viz.roofline import flat_chart
from .base import Wrong, judged


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@judged
def intensity(function: Callable) -> Iterator[Wrong]:
    """function(k, bytes_per_weight) -> floating point operations for each byte of weights that is read."""
    dice = random.Random(0)
    hand = [(1, 4, 0.5), (1, 2, 1.0), (8, 4, 4.0), (8, 2, 8.0), (5, 1, 10.0)]
    more = [(k, b, 2 * k / b) for k, b in ((dice.randint(1, 64), dice.choice([0.5, 1, 2, 4, 8])) for _ in range(30))]
    table = hand + more
    for k, size, right in table:
        given = function(k, size)
        if not is_number(given) or not math.isclose(given, right):
            answers = [function(k, size) for k, size, _ in hand]
            picture = compare([f"k={k}, {size} B" for k, size, _ in hand], [right for *_, right in hand], answers,
                              "Operations for each byte") if all(map(is_number, answers)) else ""
            yield Wrong(f"k = {k}, {size} bytes a weight: {right:g} operations a byte, not {given!r}", picture,
                        "Operations for each byte, right and given, for five passes")


@judged
def pass_seconds(function: Callable) -> Iterator[Wrong]:
    """function(weights, bytes_per_weight, k, bandwidth, peak) -> the least seconds of a pass over k tokens."""
    dice = random.Random(1)
    hand = [((1e9, 4, 1, 1e11, 1e12), 0.04), ((1e9, 4, 8, 1e11, 1e12), 0.04), ((1e9, 4, 64, 1e11, 1e12), 0.128)]
    for arguments, right in hand:
        yield from _wrong_seconds(function, arguments, right)
    for _ in range(40):
        weights, size, k = 10 ** dice.uniform(6, 11), dice.choice([1, 2, 4]), dice.randint(1, 500)
        machine = Machine(10 ** dice.uniform(10, 13), 10 ** dice.uniform(10, 15))
        yield from _wrong_seconds(function, (weights, size, k, machine.bandwidth, machine.peak),
                                  machine.seconds(weights, size, k))


def _wrong_seconds(function: Callable, arguments: tuple, right: float) -> Iterator[Wrong]:
    given = function(*arguments)
    if is_number(given) and math.isclose(given, right):
        return
    weights, size, k, bandwidth, peak = arguments
    yield Wrong(f"{weights:.3g} weights of {size} bytes, k = {k}, {bandwidth:.3g} B/s, {peak:.3g} FLOP/s: "
                f"at least {right:.3g} s, not {given if not is_number(given) else format(given, '.3g')}",
                *_seconds_picture(function))


def _seconds_picture(function: Callable) -> tuple[str, str]:
    """The curve that the answer gives on a machine with its ridge at 20 tokens, in units of the right one-token pass."""
    machine, ks = Machine(1e11, 1e12), [1, 2, 4, 8, 16, 20, 32]
    one = machine.seconds(1e9, 4, 1)
    given = {k: function(1e9, 4, k, machine.bandwidth, machine.peak) for k in ks}
    if not all(is_number(value) and value > 0 for value in given.values()):
        return "", ""
    curves = {"right": machine.curve(4, ks), "yours": {k: value / one for k, value in given.items()}}
    return verify_chart(curves, machine.ridge(4)), "A verify curve as the roofline has it, and as the answer has it"


@judged
def flat_until(function: Callable) -> Iterator[Wrong]:
    """function(curve, slack) -> the largest measured k up to which v stays within 1 + slack."""
    hand = [({1: 1.0, 2: 1.05, 4: 1.2, 8: 1.6, 16: 2.9}, 0.25, 4), ({1: 1.0, 2: 1.1, 4: 1.6, 8: 1.2}, 0.25, 2),
            ({1: 1.0, 2: 1.0, 4: 1.0}, 0.25, 4), ({1: 1.0, 2: 1.9}, 0.25, 1), ({1: 1.0, 2: 1.25, 4: 1.5}, 0.25, 2)]
    dice = random.Random(2)
    for _ in range(40):
        curve = {1: 1.0} | {k: dice.uniform(0.9, 1.8) for k in sorted(dice.sample(range(2, 33), dice.randint(1, 6)))}
        slack, right = dice.choice([0.1, 0.25, 0.5]), 1
        for k in sorted(curve):
            if curve[k] > 1 + slack:
                break
            right = k
        hand.append((curve, slack, right))
    for curve, slack, right in hand:
        given = function(dict(curve), slack)
        if given != right:
            words = ", ".join(f"v({k}) = {value:.2f}" for k, value in sorted(curve.items()))
            marks = {"right": right} | ({"yours": given} if is_number(given) and given > 0 else {})
            yield Wrong(f"{words}: flat up to {right} with a slack of {slack}, not {given!r}",
                        flat_chart(curve, slack, marks), f"The curve is flat up to {right}; {given!r} was given")
