"""Right and given, side by side: what the checks of the lessons draw for an answer that is a list of numbers or names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import svg as draw

BASE, TALL = 300.0, 190.0


def compare(labels: Sequence[str], right: Sequence[float], given: Sequence[float], title: str,
            tolerance: float = 1e-9) -> str:
    """Two bars for each label: the right value, and the given one, hatched and crossed where it differs.

    Values below 0, or not finite, are written but have no bar. labels: at most 16. Raises ValueError for lists of
    different length.
    """
    if not len(labels) == len(right) == len(given):
        raise ValueError(f"{len(labels)} labels, {len(right)} right and {len(given)} given values: give as many of each")
    tallest = max([v for v in (*right, *given) if math.isfinite(v) and v > 0], default=1.0)
    step = (draw.WIDTH - 40) / max(len(labels), 3)
    wide = min(56.0, step * 0.4)
    body = [draw.text(20, 34, title, 20, bold=True),
            draw.chip(20, 54, 22, 20, "target", glyph=False), draw.text(48, 69, "right", 14),
            *draw.legend(110, 64, [("accepted", "given, the same"), ("rejected", "given, wrong")])]
    for k, (label, a, b) in enumerate(zip(labels, right, given)):
        middle = 20 + (k + 0.5) * step
        same = math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
        for x, value, role in ((middle - wide - 2, a, "target"), (middle + 2, b, "accepted" if same else "rejected")):
            high = TALL * value / tallest if math.isfinite(value) and value > 0 else 0.0
            if high >= 1:
                body.append(draw.chip(x, BASE - high, wide, high, role, glyph=high > 20 and role != "target",
                                      title=f"{label}: {value:.6g}"))
            mark = " ✗" if role == "rejected" and high <= 20 else ""                 # no room for it in the bar
            words = short(value, wide - draw.text_width(mark, 13)) + mark
            body.append(draw.text(x + wide / 2, BASE - high - 7, words, 13, "middle"))
        body.append(draw.text(middle, BASE + 22, draw.fit(label, step - 6, 14), 14, "middle"))
    wrong = [label for label, a, b in zip(labels, right, given)
             if not math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)]
    alt = f"{title}. Wrong at: {', '.join(wrong) or 'nowhere'}."
    return draw.svg(BASE + 44, [*body, draw.line(20, BASE, draw.WIDTH - 20, BASE)], title, alt)


def short(value: float, room: float) -> str:
    """As many digits as fit above a bar."""
    return next((words for words in (f"{value:.4g}", f"{value:.3g}", f"{value:.2g}", f"{value:.1g}", f"{value:.0f}")
                 if draw.text_width(words, 13) <= room + 4), "")


def chip_rows(rows: Mapping[str, Sequence[tuple[str, str]]], title: str) -> str:
    """Named rows of (label, role) chips, one below the other, so that the eye compares column by column.

    A role that isn't one of ours is written where the glyph would stand.
    """
    most = max((len(row) for row in rows.values()), default=1) or 1
    wide = min(110.0, (draw.WIDTH - 150) / most)
    body = [draw.text(20, 34, title, 20, bold=True)]
    for k, (name, row) in enumerate(rows.items()):
        y = 56 + k * 62
        body.append(draw.text(20, y + 28, draw.fit(name, 100), bold=True))
        for c, (label, role) in enumerate(row):
            x = 130 + c * wide
            if role in draw.ROLES:
                body.append(draw.chip(x, y, wide - 4, 46, role, label, title=f"{name}: {role}"))
            else:
                body += [draw.chip(x, y, wide - 4, 46, "unjudged", title=f"{name}: {role}", glyph=False),
                         draw.text(x + wide / 2 - 2, y + 28, draw.fit(f"{role}?", wide - 8, 14), 14, "middle")]
    told = "; ".join(f"{name}: {', '.join(role for _, role in row)}" for name, row in rows.items())
    roles = dict.fromkeys(role for row in rows.values() for _, role in row if role in draw.ROLES)
    low = 70 + len(rows) * 62
    body += draw.legend(20, low, [(role, draw.ROLES[role].name) for role in roles])
    return draw.svg(low + 24, body, title, f"{title}. {told}.")
