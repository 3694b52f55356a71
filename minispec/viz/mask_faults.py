"""A tree's mask as somebody built it, against the right one: which rows see too much, and which too little."""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.tree import TokenTree
from . import svg as draw

LOOKS = {(True, True): ("target", "•", "may attend, and does"),
         (True, False): ("unjudged", "?", "should see, doesn't"),
         (False, True): ("rejected", "✗", "sees, must not"), (False, False): ("empty", "", "")}


def mask_faults(tree: TokenTree, yours: Sequence[Sequence[bool]]) -> str:
    """Both masks in one grid of (1 + N, 1 + N) cells; row r attends to column c. Raises ValueError for other shapes."""
    right = tree.mask().tolist()
    rows = len(right)
    if [len(row) for row in yours] != [rows] * rows:
        raise ValueError(f"the mask of {len(tree)} nodes has {rows} rows of {rows} columns, "
                         f"got {len(yours)} rows of {sorted({len(row) for row in yours})}")
    size, body, faults = min(48.0, 400.0 / rows), [], []
    glyph_size = round(max(13.0, min(20.0, size - 5)))
    for r in range(rows):
        y = 90 + r * size
        body += [draw.text(128, y + size / 2 + 5, "root" if r == 0 else f"node {r - 1}", 15, "end", bold=True),
                 draw.text(140 + (r + 0.5) * size, 80, str(r), 14, "middle", bold=True),
                 draw.text(158 + rows * size, y + size / 2 + 5, f"row {r}", 14)]
        for c in range(rows):
            role, glyph, words = LOOKS[right[r][c], bool(yours[r][c])]
            x, look = 140 + c * size, draw.ROLES[role]
            if right[r][c] != bool(yours[r][c]):
                faults.append((r, c, words))
            body.append(draw.rect(x, y, size, size, draw.PAPER if role == "empty" else look.tint, draw.GRID,
                                  title=f"row {r}, column {c}: {words}" if words else ""))
            if role == "rejected":
                body.append(draw.hatch(x + 1, y + 1, size - 2, size - 2, draw.HATCH))
            body.append(draw.text(x + size / 2, y + size / 2 + 6, glyph, glyph_size, "middle", bold=True))
    x = 140.0
    for role, glyph, words in list(LOOKS.values())[:3]:
        body += [draw.rect(x, 14, 26, 26, draw.ROLES[role].tint, draw.ROLES[role].colour),
                 draw.text(x + 13, 33, glyph, 18, "middle", bold=True), draw.text(x + 34, 32, words, 15)]
        x += 70 + draw.text_width(words, 15)
    alt = f"A mask of {rows} rows with {len(faults)} wrong cells" + "".join(
        f"; row {r}, column {c}: {words}" for r, c, words in faults[:3]) + "."
    return draw.svg(110 + rows * size, body, "The mask, cell by cell", alt)
