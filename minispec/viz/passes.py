"""Which positions a model computes in each pass, and which it only reads from the cache.

A pass is (cached, fed): the positions that were in the cache, and the new ones that went through the layers. Without a
cache every pass is (0, all of the text so far): the same keys and values, computed again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..decoding.trace import Trace
from . import svg as draw

Pass = tuple[int, int]                                   # (cached, fed)
GAP, TOP, TOTAL = 32, 96, 96.0                           # between panels; head of a panel; room for the sums


def passes_of(trace: Trace) -> list[Pass]:
    """The target's passes of a run, its prefill first (a prompt of one token needs none)."""
    first = trace.rounds[0].target_cache[0]
    return [(0, first)] * (first > 0) + [(before, full - before) for before, full, _ in
                                         (r.target_cache for r in trace.rounds)]


def without_cache(trace: Trace) -> list[Pass]:
    """The same run by a model that remembers nothing: it has nothing to prefill, and reads the whole text every time."""
    first = trace.rounds[0].target_cache[0]
    return [(0, 0)] * (first > 0) + [(0, r.target_cache[1]) for r in trace.rounds]


def rows_computed(passes: Sequence[Pass]) -> int:
    """Token rows that went through the layers, over all passes."""
    return sum(fed for _, fed in passes)


def passes_grid(runs: Mapping[str, Sequence[Pass]], shown: int | None = None) -> str:
    """A panel for each run, side by side: a row for each pass, a column for each position.

    shown: only the first so many passes are filled in. At most two runs; up to 16 positions and as many passes.
    """
    width = (draw.WIDTH - 20 - GAP * (len(runs) - 1)) / len(runs)
    most = max(len(passes) for passes in runs.values())
    high = min(34.0, 420 / most)
    body = []
    for k, (name, passes) in enumerate(runs.items()):
        body.append(draw.group(10 + k * (width + GAP), 0, panel(name, passes, width, high, shown)))
    low = TOP + most * high + 30
    body += looks(10, low)
    told = "; ".join(f"{name}: {rows_computed(passes[:shown])} rows computed in {len(passes[:shown])} passes"
                     for name, passes in runs.items())
    return draw.svg(low + 26, body, "Passes and positions", f"A row for each pass, a column for each position. {told}.")


def panel(name: str, passes: Sequence[Pass], width: float, high: float, shown: int | None) -> list[str]:
    """Name, sums, and the grid of one run."""
    columns = max((cached + fed for cached, fed in passes), default=1)
    done = list(passes[:shown])
    wide = (width - TOTAL - 30) / columns
    parts = [draw.text(0, 30, draw.fit(name, width - 200, 20), 20, bold=True),
             draw.text(width, 30, f"{rows_computed(done)} rows computed", 18, "end", bold=True),
             draw.text(width, TOP - 10, "computed", 14, "end", fill=draw.MUTED),
             draw.text(0, TOP - 34, "pass ↓   position →", 14, fill=draw.MUTED)]
    every = 1 if wide > 19 else 2 if wide > 11 else 5
    parts += [draw.text(30 + (c + 0.5) * wide, TOP - 10, str(c), 14, "middle") for c in range(0, columns, every)]
    for row, (cached, fed) in enumerate(passes):
        y = TOP + row * high
        parts.append(draw.text(20, y + high / 2 + 5, str(row + 1), 14, "end"))
        for c in range(columns):
            state = "empty" if row >= len(done) or c >= cached + fed else "read" if c < cached else "computed"
            parts.append(cell(30 + c * wide, y, wide - 2, high - 2, state, f"pass {row + 1}, position {c}: {state}"))
        if row < len(done):
            parts.append(draw.text(width, y + high / 2 + 5, str(fed), 16, "end", bold=True))
    return parts


def cell(x: float, y: float, w: float, h: float, state: str, title: str = "") -> str:
    """computed: filled, with a plus; read: a dot on paper; empty: pale."""
    own, empty, middle = draw.ROLES["target"], draw.ROLES["empty"], y + h / 2 + 5
    if state == "empty":
        return draw.rect(x, y, w, h, empty.tint, draw.GRID, width=1)
    fill, mark = (own.tint, "+") if state == "computed" else (draw.PAPER, "·")
    return (draw.rect(x, y, w, h, fill, own.colour, width=2 if state == "computed" else 1, title=title)
            + (draw.text(x + w / 2, middle, mark, 15, "middle", bold=True) if w > 10 else ""))


def looks(x: float, y: float) -> list[str]:
    parts = []
    for state, words in (("computed", "computed in this pass"), ("read", "read from the cache"),
                         ("empty", "not there yet")):
        parts += [cell(x, y - 11, 22, 22, state), draw.text(x + 30, y + 5, words, 15)]
        x += 60 + draw.text_width(words, 15)
    return parts
