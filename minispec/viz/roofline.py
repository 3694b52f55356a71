"""The roofline with measured passes on it, and where a measured curve stops being flat."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..bench.roofline import Machine
from . import svg as draw
from .charts import STYLES, Axes, frame, key, marker, series, ticks

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))


def with_unit(value: float) -> str:
    """2.5e10 -> "25 G". Two digits: a measurement of this kind isn't good for more."""
    size, letter = next((size, letter) for size, letter in UNITS if value >= size or size == 1.0)
    return f"{float(f'{value / size:.2g}'):g} {letter}".strip()


def attained(seconds: Mapping[int, float], weights: float) -> dict[int, float]:
    """{k: operations a second} of measured passes over k tokens: two operations for each weight and token."""
    return {k: 2 * weights * k / took for k, took in seconds.items()}


def roofline_chart(machine: Machine, seconds: Mapping[int, float], weights: float, bytes_per_weight: float,
                   note: str = "") -> str:
    """Operations a second against tokens in a pass, both logarithmic: the two roofs, and measured passes below them.

    seconds: {k: measured seconds of a pass over k tokens}. note: provenance of the measurement.
    """
    ridge, dots = machine.ridge(bytes_per_weight), attained(seconds, weights)
    longest = 2 ** math.ceil(math.log2(max([*seconds, ridge, 2])))
    slope = 2 / bytes_per_weight * machine.bandwidth                         # operations a second at k = 1
    low = 10 ** math.floor(math.log10(min([slope, *dots.values()])))
    high = 10 ** math.ceil(math.log10(max([machine.peak, *dots.values()]) * 1.01))
    axes = Axes(90, 96, 850, 290, (1, longest), (low, high), log=True)
    marks = [2 ** i for i in range(int(math.log2(longest)) + 1)]
    powers = [10.0 ** p for p in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    body = frame(axes, marks, [], "tokens in one pass, k", "operations a second")
    for value in powers:
        y = axes.at((1, value))[1]
        body += [draw.line(axes.x, y, axes.x + axes.w, y, draw.GRID, 1),
                 draw.text(axes.x - 8, y + 5, with_unit(value), 14, "end")]
    memory, arithmetic, measured = STYLES[1], STYLES[2], STYLES[0]
    turn = min(max(ridge, 1), longest)
    roof = min(slope * turn, machine.peak)
    body += [draw.path([axes.at((1, slope)), axes.at((turn, roof))], memory.colour, 4, memory.dash),
             draw.path([axes.at((turn, machine.peak)), axes.at((longest, machine.peak))], arithmetic.colour, 4,
                       arithmetic.dash),
             draw.line(*axes.at((turn, roof)), axes.at((turn, low))[0], axes.y + axes.h, draw.MUTED, 2, "2 4")]
    body += [marker(*axes.at(point), measured, 7, f"{point[0]} tokens: {with_unit(point[1])} a second")
             for point in dots.items()]
    names = (f"memory: {with_unit(machine.bandwidth)}B/s", f"arithmetic: {with_unit(machine.peak)}FLOP/s", "measured passes")
    body += [draw.line(26, 24, 70, 24, memory.colour, 4, memory.dash), draw.text(78, 29, names[0], 15),
             draw.line(330, 24, 374, 24, arithmetic.colour, 4, arithmetic.dash), draw.text(382, 29, names[1], 15),
             marker(690, 24, measured, 7), draw.text(704, 29, names[2], 15),
             draw.text(940, 56, f"ridge: {ridge:.2g} tokens", 16, "end", bold=True),
             draw.text(940, 80, note, draw.SMALL, "end", fill=draw.MUTED)]
    alt = (f"Roofline: {names[0]}, {names[1]}, ridge at {ridge:.2g} tokens. Measured: "
           + "; ".join(f"{k} tokens {with_unit(value)}FLOP/s" for k, value in dots.items()) + ".")
    return draw.svg(446, body, "Roofline", alt)


def flat_chart(curve: Mapping[int, float], slack: float, marks: Mapping[str, float]) -> str:
    """A verify curve, the line 1 + slack below which a pass counts as free, and where each of `marks` says that it ends:
    at most two, the right one first.
    """
    longest = max([*curve, *marks.values(), 2])
    axes = Axes(60, 80, 880, 270, (0.5, longest + 0.5), (0, max(2.0, math.ceil(max(curve.values())))))
    level = axes.at((0.5, 1 + slack))[1]
    free = draw.ROLES["accepted"]
    body = [draw.rect(axes.x, level, axes.w, axes.y + axes.h - level, free.tint),
            *frame(axes, sorted(curve), ticks(*axes.y_range), "tokens in one target pass, k", "v(k)"),
            draw.line(axes.x, level, axes.x + axes.w, level, free.colour, 2),
            *series(axes, sorted(curve.items()), STYLES[0], title="v(k)")]
    entries = [("v(k)", STYLES[0], True)]
    for style, (name, end) in zip((STYLES[2], STYLES[1]), marks.items()):
        x = axes.at((end, 0))[0]
        body += [draw.line(x, axes.y, x, axes.y + axes.h, style.colour, 4, style.dash),
                 marker(x, axes.y, style, 8, f"{name}: {end:g}")]
        entries.append((f"{name}: up to {end:g}", style, True))
    told = "; ".join(f"{name} up to {end:g}" for name, end in marks.items())
    body += [*key(26, 24, entries), *draw.legend(720, 24, [("accepted", f"free: v(k) ≤ {1 + slack:.2f}")])]
    return draw.svg(410, body, "Where the flat part ends", f"A verify curve. Flat: {told}.")
