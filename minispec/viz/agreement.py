"""Do two computations agree? The largest difference at each position, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import svg as draw
from .charts import STYLES, Axes, frame, key, series, ticks

FLOOR = 1e-12                                            # below it a float64 difference is rounding


def agreement(errors: Mapping[str, Sequence[float]], limit: float = 1e-10, x_label: str = "position") -> str:
    """errors: {name: the largest difference at positions 0, 1, ...}. Up to `limit` counts as agreement.

    Differences below FLOOR are drawn on it, so that rounding, which differs between machines, leaves no trace.
    Raises ValueError for a difference that isn't a finite number >= 0.
    """
    for name, values in errors.items():
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise ValueError(f"{name} holds a difference that is not a finite number >= 0")
    last = max(len(values) for values in errors.values()) - 1
    top = max(0, math.ceil(math.log10(max(max(values) for values in errors.values()) or 1)))
    low, cut = math.log10(FLOOR), math.log10(limit)
    axes = Axes(80, 80, 860, 290, (-0.5, last + 0.5), (low - 0.5, max(top, 1)))
    box = [axes.at((-0.5, cut)), axes.at((last + 0.5, low - 0.5))]
    fine = draw.ROLES["accepted"]
    body = [draw.rect(*box[0], box[1][0] - box[0][0], box[1][1] - box[0][1], fine.tint),
            *grid(axes, last, x_label), draw.line(*axes.at((-0.5, cut)), *axes.at((last + 0.5, cut)), fine.colour, 2)]
    for k, (name, values) in enumerate(errors.items()):
        points = [(float(i), math.log10(max(value, FLOOR))) for i, value in enumerate(values)]
        body += series(axes, points, STYLES[k % len(STYLES)], title=name)
    body += [*key(26, 24, [(name, STYLES[k % len(STYLES)], True) for k, name in enumerate(errors)]),
             draw.text(930, box[0][1] + 24, f"✓ agreement: below {limit:g}", 15, "end", bold=True)]
    told = "; ".join(f"{name}: {verdict(values, limit)}" for name, values in errors.items())
    return draw.svg(426, body, "Agreement by position", f"Largest difference by position. {told}.")


def verdict(values: Sequence[float], limit: float) -> str:
    """In words: agrees, or where it departs first."""
    first = next((i for i, value in enumerate(values) if value > limit), None)
    return "agrees everywhere" if first is None else f"departs first at {first}, at most {max(values):.1g} apart"


def grid(axes: Axes, last: int, x_label: str) -> list[str]:
    """Grid and ticks; the vertical ones are powers of ten, the lowest means "or less"."""
    powers = [p for p in range(math.ceil(math.log10(FLOOR)) + 1, int(axes.y_range[1]) + 1) if p % 3 == 0]
    parts = frame(axes, [t for t in ticks(0, max(last, 1), 12) if t == int(t)], [], x_label, "largest difference")
    for power in powers:
        y = axes.at((0, power))[1]
        parts += [draw.line(axes.x, y, axes.x + axes.w, y, draw.GRID, 1),
                  draw.text(axes.x - 8, y + 5, f"1e{power}" if power else "1", 14, "end")]
    y = axes.at((0, math.log10(FLOOR)))[1]
    return [*parts, draw.text(axes.x - 8, y + 5, f"≤{FLOOR:.0e}", 14, "end")]
