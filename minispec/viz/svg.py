"""The drawing kit: figures are SVG text, put together from a few pure functions. Equal input gives equal bytes.

Every role in a round has one colour, one glyph and one name, in all figures (the colours are Okabe and Ito's, told
apart with any colour vision; meaning never hangs on colour alone). Text is always dark on paper or on a light tint.
Sizes are in units of a drawing 960 wide: it fills the screen of a lecture hall, and nothing is smaller than 13.

Left out on purpose: clip paths, patterns, style sheets and everything else that needs an id, because many figures
share a page. Hatching is drawn line by line.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 960                                     # of every figure
INK, MUTED, GRID, PAPER = "#1a1a1a", "#595959", "#d4d4d4", "#ffffff"
HATCH = "#eba477"                               # light enough for text on top of it
SMALL, BODY = 13, 16                            # text sizes
SANS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
MONO = "Menlo,Consolas,monospace"


class Role(NamedTuple):
    colour: str
    tint: str                                   # light enough for dark text
    glyph: str
    name: str


ROLES = {
    "target": Role("#0072b2", "#cfe3f0", "p", "target"),
    "draft": Role("#e69f00", "#fbecca", "q", "draft"),
    "accepted": Role("#009e73", "#c8ebe0", "✓", "accepted"),
    "rejected": Role("#d55e00", "#f9dcc8", "✗", "rejected"),
    "correction": Role("#cc79a7", "#f5dfec", "↻", "correction"),
    "bonus": Role("#56b4e9", "#d9effb", "★", "bonus"),
    "unjudged": Role("#8c8c8c", "#efefef", "–", "not judged"),
    "empty": Role("#c4c4c4", "#f4f4f4", "", "empty"),
}


def num(x: float) -> str:
    """One decimal at most, no trailing zero, no minus zero: a tenth of a unit is finer than any screen."""
    return f"{round(x, 1) + 0:g}"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. Underscores in names become hyphens, numbers are rounded, None is left out; content must be XML."""
    values = {key.replace("_", "-"): num(value) if isinstance(value, float) else escape(str(value))
              for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{value}"' for key, value in values.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def rect(x: float, y: float, w: float, h: float, fill: str = PAPER, stroke: str | None = None, *, title: str = "",
         width: float = 1.5, dash: str | None = None, round_: float = 0) -> str:
    return tag("rect", tag("title", escape(title)) if title else "", x=float(x), y=float(y), width=float(w),
               height=float(h), fill=fill, stroke=stroke, stroke_width=width if stroke else None, stroke_dasharray=dash,
               rx=round_ or None)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = INK, width: float = 1.5,
         dash: str | None = None) -> str:
    return path([(x1, y1), (x2, y2)], stroke, width, dash)


def path(points: Iterable[tuple[float, float]], stroke: str = INK, width: float = 1.5, dash: str | None = None,
         fill: str = "none") -> str:
    """Straight lines through the points; filled and closed where a fill is given."""
    d = "M" + "L".join(f"{num(x)} {num(y)}" for x, y in points) + ("" if fill == "none" else "Z")
    return tag("path", d=d, fill=fill, stroke=stroke, stroke_width=width, stroke_dasharray=dash)


def text(x: float, y: float, words: str, size: int = BODY, anchor: str = "start", *, bold: bool = False,
         mono: bool = False, fill: str = INK) -> str:
    """One line of text; y is the base line. anchor: "start", "middle" or "end"."""
    return tag("text", escape(words), x=float(x), y=float(y), font_size=size, fill=fill,
               text_anchor=None if anchor == "start" else anchor, font_weight="bold" if bold else None,
               font_family=MONO if mono else None) if words else ""


def hatch(x: float, y: float, w: float, h: float, colour: str, step: float = 8, width: float = 1.2) -> str:
    """Slanted lines over a box. Line k holds the points whose offsets from the box's corner add up to k."""
    ks = [step * (i + 0.5) for i in range(int((w + h) / step + 0.5))]
    ends = [(x + max(0, k - h), y + min(k, h), x + min(k, w), y + max(0, k - w)) for k in ks]
    d = "".join(f"M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}" for x1, y1, x2, y2 in ends)
    return tag("path", d=d, fill="none", stroke=colour, stroke_width=width) if d else ""


