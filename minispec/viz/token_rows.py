"""Token sequences one below the other, each compared with the first: where does the text change?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import svg as draw
from .ribbon import HEIGHT, Decode, chip_width

ROW = HEIGHT + 14                                        # from one sequence to the next


def first_difference(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """The first position at which two sequences differ, one that ends too early or too late included; None if equal.

    Examples: first_difference([5, 7], [5, 9]) == 1; first_difference([5], [5, 7]) == 1.
    """
    for k, (token, right) in enumerate(zip(tokens, reference)):
        if token != right:
            return k
    return None if len(tokens) == len(reference) else min(len(tokens), len(reference))


def token_rows(rows: Mapping[str, Sequence[int]], decode: Decode) -> str:
    """One row for each name; the first row is what is right. decode: token ids -> text.

    A token that equals the first row's gets ✓, the first one that doesn't ✗; later ones are grey, since they follow
    another text. Long sequences are cut to the positions around the earliest difference. Raises ValueError without a
    row, or where the first one is empty.
    """
    if not rows or not next(iter(rows.values())):
        raise ValueError("token_rows needs at least one row, and tokens in the first: it is what the others must equal")
    reference = next(iter(rows.values()))
    differ = {name: first_difference(tokens, reference) for name, tokens in rows.items()}
    longest = max(map(len, rows.values()))
    left = 30 + max(draw.text_width(name, bold=True) for name in rows)
    texts = {token: draw.visible(decode([token])) for tokens in rows.values() for token in tokens}
    cell = min(112.0, max(64.0, *map(chip_width, texts.values())) + 4)
    room = int((draw.WIDTH - 20 - left) / cell)
    found = [k for k in differ.values() if k is not None]
    first = max(0, min(min(found, default=0) - room // 2, longest - room))
    places = range(first, min(first + room, longest))

    body = [draw.text(left + (k - first + 0.5) * cell, 18, str(k + 1), draw.SMALL, "middle", fill=draw.MUTED)
            for k in places]
    for number, (name, tokens) in enumerate(rows.items()):
        y = 28 + number * ROW
        body.append(draw.text(10, y + HEIGHT / 2 + 6, name, bold=True))
        for k in places:
            x, role = left + (k - first) * cell + 1, _role(number, k, differ[name])
            if k < len(tokens):
                body.append(draw.chip(x, y, cell - 4, HEIGHT, role, texts[tokens[k]], size=14,
                                      title=f"{name} {k + 1}: {draw.ROLES[role].name}"))
            else:
                body.append(draw.rect(x, y, cell - 4, HEIGHT, draw.PAPER, draw.MUTED, dash="4 4"))
    low = 28 + len(rows) * ROW + 12
    body += draw.legend(10, low, [("target", next(iter(rows))), ("accepted", "the same"),
                                  ("rejected", "the first that differs"), ("unjudged", "follows another text")])
    ends = "; ".join(f"{name}: " + ("equal" if k is None else f"differs from token {k + 1} on")
                     for name, k in list(differ.items())[1:])
    alt = f"{len(rows)} sequences of tokens. {ends or 'One row alone'}."
    return draw.svg(low + 22, body, "Sequences compared", alt)


def _role(row: int, k: int, differs: int | None) -> str:
    if row == 0:
        return "target"
    return "accepted" if differs is None or k < differs else "rejected" if k == differs else "unjudged"
