"""Checks of lesson 06, how fast: tokens a round, the predicted speedup, the draft length that pays."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from ...analysis.theory import VerifyCurve, best_draft_length, expected_tokens, interpolate, speedup
from ...viz import lines_chart
from .base import Wrong, judged

CURVE = interpolate({1: 1.0, 2: 1.25, 4: 1.5, 8: 2.5, 16: 5.0})          # no machine's: a typed example
NEAR = 1e-9

Lines = dict[str, list[tuple[int, float]]]


@judged
def tokens_per_round(function: Callable[[Sequence[float]], float]) -> Iterator[Wrong]:
    """alphas by position -> expected tokens a round, the target's own included."""
    table = [([], 1.0), ([1.0, 1.0, 1.0], 4.0), ([0.5], 1.5), ([0.5, 0.5], 1.75), ([0.0, 1.0, 1.0], 1.0),
             ([0.9, 0.5, 0.2], 1 + 0.9 + 0.45 + 0.09)]
    dice = random.Random(6)
    drawn = [[dice.random() for _ in range(dice.randint(1, 8))] for _ in range(40)]
    for alphas, right in [*table, *((alphas, expected_tokens(alphas, len(alphas))) for alphas in drawn)]:
        got = function(list(alphas))
        if not abs(got - right) <= NEAR:
            lines = by_length(lambda n: function([0.8] * n), lambda n: expected_tokens(0.8, n))
            yield Wrong(f"tokens_per_round({short(alphas)}) is {got:.4f}, expected {right:.4f}. The picture: α = 0.8 "
                        f"at every position.", *drawing(lines, "expected tokens", "Expected tokens a round"))


@judged
def predicted_speedup(function: Callable[[Sequence[float], float, VerifyCurve], float]) -> Iterator[Wrong]:
    """(alphas by position, c, v) -> tokens a second over plain decoding."""
    flat = lambda k: 1.0
    table = [([1.0], 0.0, flat, 2.0), ([0.0, 0.0], 0.5, flat, 0.5), ([1.0], 1.0, lambda k: k, 2 / 3),
             ([0.5, 0.5], 0.1, CURVE, 1.75 / (0.2 + CURVE(3)))]
    dice = random.Random(7)
    drawn = []
    for _ in range(30):
        alphas, cost = [dice.random() for _ in range(dice.randint(1, 8))], dice.random()
        drawn.append((alphas, cost, CURVE, speedup(alphas, len(alphas), cost, CURVE)))
    for alphas, cost, verify, right in [*table, *drawn]:
        got = function(list(alphas), cost, verify)
        if not abs(got - right) <= NEAR:
            lines = by_length(lambda n: function([0.8] * n, 0.1, CURVE), lambda n: speedup(0.8, n, 0.1, CURVE), 1)
            yield Wrong(f"With alphas {short(alphas)}, c = {cost:.2f} and v({len(alphas) + 1}) = "
                        f"{verify(len(alphas) + 1):.2f} it gives {got:.4f}, expected {right:.4f}. The picture: "
                        f"α = 0.8, c = 0.1.", *drawing(lines, "speedup", "Predicted speedup"))


@judged
def choose_length(function: Callable[[float, float, VerifyCurve, int], int]) -> Iterator[Wrong]:
    """(alpha, c, v, longest) -> the draft length in 0..longest with the highest predicted speedup."""
    flat = lambda k: 1.0
    table = [(0.9, 0.0, flat, 8), (0.8, 0.05, flat, 12), (0.3, 0.6, flat, 8), (0.6, 0.1, CURVE, 8), (0.0, 0.1, flat, 4),
             (0.95, 0.02, CURVE, 16)]
    dice = random.Random(8)
    drawn = [(dice.uniform(0.05, 0.95), dice.uniform(0.01, 0.9), CURVE, dice.randint(2, 12)) for _ in range(30)]
    for alpha, cost, verify, longest in [*table, *drawn]:
        got, right = function(alpha, cost, verify, longest), best_draft_length(alpha, cost, verify, longest)
        if got != right:
            curve = [(n, speedup(alpha, n, cost, verify)) for n in range(longest + 1)]
            marks = {"right": [curve[right]]} | ({"yours": [curve[got]]} if got in range(longest + 1) else {})
            why = ": no speculation at all." if right == 0 else "."
            yield Wrong(f"At α = {alpha:.2f}, c = {cost:.2f} and γ up to {longest} it chooses {got}, "
                        f"the best is {right}{why}",
                        *drawing({"predicted speedup": curve, **marks}, "speedup", "Predicted speedup by draft length"))


def by_length(yours: Callable[[int], float], right: Callable[[int], float], first: int = 0) -> Lines:
    """Both, at draft lengths up to 8."""
    lengths = range(first, 9)
    return {"yours": [(n, yours(n)) for n in lengths], "right": [(n, right(n)) for n in lengths]}


def drawing(lines: Lines, y_label: str, title: str) -> tuple[str, str]:
    """(SVG, alt) over the draft length."""
    return lines_chart(lines, "draft length γ", y_label, title), f"{title}: yours against the right one"


def short(alphas: Sequence[float]) -> str:
    return "[" + ", ".join(f"{alpha:.2f}" for alpha in alphas) + "]"
