"""Who computes which layer for which token: one round of a shared backbone step by step, and the bill of three designs.

A cell is one token's row in one layer. The *data* are in `computed` and `bill`; the rest is drawing.
"""

from __future__ import annotations

from typing import NamedTuple

from ..decoding.trace import Round
from . import svg as draw
from .cache_states import fates
from .ribbon import Decode

Cell = tuple[int, int]                                   # (layer, column): column 0 is the last committed token
LEFT, CELL, TOP = 110, 32, 76                            # of the grid on paper


def computed(layers: int, exit: int, length: int) -> dict[Cell, int]:
    """{cell: the step that computes it}. Steps 0 .. length - 1 draft a token each, step `length` reads the last guess
    in the lower layers, and the next one takes all length + 1 rows through the upper layers."""
    return {(layer, column): min(column, length) if layer < exit else length + 1
            for layer in range(layers) for column in range(length + 1)}


def layer_steps(r: Round) -> int:
    """Pictures of a round: one for each draft pass, two for the verification, one for the verdict."""
    return len(r.tokens) + 3


def layer_caption(r: Round, exit: int, step: int) -> str:
    n, layers = len(r.tokens), len(r.layer_tokens)
    if step < n:
        read = "the last committed token" if step == 0 else f"guess {step}"
        return f"Draft pass {step + 1}: layers 0 to {exit - 1} read {read}, the head guesses token {step + 1}."
    if step == n:
        return f"Verification begins: guess {n} was drawn but never fed, so layers 0 to {exit - 1} read it now."
    if step == n + 1:
        return (f"Verification goes on from the exit: layers {exit} to {layers - 1} take all {n + 1} rows in one pass. "
                f"What was drafted is not computed again.")
    return (f"{r.accepted} of {n} guesses stay, with keys and values in all layers. Every layer processed "
            f"{r.layer_tokens[0]} rows, {sum(r.layer_tokens)} in all.")


def layer_grid(r: Round, exit: int, decode: Decode, step: int | None = None) -> str:
    """One round of a SharedBackbone, rows = layers (the last one on top), columns = tokens.

    step: 0 .. layer_steps(r) - 1, default the last. Raises ValueError for a round that did not go on from its draft:
    its layers did not all process len(tokens) + 1 rows.
    """
    n, step = len(r.tokens), layer_steps(r) - 1 if step is None else step
    if r.layer_tokens is None or set(r.layer_tokens) != {n + 1}:
        raise ValueError(f"a round that goes on from {n} drafted tokens takes {n + 1} rows through every layer, this "
                         f"one has layer_tokens = {r.layer_tokens}")
    layers, wide = len(r.layer_tokens), min(110.0, (draw.WIDTH - LEFT - 200) / (n + 1))
    when, judged = computed(layers, exit, n), ["accepted", *fates(r)]
    names = ["last token", *(draw.visible(decode([token])) for token in r.tokens)]
    body = [draw.text(LEFT + wide * (n + 1) + 30, TOP - 12, "rows so far", 15, bold=True)]
    for column, name in enumerate(names):
        known = column <= step or step > n
        body.append(header(LEFT + column * wide, wide, name if known else "", judged[column], step == n + 2, column))
    for layer in range(layers):
        y = TOP + (layers - 1 - layer) * CELL
        body.append(draw.text(LEFT - 12, y + 21, f"layer {layer}", 15, "end"))
        done = [column for column in range(n + 1) if when[layer, column] <= step]
        for column in range(n + 1):
            gone = step == n + 2 and judged[column] != "accepted"
            body.append(cell(LEFT + column * wide, y, wide, who(when[layer, column], n) if column in done else "empty",
                             now=when[layer, column] == step, gone=gone,
                             title=f"layer {layer}, column {column}, step {when[layer, column]}"))
        body.append(draw.text(LEFT + wide * (n + 1) + 30, y + 21, str(len(done)), bold=True))
    line = TOP + (layers - exit) * CELL
    body += [draw.line(LEFT - 90, line, LEFT + wide * (n + 1) + 10, line, draw.INK, 2.5, "8 4"),
             draw.text(LEFT + wide * (n + 1) + 60, line + 5, "exit: the head guesses", 14)]
    low = TOP + layers * CELL + 28
    body += looks(10, low, step == n + 2)
    alt = (f"{layers} layers and {n + 1} tokens, step {step + 1} of {layer_steps(r)}. {layer_caption(r, exit, step)}")
    return draw.svg(low + 24, body, "Who computes which layer", alt)


def who(step: int, length: int) -> str:
    """The role whose work a step is."""
    return "draft" if step < length else "target"


