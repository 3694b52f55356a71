"""Theory as a surface, measurement as dots: speedup over acceptance and draft length.

The surface is Leviathan et al. (2211.17192), Theorem 3.8, with the measured verify curve in place of the constant 1.
Where it lies below 1, speculation loses: those cells are hatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import NamedTuple

from ..analysis.theory import VerifyCurve, flat, speedup
from . import svg as draw

CIVIDIS = ("#002b62", "#243c6e", "#434e6c", "#5b606e", "#727274", "#888578", "#a19975", "#bcae6c", "#d6c35d", "#f3db42")


X, Y, WIDE, HIGH = 50.0, 60.0, 41.0, 46.0               # the first cell's corner; a cell's size
ALPHAS = tuple(k / 20 for k in range(6, 20))             # 0.3 to 0.95


class Measured(NamedTuple):
    """One benchmark. acceptance: accepted / *judged* tokens, the alpha of the theory (a proposal after a rejection
    isn't judged); speedup: the ratio to plain decoding, measured beside it.
    """
    acceptance: float
    length: int
    speedup: float
    name: str = ""


def shade(share: float) -> str:
    """Cividis, light for high: a colour map that reads the same with any colour vision, and in grey."""
    return CIVIDIS[min(len(CIVIDIS) - 1, max(0, int(share * len(CIVIDIS))))]


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours "#rrggbb", 1 to 21."""
    def luminance(colour: str) -> float:
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def surface_values(lengths: Sequence[int], acceptances: Sequence[float], cost: float,
                   verify: VerifyCurve = flat) -> list[list[float]]:
    """speedup at each (length, acceptance): a row for each length."""
    return [[speedup(alpha, length, cost, verify) for alpha in acceptances] for length in lengths]


def surface(measured: Sequence[Measured], cost: float, verify: VerifyCurve = flat, *,
            lengths: Sequence[int] = range(1, 9), acceptances: Sequence[float] = ALPHAS) -> str:
    """The surface with a lettered dot for each measurement, and at the right what was measured against what was
    predicted.

    acceptances must be evenly spaced. Raises ValueError for a measurement whose length isn't among `lengths`.
    """
    lengths = sorted(lengths)
    if stray := [m.length for m in measured if m.length not in lengths]:
        raise ValueError(f"measured at draft length {stray[0]}: the surface shows {lengths[0]}..{lengths[-1]}")
    values = surface_values(lengths, acceptances, cost, verify)
    low = Y + HIGH * len(lengths)
    body = [draw.text(20, 26, "Predicted speedup: acceptance α, draft length γ", 18, bold=True),
            *cells(values, lengths, acceptances), draw.text(20, Y - 10, "γ", bold=True),
            draw.text(X + WIDE * len(acceptances), low + 46, "acceptance α", 15, "end"),
            *draw.legend(X, low + 44, [("rejected", "below 1: speculation loses")])]
    dots, right = place(measured, lengths, acceptances), X + WIDE * len(acceptances) + 26
    body += [draw.tag("circle", cx=x, cy=y, r=10, fill=draw.PAPER, stroke=draw.INK, stroke_width=2) +
             draw.text(x, y + 5, name, draw.SMALL, "middle", bold=True) for (x, y), name in zip(dots, ascii_uppercase)]
    body += comparison(measured, cost, verify, right)
    best = max((value, length) for length, row in zip(lengths, values) for value in row)
    alt = f"Predicted speedup over acceptance and draft length, at most {best[0]:.2f}, at γ = {best[1]}. " + " ".join(
        f"{m.name or 'A run'} at α = {m.acceptance:.2f}, γ = {m.length}: measured {m.speedup:.2f}." for m in measured)
    return draw.svg(max(low + 62, Y + 60 * len(measured) + 40), body, "Theory and measurement", alt)


def cells(values: Sequence[Sequence[float]], lengths: Sequence[int], acceptances: Sequence[float]) -> list[str]:
    """A cell for each prediction, the longest draft at the top; its number in ink or paper, whichever reads better."""
    lowest, highest = min(map(min, values)), max(map(max, values))
    parts = []
    for k, (length, row) in enumerate(zip(lengths, values)):
        y = Y + HIGH * (len(lengths) - 1 - k)
        parts.append(draw.text(X - 10, y + 30, str(length), 15, "end", bold=True))
        for i, value in enumerate(row):
            fill = shade((value - lowest) / ((highest - lowest) or 1)) if value >= 1 else draw.ROLES["rejected"].tint
            parts.append(draw.rect(X + WIDE * i, y, WIDE, HIGH, fill, draw.PAPER, width=1))
            if value < 1:
                parts.append(draw.hatch(X + WIDE * i, y, WIDE, HIGH / 2, draw.HATCH))
            best = max((draw.INK, draw.PAPER), key=lambda colour: contrast(colour, fill))
            parts.append(draw.text(X + WIDE * (i + 0.5), y + 39, f"{value:.2f}", draw.SMALL, "middle", fill=best))
    low = Y + HIGH * len(lengths)
    return parts + [draw.text(X + WIDE * (i + 0.5), low + 20, f"{alpha:.2f}".removeprefix("0"), 14, "middle")
                    for i, alpha in enumerate(acceptances) if i % 2 == 0]


def place(measured: Sequence[Measured], lengths: Sequence[int],
          acceptances: Sequence[float]) -> list[tuple[float, float]]:
    """Centres of the dots, above the numbers of their row; dots that would cover each other stand side by side."""
    step, taken = acceptances[1] - acceptances[0], {}
    for index, m in sorted(enumerate(measured), key=lambda pair: pair[1].acceptance):
        x = X + WIDE * ((m.acceptance - acceptances[0]) / step + 0.5)
        x = min(max(x, X + 10), X + WIDE * len(acceptances) - 10)
        y = Y + HIGH * (len(lengths) - 1 - list(lengths).index(m.length)) + 13
        x = max([x, *(other + 22 for other, same in taken.values() if same == y)])
        taken[index] = (x, y)
    return [taken[index] for index in range(len(measured))]


def comparison(measured: Sequence[Measured], cost: float, verify: VerifyCurve, x: float) -> list[str]:
    """A row for each dot: the measured speedup as a bar, the predicted one as a mark across it."""
    predicted = [speedup(m.acceptance, m.length, cost, verify) for m in measured]
    scale = (draw.WIDTH - 20 - x) / max([1.0, *predicted, *(m.speedup for m in measured)])
    parts = [draw.text(x, 26, "Measured | predicted", 18, bold=True)] if measured else []
    for k, (m, theory) in enumerate(zip(measured, predicted)):
        y = Y + 60 * k
        words = f"{ascii_uppercase[k]}  {m.speedup:.2f} | {theory:.2f}  {m.name}"
        parts += [draw.text(x, y + 12, draw.fit(words, draw.WIDTH - 10 - x, 15), 15),
                  draw.rect(x, y + 20, m.speedup * scale, 18, draw.ROLES["target"].tint, draw.ROLES["target"].colour),
                  draw.line(x + theory * scale, y + 16, x + theory * scale, y + 42, draw.INK, 3)]
    return parts
