"""Lines over one number: two predictions against each other, or acceptance under the bound that no rule can pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import svg as draw
from .charts import STYLES, Axes, Point, frame, key, series, ticks

ROW = 28                                                 # height of a row of the key


def lines_chart(lines: Mapping[str, Sequence[Point]], x_label: str, y_label: str, title: str, *,
                top: float | None = None, ceiling: str = "",
                forbidden: str = "no exact rule can be here") -> str:
    """Each named line of (x, y) points, at most six; a line of one point is a single marker. The y axis begins at 0.

    top:       of the y axis; default: a round number at or above all points.
    ceiling:   the name of a line that nothing may pass: the region above it is hatched, and `forbidden` says why.
    Raises ValueError for no line or too many, for a line without points, and for a ceiling that is none of them.
    """
    if not 1 <= len(lines) <= len(STYLES) or not all(map(len, lines.values())):
        raise ValueError(f"1 to {len(STYLES)} lines with points can be told apart, got {len(lines)}")
    if ceiling and ceiling not in lines:
        raise ValueError(f"the ceiling must be one of the lines {', '.join(lines)}, got {ceiling!r}")
    rows = key_rows(lines)
    left, right = ends([x for points in lines.values() for x, _ in points])
    if top is None:
        top = above(max(y for points in lines.values() for _, y in points))
    axes = Axes(64, 48 + ROW * (len(rows) + bool(ceiling)), 866, 290, (left, right), (0, top))
    body = no_go(axes, lines[ceiling], forbidden, 18 + ROW * len(rows)) if ceiling else []
    body += frame(axes, x_ticks(left, right), ticks(*axes.y_range), x_label, y_label)
    for style, (name, points) in zip(STYLES, lines.items()):
        body += series(axes, points, style, title=name)
    for k, row in enumerate(rows):
        body += key(26, 18 + ROW * k, row)
    last = "; ".join(f"{name}: {points[0][1]:.3g} at {points[0][0]:g} to {points[-1][1]:.3g} at {points[-1][0]:g}"
                     if len(points) > 1 else f"{name}: {points[0][1]:.3g} at {points[0][0]:g}"
                     for name, points in lines.items())
    alt = f"{title}: {y_label} against {x_label}. {last}."
    return draw.svg(axes.y + axes.h + 58, body, title, alt)


def no_go(axes: Axes, points: Sequence[Point], words: str, y: float) -> list[str]:
    """The box hatched, with paper below the line; and the hatching's entry in the key. y: the middle of its row."""
    look, low = draw.ROLES["rejected"], axes.y + axes.h
    below = [axes.at(point) for point in points]
    below = [(below[0][0], low), *below, (below[-1][0], low)]
    return [draw.rect(axes.x, axes.y, axes.w, axes.h, look.tint),
            draw.hatch(axes.x, axes.y, axes.w, axes.h, draw.HATCH, step=14), draw.path(below, "none", fill=draw.PAPER),
            *draw.legend(33, y, [("rejected", words)])]


def key_rows(lines: Mapping[str, Sequence[Point]]) -> list[list[tuple]]:
    """The key's entries, as many in a row as there is room for."""
    rows, x = [[]], 26.0
    for style, name in zip(STYLES, lines):
        wide = 68 + draw.text_width(name, 14)
        if rows[-1] and x + wide > draw.WIDTH - 10:
            rows.append([])
            x = 26.0
        rows[-1].append((name, style, True))
        x += wide
    return rows


def ends(xs: Sequence[float]) -> tuple[float, float]:
    """The range of x; half a unit to either side where there is only one."""
    return (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 0.5, max(xs) + 0.5)


def x_ticks(left: float, right: float) -> list[float]:
    """Every whole number where there are few of them, else round numbers."""
    if float(left).is_integer() and float(right).is_integer() and 1 <= right - left <= 20:
        return list(range(round(left), round(right) + 1))
    return ticks(left, right)


def above(highest: float) -> float:
    """A round number at or above the highest value, for the top of the axis."""
    if highest <= 0:
        return 1.0
    step = ticks(0, highest)[1] if len(ticks(0, highest)) > 1 else highest
    return math.ceil(highest / step - 1e-9) * step
