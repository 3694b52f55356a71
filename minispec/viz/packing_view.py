"""The rows of a packed training pass twice: as a plane of anchors and depths, and as the mask between them.

A row is (anchor a, depth k): at depth 0 the text's token a, below it the k-th mask of the block that stands at a
(training/block.py). The plane shows what was dropped; the mask shows who may attend to whom.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..training.block import Packing
from . import svg as draw

TOP, TALL = 92, 400.0                                    # where the drawings begin; the most that they take
LOOKS = {                                                # (may attend, does attend): role, glyph, words
    (True, True): ("target", "•", "may attend"), (True, False): ("unjudged", "?", "may attend, doesn't"),
    (False, True): ("rejected", "✗", "attends, must not"), (False, False): ("empty", "", "")}


def packing_view(packing: Packing, row: int | None = None, yours: Sequence[Sequence[bool]] | None = None) -> str:
    """row: lights up, with all rows that it may attend to. yours: somebody's mask (R, R); its wrong cells are marked.

    Fits up to some 24 rows. Raises ValueError for a row that is not there, and for a mask of another shape.
    """
    places = list(zip(packing.anchor.tolist(), packing.depth.tolist()))
    right, count = packing.mask.tolist(), len(places)
    if row is not None and not 0 <= row < count:
        raise ValueError(f"row must be 0 to {count - 1}, got {row}")
    if yours is not None and [len(cells) for cells in yours] != [count] * count:
        raise ValueError(f"the mask of {count} rows has as many rows and columns, got {len(yours)} rows")
    lit = set() if row is None else {c for c in range(count) if right[row][c]}
    body = [draw.text(10, 26, "Rows by anchor and depth", 18, bold=True), *plane(10, TOP, places, row, lit),
            draw.text(486, 26, "The mask: row attends to column", 18, bold=True),
            *matrix(486, TOP, places, right, right if yours is None else yours, row)]
    words = [LOOKS[True, True]] if yours is None else list(LOOKS.values())[:3]
    low = TOP + TALL + 24
    body += key(486 if yours is None else 10, low, words)
    told = f"A packed pass of {count} rows."
    if row is not None:
        told += f" {name(places[row])} is lit: it attends to " + ", ".join(name(places[c]) for c in sorted(lit)) + "."
    if yours is not None:
        told += f" {len(faults(right, yours))} cells of the mask are wrong."
    return draw.svg(low + 24, body, "A packed training pass", told)


def name(place: tuple[int, int]) -> str:
    return f"({place[0]}, {place[1]})"


def faults(right: Sequence[Sequence[bool]], yours: Sequence[Sequence[bool]]) -> list[tuple[int, int]]:
    """(row, column) of the cells that differ."""
    return [(r, c) for r, cells in enumerate(right) for c, sees in enumerate(cells) if sees != bool(yours[r][c])]


def plane(x: float, y: float, places: Sequence[tuple[int, int]], row: int | None, lit: set[int]) -> list[str]:
    """A chip for each row that is there; a dashed one where a block inside the text was dropped."""
    depths = max(k for _, k in places) + 1
    length = max(a for a, _ in places) + 1
    wide, high = min(60.0, 390.0 / length), min(84.0, (TALL - 60) / depths)
    parts = [draw.text(x + 44, y - 34, "anchor →", 14, fill=draw.MUTED),
             draw.text(x, y - 12, "depth", 14, fill=draw.MUTED)]
    parts += [draw.text(x + 50 + (a + 0.5) * wide, y - 12, str(a), 14, "middle", bold=True) for a in range(length)]
    for k in range(depths):
        parts.append(draw.text(x + 30, y + (k + 0.5) * high + 2, str(k), 14, "end", bold=True))
        for a in range(length - k):
            left, top = x + 50 + a * wide + 2, y + k * high
            if (a, k) not in places:
                parts.append(draw.rect(left, top, wide - 4, high - 10, "none", draw.GRID, dash="4 4"))
                continue
            index = places.index((a, k))
            role, label = ("target", f"x{a}") if k == 0 else ("draft", "[m]")
            parts.append(draw.chip(left, top, wide - 4, high - 10, role, label, size=14, glyph=False,
                                   title=f"row {index}: {name((a, k))}, position {a + k}"))
            if index in lit:
                parts.append(draw.rect(left, top, wide - 4, high - 10, "none", draw.INK,
                                       width=5 if index == row else 2.5, round_=4,
                                       dash=None if index == row else "7 4"))
    low = y + depths * high + 14
    lines = ["A row stands at position anchor + depth", "and predicts the token after it."]
    return [*parts, *(draw.text(x + 50, low + 20 * k, line, 15) for k, line in enumerate(lines))]


def matrix(x: float, y: float, places: Sequence[tuple[int, int]], right: Sequence[Sequence[bool]],
           yours: Sequence[Sequence[bool]], row: int | None) -> list[str]:
    """The mask with (anchor, depth) at the left, row numbers above and on the left where there is room."""
    count = len(places)
    size, x0 = min(34.0, TALL / count, 390.0 / count), x + 76
    every = 1 if size >= 20 else 2
    parts = [draw.text(x0 + (c + 0.5) * size, y - 8, str(c), 13, "middle") for c in range(0, count, every)]
    for r in range(count):
        middle = y + (r + 0.5) * size + 4.5
        if r % every == 0:
            parts += [draw.text(x + 16, middle, str(r), 13, "end"),
                      draw.text(x0 - 6, middle, name(places[r]), 13, "end", bold=r == row)]
        for c in range(count):
            role, glyph, words = LOOKS[right[r][c], bool(yours[r][c])]
            left, top, look = x0 + c * size, y + r * size, draw.ROLES[role]
            fill = draw.PAPER if role == "empty" else draw.ROLES["bonus"].tint if r == row else look.tint
            parts.append(draw.rect(left, top, size, size, fill, draw.GRID, width=1,
                                   title=f"{name(places[r])} and {name(places[c])}: {words}" if words else ""))
            if role == "rejected":
                parts.append(draw.hatch(left + 1, top + 1, size - 2, size - 2, draw.HATCH))
            if glyph == "•":
                parts.append(draw.tag("circle", cx=left + size / 2, cy=top + size / 2, r=size * 0.16, fill=draw.INK))
            else:
                parts.append(draw.text(left + size / 2, top + size / 2 + 5, glyph, 14, "middle", bold=True))
    if row is not None:
        parts.append(draw.rect(x0, y + row * size, size * count, size, "none", draw.INK, width=3))
    return parts


def key(x: float, y: float, looks: Sequence[tuple[str, str, str]]) -> list[str]:
    parts = []
    for role, glyph, words in looks:
        parts += [draw.rect(x, y - 11, 22, 22, draw.ROLES[role].tint, draw.ROLES[role].colour),
                  draw.text(x + 11, y + 6, glyph, 16, "middle", bold=True), draw.text(x + 29, y + 5, words, 14)]
        x += 44 + draw.text_width(words, 14)
    return parts