def head(x: float, y: float, size: float = 8) -> str:
    """The head of an arrow that points down to (x, y)."""
    return path([(x - size, y - 1.7 * size), (x + size, y - 1.7 * size), (x, y)], INK, 1, fill=INK)


def group(x: float, y: float, parts: Iterable[str]) -> str:
    return tag("g", "".join(parts), transform=f"translate({num(x)} {num(y)})")


def text_width(words: str, size: float = BODY, *, mono: bool = False, bold: bool = False) -> float:
    """An upper estimate over the usual sans-serif fonts: labels spaced by it don't overlap, whatever font is there."""
    def em(c: str) -> float:
        if unicodedata.combining(c):
            return 0.0
        if unicodedata.east_asian_width(c) in "WF":
            return 1.0
        if mono:
            return 0.61
        if c.isalpha():
            return 0.95 if c in "mwMW" else 0.75 if c.isupper() else 0.34 if c in "ijl" else 0.64
        return 0.4 if c in " ,.:;|'!()[]/·" else 0.64 if c.isdigit() else 0.95
    return size * sum(map(em, words)) * (1.1 if bold and not mono else 1)


def fit(words: str, room: float, size: float = BODY, *, mono: bool = False) -> str:
    """The words, cut with … to the room there is; "" where not even one letter fits."""
    if text_width(words, size, mono=mono) <= room:
        return words
    while words and text_width(words + "…", size, mono=mono) > room:
        words = words[:-1]
    return words + "…" if words else ""


def visible(words: str) -> str:
    """A token's text with its white space made visible: · a space (·×6 for six), ↵ a line break, ⇥ a tab."""
    for length in range(len(words), 3, -1):
        words = words.replace(" " * length, f"·×{length}")
    words = words.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    return "".join(c if c.isprintable() else "�" for c in words) or "∅"


def chip(x: float, y: float, w: float, h: float, role: str, label: str = "", *, size: int = BODY, title: str = "",
         glyph: bool = True) -> str:
    """A token in its role: the label above its glyph, or the glyph alone. Rejected ones are hatched as well."""
    r, mark = ROLES[role], ROLES[role].glyph if glyph else ""
    if mark and label and h < 36:
        label, mark = f"{mark} {label}", ""                  # no room for two lines
    two, low = bool(mark and label), y + h / 2 + size * 0.36     # low: base line of a single centred line
    parts = [rect(x, y, w, h, r.tint, r.colour, title=title, width=2, round_=4)]
    if role == "rejected":
        parts.append(hatch(x + 1, y + 1, w - 2, h - 2, HATCH))
    parts += [text(x + w / 2, low - two * size * 0.55, fit(label, w - 6, size, mono=True), size, "middle", mono=True),
              text(x + w / 2, low + two * size * 0.62, mark, size - two, "middle", bold=True)]
    return "".join(parts)


def legend(x: float, y: float, entries: Sequence[tuple[str, str]], size: int = 14) -> list[str]:
    """(role, words) entries in a row, each a small chip with its glyph and the words. y: the middle of the row."""
    parts = []
    for role, words in entries:
        parts += [chip(x, y - 10, 22, 20, role, size=14), text(x + 28, y + size * 0.36, words, size)]
        x += 28 + text_width(words, size) + 16
    return parts


def svg(height: float, body: Iterable[str], title: str, alt: str, width: float = WIDTH) -> str:
    """A whole figure on paper. title: its name (a tooltip); alt: one or two sentences for who can't see it."""
    return tag("svg", tag("title", escape(title)) + rect(0, 0, width, height) + "".join(body),
               xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {num(width)} {num(height)}", width=num(width),
               height=num(height), role="img", aria_label=alt, font_family=SANS, style="max-width:100%;height:auto")


def figure(drawing: str, alt: str) -> str:
    """HTML around an SVG that is shown in the page itself."""
    return f'<figure role="img" aria-label="{escape(alt)}" style="margin:0">{drawing}</figure>'


def img(drawing: str, alt: str) -> str:
    """HTML that shows an SVG where inline drawings are stripped (untrusted notebooks, some hosts)."""
    code = base64.b64encode(drawing.encode()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{code}" style="max-width:100%">'
