"""The two KV caches through one round: what each slot holds, and where each length stands.

A slot is named by its position. With n committed tokens the target's cache holds n - 1 of them before a round, since the last
one was never fed. The draft's holds as many, or one less after a full acceptance: its last proposal was sampled, not fed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..decoding.trace import Round, Trace
from ..decoding.tree import ROOT
from . import svg as draw
from .ribbon import Decode

STEPS = ("draft", "verify", "accept", "roll back")
CELL, ROW = 38, 66                                       # height of a slot; of a cache with its length marker
LEFT = 116                                               # where the slots begin
LOOK = {                                                 # state -> (fill, border, dash, glyph); None: the cache's own colour
    "kept": (None, None, None, ""), "written": (None, None, None, "+"), "speculative": (draw.PAPER, None, "5 3", "?"),
    "accepted": (draw.ROLES["accepted"].tint, draw.ROLES["accepted"].colour, None, "✓"),
    "rejected": (draw.ROLES["rejected"].tint, draw.ROLES["rejected"].colour, None, "✗"),
    "unjudged": (draw.ROLES["unjudged"].tint, draw.ROLES["unjudged"].colour, None, "–"),
    "stale": (draw.ROLES["empty"].tint, draw.ROLES["rejected"].colour, "2 3", "×"),
}
MEANING = {"kept": "kept", "written": "new, committed", "speculative": "new, speculative", "accepted": "accepted",
           "rejected": "rejected", "unjudged": "not judged", "stale": "rolled back: still there, never read"}


class Cache(NamedTuple):
    """A cache at one step: its length, and for each slot that was ever written in this round or before, its state."""
    length: int
    slots: list[str]


def fates(r: Round) -> list[str]:
    """What became of each proposed node: "accepted", "rejected" (its turn came and it failed) or "unjudged"."""
    path, kept = [ROOT, *r.path], r.path[:r.accepted]
    found = []
    for node, parent in enumerate(r.parents):
        if node in kept:
            found.append("accepted")
        else:
            took = next((child for child in r.path if r.parents[child] == parent), len(r.parents))
            reached = parent in path[:len(r.emitted)] and node < took
            found.append("rejected" if reached else "unjudged")
    return found


def cache_states(r: Round) -> dict[str, tuple[Cache, Cache | None]]:
    """{step: (target's cache, draft's cache, None where the drafter has none)} for the four steps of a round."""
    target = _states(*r.target_cache, certain=r.target_cache[0] + 1, judged=fates(r))
    target["draft"], target["verify"] = target["start"], target["draft"]           # it is written one step later
    if r.draft_cache[0] is None:
        return {step: (target[step], None) for step in STEPS}
    judged = fates(r) if r.tree.is_chain else None                                  # a tree's rows lie in an order of their own
    draft = _states(*r.draft_cache, certain=r.context, judged=judged)
    draft["verify"] = draft["draft"]
    return {step: (target[step], draft[step]) for step in STEPS}


def _states(before: int, full: int, after: int, certain: int, judged: list[str] | None) -> dict[str, Cache]:
    """A cache that went from `before` slots to `full` and back to `after`; slots below `certain` hold committed tokens."""
    sure = min(max(certain, before), full)
    known = ["kept"] * before + ["written"] * (sure - before)
    guess = ["speculative"] * (full - sure)
    return {"start": Cache(before, ["kept"] * before), "draft": Cache(full, known + guess),
            "accept": Cache(full, known + (guess if judged is None else judged[:len(guess)])),
            "roll back": Cache(after, ["kept"] * after + ["stale"] * (full - after))}


def slot_tokens(trace: Trace, index: int, step: str, model: str = "target") -> dict[int, int]:
    """{position: token} where the trace knows what a slot holds (not in the prompt). model: "target" or "draft"."""
    r, position, tokens = trace.rounds[index], trace.prompt_length, {}
    for earlier in trace.rounds[:index]:
        tokens |= enumerate(earlier.emitted, position)
        position += len(earlier.emitted)
    if model == "target" or r.tree.is_chain:             # node i lies i slots after the last committed token
        tokens |= enumerate(r.tokens, r.context)
    if step == "roll back":                              # a tree's accepted path has moved together
        length = (r.target_cache if model == "target" else r.draft_cache)[2]
        tokens |= {slot: token for slot, token in enumerate(r.emitted, r.context) if slot < length}
    return tokens


class Window(NamedTuple):
    """The slots of a round that are drawn one by one, first..stop - 1, and their place on paper."""
    first: int
    stop: int
    start: float
    wide: float

    def x(self, slot: int) -> float:
        return self.start + (slot - self.first) * self.wide


def window(r: Round) -> Window:
    """From the last slot that was there before to the last one in use."""
    stop = max(full for full in (r.target_cache[1], r.draft_cache[1], r.context + len(r.emitted), r.context + len(r.path) + 1)
               if full is not None)
    first = max(0, min(length for length in (r.target_cache[0], r.draft_cache[0]) if length is not None) - 1)
    start = LEFT + (96 if first else 0)
    return Window(first, stop, start, min(105.0, (draw.WIDTH - 10 - start) / (stop - first)))


def caches(trace: Trace, index: int, step: str, decode: Decode) -> list[str]:
    """Both caches at one step, ready to be placed: position numbers, then a row for each model."""
    r, both = trace.rounds[index], cache_states(trace.rounds[index])[step]
    view = window(r)
    parts = [draw.text(view.x(slot) + view.wide / 2, 12, str(slot), draw.SMALL, "middle", fill=draw.MUTED)
             for slot in range(view.first, view.stop, 1 if view.wide > 34 else 2)]
    for row, (model, cache) in enumerate(zip(("target", "draft"), both)):
        if cache is None:
            continue
        labels = dict.fromkeys(range(trace.prompt_length), "prompt")
        labels |= {slot: decode([token]) for slot, token in slot_tokens(trace, index, step, model).items()}
        behind = r.context + len(r.emitted) - 1 - cache.length if step == "roll back" else 0
        parts.append(draw.group(0, 20 + row * ROW, cache_row(model, cache, labels, view, behind)))
    return parts


def cache_row(model: str, cache: Cache, labels: Mapping[int, str], view: Window, behind: int) -> list[str]:
    """One cache: a box for the slots before the window, then slot by slot, then the marker at its length."""
    own, parts = draw.ROLES[model], [draw.text(10, 25, model, bold=True)]
    first, wide = view.first, view.wide
    if first:
        parts += [draw.rect(LEFT, 0, 90, CELL, own.tint, own.colour),
                  draw.text(LEFT + 45, 25, "0" if first == 1 else f"0 … {first - 1}", anchor="middle", size=14)]
    for slot in range(first, view.stop):
        x, state = view.x(slot), cache.slots[slot] if slot < len(cache.slots) else ""
        if not state:
            parts.append(draw.rect(x + 1, 0, wide - 2, CELL, draw.ROLES["empty"].tint, draw.GRID, width=1))
            continue
        fill, border, dash, glyph = LOOK[state]
        parts.append(draw.rect(x + 1, 0, wide - 2, CELL, fill or own.tint, border or own.colour, dash=dash,
                               title=f"{model} slot {slot}: {MEANING[state]}"))
        if state in ("rejected", "stale"):
            parts.append(draw.hatch(x + 2, 1, wide - 4, CELL - 2, draw.HATCH if state == "rejected" else draw.GRID))
        words = draw.fit(draw.visible(labels[slot]) if slot in labels else "", wide - 6, 14, mono=True)
        parts += [draw.text(x + wide / 2, 16 if glyph else 24, words, 14, "middle", mono=True),
                  draw.text(x + wide / 2, 32 if words else 25, glyph, 14, "middle", bold=True)]
    x = view.x(cache.length)
    words = f"length {cache.length}" + (f", {behind} behind: fed next round" if behind else "")
    half = draw.text_width(words, 14, bold=True) / 2
    middle = min(max(x, LEFT + half), draw.WIDTH - 10 - half)
    return [*parts, draw.line(x, -4, x, CELL + 6, draw.INK, 3), draw.text(middle, CELL + 20, words, 14, "middle", bold=True)]


def states_legend(y: float) -> list[str]:
    """What the slots' looks mean, in two lines. y: the middle of the first."""
    parts, x = [], 10.0
    for state, words in MEANING.items():
        fill, border, dash, glyph = LOOK[state]
        if x + 28 + draw.text_width(words, 14) > draw.WIDTH - 10:
            x, y = 10.0, y + 26
        parts += [draw.rect(x, y - 10, 22, 20, fill or draw.ROLES["target"].tint, border or draw.ROLES["target"].colour, dash=dash),
                  draw.hatch(x + 1, y - 9, 20, 18, draw.HATCH if state == "rejected" else draw.GRID) if state in ("rejected", "stale") else "",
                  draw.text(x + 11, y + 5, glyph, 14, "middle", bold=True), draw.text(x + 28, y + 5, words, 14)]
        x += 44 + draw.text_width(words, 14)
    return parts


def cache_grid(trace: Trace, index: int, decode: Decode, steps: Sequence[str] = STEPS) -> str:
    """Both caches at the given steps of round `index` (0 = first), one below the other."""
    r, parts = trace.rounds[index], []
    block = (1 if r.draft_cache[0] is None else 2) * ROW + 52
    for k, step in enumerate(steps):
        parts += [draw.text(10, 30 + k * block, f"{k + 1}  {step}" if steps == STEPS else step, 18, bold=True),
                  draw.group(0, 40 + k * block, caches(trace, index, step, decode))]
    low = 30 + len(steps) * block
    alt = (f"Caches of round {index + 1}. Target: {' to '.join(map(str, r.target_cache))} slots. "
           + ("The drafter has no cache." if r.draft_cache[0] is None else f"Draft: {' to '.join(map(str, r.draft_cache))} slots."))
    return draw.svg(low + 46, [*parts, *states_legend(low)], "KV caches", alt)
