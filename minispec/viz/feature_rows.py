"""The rows of a feature draft through one round: which read a true feature, which a guess, and which are read again.

Row t reads token t + 1 and the feature of position t. With n committed tokens the target has read n - 1 of them: rows
up to n - 2 have true features. The rows after them stand on the draft's own guesses, and leave the cache when the
proposal has been judged.
"""

from __future__ import annotations

from typing import NamedTuple

from ..decoding.trace import Round
from . import svg as draw
from .ribbon import Decode

LEFT, TOP, CELL = 150, 84, 40                            # where columns begin; the first row of boxes; a box's height


class Row(NamedTuple):
    """One row of the draft at one step. state: "kept", "new" (fed in this step), "dropped", or "" (not there)."""
    token: int | None                                    # token t + 1, None where it is not known yet
    feature: str                                         # "true", "guess", or "" (not known yet)
    state: str


def feature_steps(r: Round) -> int:
    """Pictures of a round: one a draft pass, the verification, the rollback, and the next proposal's first pass."""
    return len(r.tokens) + 3


def feature_states(r: Round, step: int) -> dict[int, Row]:
    """{t: row} from the first row that this round feeds to the last one it touches. Committed tokens that the trace
    doesn't hold have token None."""
    n, length, kept = r.context, len(r.tokens), len(r.path)
    first, after = r.draft_cache[0], n + kept            # rows with true features, once all is judged: 0 .. after - 1
    found = {}
    for t in range(first, max(n - 1 + length, after)):
        guess = t - (n - 1)                              # 0 is the first row that stands on a guess
        token = r.emitted[guess] if step > length and 0 <= guess < len(r.emitted) else (
            r.tokens[guess] if 0 <= guess < length and (guess <= step - 1 or step >= length) else None)
        if step < length:                                # draft passes
            feature = "true" if guess < 0 else "guess" if guess < step else ""
            state = "new" if (guess < 0 and step == 0) or guess == step - 1 >= 0 else (
                "kept" if guess < 0 or guess < step - 1 else "")
        elif step == length:                             # the target has read row by row what was proposed
            feature = "true" if guess <= length else ""
            state = "kept" if guess < length - 1 else ""
        else:
            feature = "true" if t < after else ""
            state = ("kept" if guess < 0 else "dropped" if step == length + 1 and guess < length - 1 else
                     "new" if step == length + 2 and t < after else "")
            token = token if t < after or state == "dropped" else None
        found[t] = Row(token, feature, state)
    return found


def feature_caption(r: Round, step: int) -> str:
    n, length, kept = r.context, len(r.tokens), len(r.path)
    before, top, rest = r.draft_cache
    if step == 0:
        return f"The first pass reads {rows(n - 1 - before)} with true features, and draws guess 1."
    if step < length:
        return f"Pass {step + 1} reads guess {step} and a guess at the feature before it, and draws guess {step + 1}."
    if step == length:
        return f"The target reads the last token and all {length} guesses in one pass: now it has true features there."
    if step == length + 1:
        return f"{kept} of {length} guesses stay. The cache goes back from {top} rows to {rest}, whatever was accepted."
    return f"The next proposal's first pass reads {rows(kept + 1)} with true features: no row keeps a guess."


def rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def feature_rows(r: Round, decode: Decode, step: int) -> str:
    """One step of a round of a FeatureDrafter; step: 0 .. feature_steps(r) - 1."""
    rows = feature_states(r, step)
    wide = min(110.0, (draw.WIDTH - LEFT - 10) / len(rows))
    body = [draw.text(LEFT - 12, TOP + k * (CELL + 8) + 25, words, 15, "end", bold=True)
            for k, words in enumerate(("token t + 1", "feature of t", "draft's cache"))]
    body.append(draw.text(LEFT - 12, TOP - 14, "row t", 15, "end", fill=draw.MUTED))
    for k, (t, row) in enumerate(rows.items()):
        x = LEFT + k * wide + 2
        committed = t < r.context - 1 + len(r.emitted) * (step > len(r.tokens))
        name = draw.visible(decode([row.token])) if row.token is not None else (
            "" if not committed else "committed" if wide > 92 else "…")
        body += [draw.text(x + wide / 2 - 2, TOP - 14, str(t), 14, "middle"),
                 draw.chip(x, TOP, wide - 4, CELL, "target" if committed else "draft" if name else "empty",
                           draw.fit(name, wide - 10, 14, mono=True), size=14, glyph=False),
                 feature_box(x, TOP + CELL + 8, wide - 4, row.feature),
                 cache_box(x, TOP + 2 * (CELL + 8), wide - 4, row)]
    low = TOP + 3 * (CELL + 8) + 24
    body += [draw.text(10, 32, f"step {step + 1}: {TITLES[min(max(step - len(r.tokens), -1), 2)]}", 20, bold=True),
             *looks(10, low)]
    return draw.svg(low + 24, body, "Rows of a feature draft", f"{len(rows)} rows. {feature_caption(r, step)}")


TITLES = {-1: "draft", 0: "verify", 1: "roll back", 2: "the next proposal begins"}


def feature_box(x: float, y: float, w: float, feature: str) -> str:
    """h: the target's own; h′ on paper, dashed: the draft's guess."""
    looks = {"true": ("target", "h", None), "guess": ("draft", "h′", "5 3"), "": ("empty", "", None)}
    role, words, dash = looks[feature]
    fill = draw.PAPER if feature == "guess" else draw.ROLES[role].tint
    return (draw.rect(x, y, w, CELL, fill, draw.ROLES[role].colour, dash=dash, width=2)
            + draw.text(x + w / 2, y + 26, words, 18, "middle", bold=True))


def cache_box(x: float, y: float, w: float, row: Row) -> str:
    """· kept, + fed in this step, × dropped and hatched."""
    role = {"kept": "draft", "new": "draft", "dropped": "rejected", "": "empty"}[row.state]
    glyph = {"kept": "·", "new": "+", "dropped": "×", "": ""}[row.state]
    edge = draw.INK if row.state == "new" else draw.ROLES[role].colour
    box = draw.rect(x, y, w, CELL, draw.ROLES[role].tint, edge, width=3 if row.state == "new" else 1.5)
    if row.state == "dropped":
        box += draw.hatch(x + 1, y + 1, w - 2, CELL - 2, draw.HATCH)
    return box + draw.text(x + w / 2, y + 26, glyph, 18, "middle", bold=True)


def looks(x: float, y: float) -> list[str]:
    """The key: what the boxes say."""
    parts = []
    for glyph, words in (("h", "the target's feature"), ("h′", "the draft's guess at it"), ("+", "fed in this step"),
                         ("·", "in the cache"), ("×", "dropped")):
        parts += [draw.text(x, y + 5, glyph, 16, bold=True), draw.text(x + 32, y + 5, words, 14)]
        x += 48 + draw.text_width(words, 14)
    return parts
