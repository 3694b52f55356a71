"""Several runs of one text side by side, at the same moment: who has how many tokens by now.

The clock is either target passes, the same on every machine, or the seconds that the traces hold, measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..decoding.trace import Trace
from . import svg as draw
from .frames import Frame
from .gantt import arrivals
from .ribbon import Decode

PASSES, SECONDS = "passes", "seconds"
LEFT, WIDE, LANE = 20.0, 920.0, 136                      # the track on paper; height of a lane


def finish_times(trace: Trace, clock: str) -> list[float]:
    """When each round was done: 1, 2, 3, ... target passes, or seconds from the end of the prefill."""
    if clock not in (PASSES, SECONDS):
        raise ValueError(f"unknown clock {clock!r}: choose {PASSES!r} or {SECONDS!r}")
    return [float(k + 1) for k in range(len(trace.rounds))] if clock == PASSES else [t for t, _ in arrivals(trace)]


def tokens_by(trace: Trace, moment: float, clock: str = PASSES) -> int:
    """How many tokens the run has emitted by then."""
    return sum(len(r.emitted) for r, done in zip(trace.rounds, finish_times(trace, clock)) if done <= moment)


def race(traces: Mapping[str, Trace], decode: Decode, clock: str = PASSES, count: int = 12) -> list[Frame]:
    """About `count` moments from the start to the end of the slowest, the end of each run among them.

    traces: {name: run}, at least one, each with at least one round.
    """
    ends = [finish_times(trace, clock)[-1] for trace in traces.values()]
    last = max(ends)
    even = [last * k / count for k in range(count + 1)]
    moments = sorted({*ends, *(float(int(t)) if clock == PASSES else t for t in even)})
    return [race_at(traces, moment, decode, clock) for moment in moments]


def race_at(traces: Mapping[str, Trace], moment: float, decode: Decode, clock: str = PASSES) -> Frame:
    """The race at one moment: for each run its tokens as a track, round by round, and the end of its text."""
    when = (f"{moment:.0f} target pass{'es' * (moment != 1)}" if clock == PASSES else f"{moment * 1000:.0f} ms")
    most = max(sum(len(r.emitted) for r in trace.rounds) for trace in traces.values())
    body = [draw.text(LEFT, 34, f"after {when}", 22, bold=True)]
    for k, (name, trace) in enumerate(traces.items()):
        body.append(draw.group(LEFT, 56 + k * LANE, lane(name, trace, moment, decode, clock, WIDE / most)))
    low = 62 + len(traces) * LANE
    body += draw.legend(LEFT, low, [("accepted", "proposed by the draft, accepted"), ("correction", "correction"),
                                    ("bonus", "bonus"), ("target", "nothing drafted")])
    told = ", ".join(f"{name} {tokens_by(trace, moment, clock)}" for name, trace in traces.items())
    caption = f"Tokens after {when}: {told}."
    return Frame(f"after {when}", caption, draw.svg(low + 24, body, "Race", caption), caption)


def lane(name: str, trace: Trace, moment: float, decode: Decode, clock: str, unit: float) -> list[str]:
    """unit: the width of a token."""
    total, done = sum(len(r.emitted) for r in trace.rounds), tokens_by(trace, moment, clock)
    state = f"{done} of {total} tokens" + (", finished" if done == total else "")
    empty = draw.ROLES["empty"]
    parts = [draw.text(0, 18, name, 18, bold=True), draw.text(WIDE, 18, state, 18, "end", bold=True),
             draw.rect(0, 30, total * unit, 36, empty.tint, empty.colour)]
    x, emitted = 0.0, []
    for r, finished in zip(trace.rounds, finish_times(trace, clock)):
        if finished > moment:
            break
        roles = [role for _, role in r.provenance()]
        for role in dict.fromkeys(roles):                                # one piece for each role of the round
            wide = roles.count(role) * unit
            parts.append(draw.chip(x, 30, wide, 36, role, glyph=wide > 20))
            x += wide
        parts.append(draw.line(x, 26, x, 70, draw.INK, 2))
        emitted += r.emitted
    return [*parts, draw.text(0, 94, tail(draw.visible(decode(emitted)) if emitted else "", WIDE), mono=True)]


def tail(words: str, room: float) -> str:
    """The end of the words, cut on the left to the room there is."""
    cut = words
    while draw.text_width("…" + cut, mono=True) > room:
        cut = cut[1:]
    return cut if cut == words else "…" + cut
