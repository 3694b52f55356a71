"""The two KV caches through one round: what each slot holds, and where each length stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..decoding.trace import Round, Trace
from . import svg as draw
from .cache_states import STEPS, Cache, cache_states, slot_tokens
from .ribbon import Decode

CELL, ROW, LEFT = 38, 66, 116                            # height of a slot, of a cache; where slots begin


class Look(NamedTuple):
    words: str
    glyph: str = ""
    role: str = ""                                       # "": the cache's own
    dash: str | None = None


LOOKS = {"kept": Look("kept"), "written": Look("new, committed", "+"),
         "speculative": Look("new, speculative", "?", dash="5 3"),
         "accepted": Look("accepted", "✓", "accepted"), "rejected": Look("rejected", "✗", "rejected"),
         "unjudged": Look("not judged", "–", "unjudged"),
         "stale": Look("rolled back: still there, never read", "×", "rejected", "2 3")}


class Window(NamedTuple):
    """The slots of a round that are drawn one by one, first..stop - 1, and their place on paper."""
    first: int
    stop: int
    start: float
    wide: float

    def x(self, slot: int) -> float:
        return self.start + (slot - self.first) * self.wide


def window(r: Round) -> Window:
    """From the last slot that was there before the round to the last one that it uses."""
    ends = [r.target_cache[1], r.draft_cache[1], r.context + len(r.emitted), r.context + len(r.path) + 1]
    stop = max(end for end in ends if end is not None)
    first = max(0, min(length for length in (r.target_cache[0], r.draft_cache[0]) if length is not None) - 1)
    start = LEFT + (96 if first else 0)
    return Window(first, stop, start, min(105.0, (draw.WIDTH - 10 - start) / (stop - first)))


def slot_box(x: float, y: float, w: float, h: float, state: str, model: str, title: str = "") -> str:
    """An empty slot in its look; model: whose colour it has where its state has none."""
    look, empty = LOOKS[state], draw.ROLES["empty"]
    own = draw.ROLES[look.role or model]
    fill = empty.tint if state == "stale" else draw.PAPER if state == "speculative" else own.tint
    lines = {"rejected": draw.HATCH, "stale": draw.GRID}
    box = draw.rect(x, y, w, h, fill, own.colour, dash=look.dash, title=title)
    return box + (draw.hatch(x + 1, y + 1, w - 2, h - 2, lines[state]) if state in lines else "")


def caches(trace: Trace, index: int, step: str, decode: Decode) -> list[str]:
    """Both caches at one step, ready to be placed: position numbers, then a row for each model."""
    r, both = trace.rounds[index], cache_states(trace.rounds[index])[step]
    view = window(r)
    parts = [draw.text(view.x(slot) + view.wide / 2, 12, str(slot), draw.SMALL, "middle", fill=draw.MUTED)
             for slot in range(view.first, view.stop, 1 if view.wide > 34 else 2)]
    for row, (model, cache) in enumerate(zip(("target", "draft"), both)):
        if cache is None:
            continue
        labels = dict.fromkeys(range(trace.prompt_length), "prompt" if view.wide > 62 else "")
        known = slot_tokens(trace, index, step, model)
        labels |= {slot: draw.visible(decode([token])) for slot, token in known.items()}
        behind = r.context + len(r.emitted) - 1 - cache.length if step == "roll back" else 0
        parts.append(draw.group(0, 20 + row * ROW, cache_row(model, cache, labels, view, behind)))
    return parts


def cache_row(model: str, cache: Cache, labels: Mapping[int, str], view: Window, behind: int) -> list[str]:
    """One cache: a box for the slots before the window, then slot by slot, then the marker at its length."""
    parts = [draw.text(10, 25, model, bold=True)]
    if view.first:
        parts += [slot_box(LEFT, 0, 90, CELL, "kept", model),
                  draw.text(LEFT + 45, 25, "0" if view.first == 1 else f"0 … {view.first - 1}", 14, "middle")]
    for slot in range(view.first, view.stop):
        x, middle = view.x(slot) + 1, view.x(slot) + view.wide / 2
        if slot >= len(cache.slots):
            parts.append(draw.rect(x, 0, view.wide - 2, CELL, draw.ROLES["empty"].tint, draw.GRID, width=1))
            continue
        look = LOOKS[cache.slots[slot]]
        words = draw.fit(labels.get(slot, ""), view.wide - 6, 14, mono=True)
        parts += [slot_box(x, 0, view.wide - 2, CELL, cache.slots[slot], model, f"{model} slot {slot}: {look.words}"),
                  draw.text(middle, 16 if look.glyph else 24, words, 14, "middle", mono=True),
                  draw.text(middle, 32 if words else 25, look.glyph, 14, "middle", bold=True)]
    x, words = view.x(cache.length), f"length {cache.length}" + (f", {behind} behind: yet to be fed" if behind else "")
    half = draw.text_width(words, 14, bold=True) / 2
    middle = min(max(x, LEFT + half), draw.WIDTH - 10 - half)
    return [*parts, draw.line(x, -4, x, CELL + 6, draw.INK, 3),
            draw.text(middle, CELL + 20, words, 14, "middle", bold=True)]


def looks_legend(y: float) -> list[str]:
    """What the slots' looks mean, in two lines. y: the middle of the first."""
    parts, x = [], 10.0
    for state, look in LOOKS.items():
        if x + 28 + draw.text_width(look.words, 14) > draw.WIDTH - 10:
            x, y = 10.0, y + 26
        parts += [slot_box(x, y - 10, 22, 20, state, "target"),
                  draw.text(x + 11, y + 5, look.glyph, 14, "middle", bold=True),
                  draw.text(x + 28, y + 5, look.words, 14)]
        x += 44 + draw.text_width(look.words, 14)
    return parts


def cache_grid(trace: Trace, index: int, decode: Decode, steps: Sequence[str] = STEPS) -> str:
    """Both caches at the given steps of round `index` (0 = first), one below the other."""
    r, parts = trace.rounds[index], []
    block = (1 if r.draft_cache[0] is None else 2) * ROW + 52
    for k, step in enumerate(steps):
        parts += [draw.text(10, 30 + k * block, f"{STEPS.index(step) + 1}  {step}", 18, bold=True),
                  draw.group(0, 40 + k * block, caches(trace, index, step, decode))]
    low = 30 + len(steps) * block
    moves = [" to ".join(map(str, lengths)) for lengths in (r.target_cache, r.draft_cache)]
    alt = f"Caches of round {index + 1}. Target: {moves[0]} slots. " + (
        "The drafter has no cache." if r.draft_cache[0] is None else f"Draft: {moves[1]} slots.")
    return draw.svg(low + 46, [*parts, *looks_legend(low)], "KV caches", alt)