def header(x: float, wide: float, name: str, fate: str, judged: bool, column: int) -> str:
    """A token above its column; after the verdict with the glyph of its fate."""
    role = fate if judged and column else "target" if column == 0 else "draft" if name else "empty"
    return draw.chip(x + 2, TOP - 56, wide - 4, 44, role, draw.fit(name, wide - 8, 14, mono=True), size=14,
                     glyph=judged and column > 0)


def cell(x: float, y: float, wide: float, role: str, *, now: bool = False, gone: bool = False, twice: bool = False,
         title: str = "", high: float = CELL) -> str:
    """A row of one layer: q drafted, p verification; dark edge: in this step; hatched: for nothing."""
    look = draw.ROLES[role]
    box = draw.rect(x + 2, y + 2, wide - 4, high - 4, look.tint, draw.INK if now else look.colour, title=title,
                    width=3 if now else 1.5)
    if gone or twice:
        box += draw.hatch(x + 3, y + 3, wide - 6, high - 6, draw.HATCH)
    return box + draw.text(x + wide / 2, y + high / 2 + 5, "2×" if twice else look.glyph, 14, "middle", bold=True)


def looks(x: float, y: float, judged: bool) -> list[str]:
    parts = []
    for role, gone, words in [("draft", False, "computed while drafting"), ("target", False, "computed in verification")
                              ] + [("target", True, "for a guess that did not stay")] * judged:
        parts += [cell(x, y - 12, 34, role, gone=gone, high=24), draw.text(x + 42, y + 5, words, 14)]
        x += 60 + draw.text_width(words, 14)
    return parts


# --- the bill ---------------------------------------------------------------------------------------------------------

class Bill(NamedTuple):
    """Rows through layers in one round: of the draft (its own layers, where it has a model of its own), of the target's
    verification, and how many of them were computed before."""
    draft: int
    verify: int
    twice: int


def bill(layers: int, exit: int, length: int, *, shared: bool = True, own_layers: int = 0) -> Bill:
    """A round of `length` drafted tokens. shared: verification goes on from the exit; own_layers: a separate draft."""
    if own_layers:
        return Bill(own_layers * length, layers * (length + 1), 0)
    again = 0 if shared else exit * length
    return Bill(exit * length, layers * (length + 1) - exit * length + again, again)


def layer_bill(layers: int, exit: int, length: int, own_layers: int) -> str:
    """Three designs side by side: a shared backbone, the same exit with nothing shared, a draft of `own_layers`."""
    designs = {"goes on from the exit": bill(layers, exit, length),
               "exit draft, nothing kept": bill(layers, exit, length, shared=False),
               "a draft of its own": bill(layers, exit, length, own_layers=own_layers)}
    room, high = (draw.WIDTH - 20 - 2 * 40) / 3, 24
    body = []
    for k, (name, cost) in enumerate(designs.items()):
        body.append(draw.group(10 + k * (room + 40), 0, panel(name, cost, layers, exit, length,
                                                               own_layers if k == 2 else 0, k == 1, room, high)))
    low = 92 + (layers + own_layers) * high + 46
    body += looks(10, low, False) + [cell(560, low - 12, 34, "target", twice=True, high=24),
                                     draw.text(602, low + 5, "computed a second time", 14)]
    told = "; ".join(f"{name}: {cost.draft} drafting and {cost.verify} verifying, {cost.twice} of them a second time"
                     for name, cost in designs.items())
    return draw.svg(low + 24, body, "The bill of a round", f"Rows through layers in a round. {told}.")


def panel(name: str, cost: Bill, layers: int, exit: int, length: int, own_layers: int, again: bool, room: float,
          high: float) -> list[str]:
    """One design: its name, its sum, the target's layers, and below them the draft's own."""
    wide = room / (length + 1)
    parts = [draw.text(0, 26, name, 18, bold=True),
             draw.text(0, 52, f"{cost.draft} drafting + {cost.verify} verifying", 15),
             draw.text(0, 82, "target's layers" if own_layers else "", 14, fill=draw.MUTED)]
    for layer in range(layers):
        for column in range(length + 1):
            lower = layer < exit and column < length and not own_layers
            parts.append(cell(column * wide, 92 + (layers - 1 - layer) * high, wide,
                              "draft" if lower and not again else "target", twice=lower and again, high=high,
                              title=f"{name}: layer {layer}, column {column}"))
    for layer in range(own_layers):
        for column in range(length):
            parts.append(cell(column * wide, 92 + layers * high + 26 + layer * high, wide, "draft", high=high,
                              title=f"{name}: draft layer {layer}, column {column}"))
    if own_layers:
        parts.append(draw.text(0, 92 + layers * high + 20, "the draft's own, narrower", 14, fill=draw.MUTED))
    return parts
