"""Masks of passes as grids, side by side: a row for each row of the pass, a column for all that it might attend to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import svg as draw


class Mask(NamedTuple):
    """rows, columns: their labels; sees[r][c]: may row r attend to column c? note: a line below the grid."""
    rows: Sequence[str]
    columns: Sequence[str]
    sees: Sequence[Sequence[bool]]
    note: str = ""


def mask_grids(masks: Mapping[str, Mask]) -> str:
    """One or two named masks. Raises ValueError for more, or where labels and cells don't fit together."""
    if not 1 <= len(masks) <= 2:
        raise ValueError(f"one or two masks fit side by side, got {len(masks)}")
    for name, mask in masks.items():
        if [len(row) for row in mask.sees] != [len(mask.columns)] * len(mask.rows):
            raise ValueError(f"the mask {name!r} must have {len(mask.rows)} rows of {len(mask.columns)} cells")
    wide = (draw.WIDTH - 20) / len(masks)
    body, low = [], 0.0
    for k, (name, mask) in enumerate(masks.items()):
        size = min(46.0, (wide - 90) / len(mask.columns))
        x, y = 10 + k * wide, 84.0
        body += [draw.text(x, 28, name, 18, bold=True), *grid(x + 64, y, size, mask),
                 draw.text(x, y + len(mask.rows) * size + 30, mask.note, 15)]
        low = max(low, y + len(mask.rows) * size + 48)
    told = "; ".join(f"{name}: " + ", ".join(f"{label} attends to {', '.join(seen(mask, r))}"
                                             for r, label in enumerate(mask.rows)) for name, mask in masks.items())
    return draw.svg(low, body, "Who may attend to whom", f"{told}.")


def seen(mask: Mask, row: int) -> list[str]:
    """The labels of the columns that a row may attend to."""
    return [label for label, sees in zip(mask.columns, mask.sees[row]) if sees]


def grid(x: float, y: float, size: float, mask: Mask) -> list[str]:
    """Column labels above, row labels at the left, a dot where a row may attend."""
    parts = [draw.text(x + (c + 0.5) * size, y - 10, label, 15, "middle", mono=True)
             for c, label in enumerate(mask.columns)]
    for r, label in enumerate(mask.rows):
        parts.append(draw.text(x - 10, y + (r + 0.5) * size + 5, label, 15, "end", mono=True))
        for c, sees in enumerate(mask.sees[r]):
            parts.append(cell(x + c * size, y + r * size, size, sees,
                              f"{label} attends to {mask.columns[c]}" if sees else ""))
    return parts


def cell(x: float, y: float, size: float, sees: bool, title: str = "") -> str:
    """Tinted with a dot, or paper."""
    fill = draw.ROLES["target"].tint if sees else draw.PAPER
    box = draw.rect(x, y, size, size, fill, draw.GRID, width=1, title=title)
    dot = draw.tag("circle", cx=x + size / 2, cy=y + size / 2, r=max(2.5, size * 0.14), fill=draw.INK)
    return box + (dot if sees else "")
