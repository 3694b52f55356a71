"""Where a cache's length should stand after a round, and where an answer puts it. For checks of exercises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import svg as draw
from .cache_grid import CELL, slot_box

LEFT, ROW = 96, 128                                      # where slots begin; height of a cache with its two markers


class Answer(NamedTuple):
    """One cache: slots written before the rollback, the length it should have after it, the length given."""
    written: int
    right: int
    given: int


def cache_lengths(tokens: Sequence[str], answers: Mapping[str, Answer]) -> str:
    """One row of slots for each cache ("target", "draft"). tokens: what was fed or proposed, by position.

    Slots up to the right length are tinted, later ones are hatched: they must go. Below, ✓ marks the right length
    and ✗ the one given, where it differs. A length that no cache can have is drawn at its nearer end, with its number.
    """
    wide = min(84.0, (draw.WIDTH - LEFT - 30) / max(len(tokens), *(answer.written for answer in answers.values())))
    body = [draw.text(LEFT + (k + 0.5) * wide, 16, str(k), draw.SMALL, "middle", fill=draw.MUTED)
            for k in range(len(tokens))]
    for row, (model, answer) in enumerate(answers.items()):
        body.append(draw.group(0, 24 + row * ROW, cache(model, answer, tokens, wide)))
    told = "; ".join(f"{model}: {answer.right} is right, {answer.given} was given" for model, answer in answers.items())
    alt = f"Lengths of the caches after the rollback. {told}."
    return draw.svg(24 + ROW * len(answers), body, "Cache lengths", alt)


def cache(model: str, answer: Answer, tokens: Sequence[str], wide: float) -> list[str]:
    """A row of slots, the right length below it and the given one below that."""
    parts = [draw.text(10, 25, model, bold=True)]
    for slot, token in enumerate(tokens):
        x = LEFT + slot * wide
        state = "kept" if slot < answer.right else "rejected"
        empty = slot >= answer.written
        parts.append(draw.rect(x + 1, 0, wide - 2, CELL, draw.PAPER, draw.GRID, width=1) if empty else
                     slot_box(x + 1, 0, wide - 2, CELL, state, model))
        if not empty:
            parts.append(draw.text(x + wide / 2, 24, draw.fit(token, wide - 6, 14, mono=True), 14, "middle", mono=True))
    same = answer.given == answer.right
    if not same:                                         # below the other one, whose words may cross its line
        parts += marker(answer.given, 88, f"✗ {answer.given} is yours", wide, len(tokens))
    words = f"✓ {answer.right}" + (" is right, and yours" if same else " is right")
    return parts + marker(answer.right, 58, words, wide, len(tokens))


def marker(length: int, y: float, words: str, wide: float, count: int) -> list[str]:
    """A line from the end of slot length - 1 down to some words."""
    x = LEFT + min(max(length, 0), count) * wide
    half = draw.text_width(words, bold=True) / 2
    middle = min(max(x, LEFT + half), draw.WIDTH - 10 - half)
    return [draw.line(x, CELL - 4, x, y - 13, draw.INK, 3), draw.rect(middle - half, y - 12, 2 * half, 20),
            draw.text(middle, y + 4, words, anchor="middle", bold=True)]
