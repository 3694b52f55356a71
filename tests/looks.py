"""What can be said of a drawing's looks without eyes: texts apart, on the paper, large, and legible on what lies below."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from test_viz import boxes

from minispec.viz.surface import contrast


def looks_wrong(drawing: str) -> Iterator[str]:
    """A sentence for each fault. Texts are measured with the drawing kit's own upper estimate."""
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', drawing).groups())
    if min(map(float, re.findall(r'font-size="(\S+)"', drawing))) < 13:
        yield "there is text smaller than 13"
    texts, below = [], []
    for box in boxes(drawing):
        if box.kind == "rect":
            below.append(box)
            continue
        texts.append(box)
        if not (0 <= box.left and box.right <= width and 0 <= box.top and box.bottom <= height):
            yield f"off the paper: {box}"
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        paper = next(r for r in reversed(below) if r.left <= x <= r.right and r.top <= y <= r.bottom)
        if contrast(box.colour, paper.colour) < 4.5:
            yield f"faint: {box} on {paper}"
    for a, b in itertools.combinations(texts, 2):
        if not (a.right <= b.left + 1 or b.right <= a.left + 1 or a.bottom <= b.top + 1 or b.bottom <= a.top + 1):
            yield f"overlap: {a} and {b}"
