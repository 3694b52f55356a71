"""Axes, lines with markers, and a key: what the charts of curves.py and surface.py share.

A series is told apart by colour, dash and marker together. The key stands above the plot, never inside it; the label
of the vertical axis stands level above it, so that nobody turns their head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from . import svg as draw

Point = tuple[float, float]


class Style(NamedTuple):
    colour: str
    marker: str
    dash: str | None = None


STYLES = (Style("#0072b2", "circle"), Style("#d55e00", "square", "8 4"), Style("#009e73", "triangle", "2 3"),
          Style("#cc79a7", "diamond", "10 3 2 3"), Style("#1a1a1a", "cross", "5 5"), Style("#e69f00", "circle", "1 4"))


class Axes(NamedTuple):
    """A plot's box on paper and the ranges it shows; log: both axes are logarithmic."""
    x: float
    y: float
    w: float
    h: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool = False

    def at(self, point: Point) -> Point:
        """Data -> paper, held within the box."""
        share = [_share(value, ends, self.log) for value, ends in zip(point, (self.x_range, self.y_range))]
        return self.x + self.w * share[0], self.y + self.h * (1 - share[1])


def _share(value: float, ends: tuple[float, float], log: bool) -> float:
    if log:
        value, ends = math.log10(max(value, ends[0])), (math.log10(ends[0]), math.log10(ends[1]))
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high, 1, 2 or 5 times a power of ten apart, about as many as asked.

    Example: ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1].
    """
    raw = (high - low) / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [round(k * step, 10) + 0.0 for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    return [10.0 ** k for k in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def short(value: float) -> str:
    """1000 -> 1k, 0.001 -> 0.001."""
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


def frame(axes: Axes, x_ticks: Sequence[float], y_ticks: Sequence[float], x_label: str, y_label: str) -> list[str]:
    """Grid, ticks and labels."""
    parts, low = [], axes.y + axes.h
    for value in y_ticks:
        y = axes.at((axes.x_range[0], value))[1]
        parts += [draw.line(axes.x, y, axes.x + axes.w, y, draw.GRID, 1),
                  draw.text(axes.x - 8, y + 5, short(value), 14, "end")]
    for value in x_ticks:
        x = axes.at((value, axes.y_range[0]))[0]
        parts += [draw.line(x, low, x, low + 6), draw.text(x, low + 24, short(value), 14, "middle")]
    parts += [draw.line(axes.x, low, axes.x + axes.w, low), draw.line(axes.x, axes.y, axes.x, low)]
    return [*parts, draw.text(axes.x + axes.w, low + 46, x_label, 15, "end"),
            draw.text(axes.x - 34, axes.y - 14, y_label, 15, bold=True)]


def marker(x: float, y: float, style: Style, size: float = 6, title: str = "") -> str:
    """One point in its series' shape."""
    named = draw.tag("title", draw.escape(title)) if title else ""
    shapes = {"square": [(-1, -1), (1, -1), (1, 1), (-1, 1)], "triangle": [(-1.2, 1), (1.2, 1), (0, -1.2)],
              "diamond": [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
              "cross": [(-1, -1), (1, 1), (0, 0), (1, -1), (-1, 1), (0, 0)]}
    if style.marker == "circle":
        return draw.tag("circle", named, cx=float(x), cy=float(y), r=float(size), fill=style.colour, stroke=draw.PAPER)
    d = "M" + "L".join(f"{draw.num(x + a * size)} {draw.num(y + b * size)}" for a, b in shapes[style.marker]) + "Z"
    edge, width = (style.colour, 3) if style.marker == "cross" else (draw.PAPER, 1)
    return draw.tag("path", named, d=d, fill=style.colour, stroke=edge, stroke_width=width)


def series(axes: Axes, points: Sequence[Point], style: Style, *, marks: bool = True, title: str = "") -> list[str]:
    """A line through the points, and a marker on each of them."""
    paper = [axes.at(point) for point in points]
    parts = [draw.path(paper, style.colour, 2.5, style.dash)] if len(paper) > 1 else []
    return parts + [marker(*at, style, title=f"{title}: {x:g}, {y:.4g}") for at, (x, y) in zip(paper, points) if marks]


def key(x: float, y: float, entries: Sequence[tuple[str, Style, bool]]) -> list[str]:
    """(name, style, whether the series has markers) in a row; y: its middle."""
    parts = []
    for name, style, marks in entries:
        parts += [draw.line(x, y, x + 36, y, style.colour, 2.5, style.dash), marker(x + 18, y, style) if marks else "",
                  draw.text(x + 44, y + 5, name, 14)]
        x += 68 + draw.text_width(name, 14)
    return parts
