"""Which of the target's positions a row of a draft may read: those that are there when the row is fed, and that lie
before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import svg as draw

LEFT, TOP, CELL = 230, 62, 40


class View(NamedTuple):
    """A row of the draft. seen: how many of the target's first positions it reads; held: how many are there."""
    name: str
    position: int
    held: int
    seen: int


def target_views(views: Sequence[View], answers: Sequence[int] | None = None) -> str:
    """A line for each row of the draft, a column for each position of the target.

    answers: another count for each row; where it differs, the cells between the two are marked as wrong.
    """
    answers = [view.seen for view in views] if answers is None else list(answers)
    columns = max(max(view.position + 1, view.held, min(answer, view.position + 4))
                  for view, answer in zip(views, answers))
    wide = min(64.0, (draw.WIDTH - LEFT - 130) / columns)
    body = [draw.text(10, TOP - 14, "row of the draft", 14, fill=draw.MUTED),
            draw.text(LEFT + columns * wide + 14, TOP - 14, "reads", 14, fill=draw.MUTED)]
    body += [draw.text(LEFT + (c + 0.5) * wide, TOP - 14, str(c), 14, "middle") for c in range(columns)]
    for k, (view, answer) in enumerate(zip(views, answers)):
        y = TOP + k * (CELL + 4)
        body.append(draw.text(10, y + 26, draw.fit(view.name, LEFT - 20, 15), 15))
        body += [cell(LEFT + c * wide, y, wide, state_of(view, answer, c), f"{view.name}, target position {c}: "
                      f"{state_of(view, answer, c)}") for c in range(columns)]
        body.append(draw.text(LEFT + columns * wide + 14, y + 26, str(answer), bold=True))
        x = LEFT + (view.position + 0.5) * wide
        body.append(draw.path([(x - 7, y + CELL - 1), (x + 7, y + CELL - 1), (x, y + CELL - 10)], draw.INK, 1,
                              fill=draw.INK))
    low = TOP + len(views) * (CELL + 4) + 36
    body += looks(10, low, any(view.seen != answer for view, answer in zip(views, answers)))
    told = "; ".join(f"{view.name} reads {answer}" for view, answer in zip(views, answers))
    return draw.svg(low + 24, body, "What a row reads of the target", f"Target positions by row of the draft: {told}.")


def state_of(view: View, answer: int, column: int) -> str:
    if (column < answer) != (column < view.seen):
        return "wrong"
    return "read" if column < view.seen else "there, not read" if column < view.held else "not there"


def cell(x: float, y: float, wide: float, state: str, title: str = "") -> str:
    role = {"read": "target", "there, not read": "unjudged", "not there": "empty", "wrong": "rejected"}[state]
    mark = {"read": "•", "there, not read": "–", "not there": "", "wrong": "✗"}[state]
    box = draw.rect(x + 1, y, wide - 2, CELL, draw.ROLES[role].tint, draw.ROLES[role].colour, title=title)
    if state == "wrong":
        box += draw.hatch(x + 2, y + 1, wide - 4, CELL - 2, draw.HATCH)
    return box + draw.text(x + wide / 2, y + 23, mark, 15, "middle", bold=True)


def looks(x: float, y: float, wrong: bool) -> list[str]:
    """The key, and what the small triangle means."""
    parts = []
    for state, words in [("read", "read"), ("there, not read", "there, not read"), ("not there", "not there yet")
                         ] + [("wrong", "wrong")] * wrong:
        parts += [draw.group(x, y - 20, [cell(0, 0, 30, state)]), draw.text(x + 38, y + 5, words, 14)]
        x += 62 + draw.text_width(words, 14)
    return [*parts, draw.text(x, y + 5, "▴ the row's own position", 14)]
