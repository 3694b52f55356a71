"""Measured time: every pass of a speculative run against plain decoding, on one axis, with a tick where tokens came
out.

The spans are the trace's own seconds, laid end to end; what the clock saw outside of them (Python between the rounds)
stands at the end, so that a lane is as long as the run really took.
"""

from __future__ import annotations

from typing import NamedTuple

from ..decoding.trace import Trace
from . import svg as draw
from .charts import ticks

LEFT, WIDE = 20.0, 920.0
PARTS = {                                                # part: (role, height, words)
    "draft": ("draft", 22, "draft passes (low)"), "verify": ("target", 44, "target pass (high)"),
    "accept": ("accepted", 12, "accept, roll back"), "other": ("unjudged", 12, "outside of the rounds")}


class Span(NamedTuple):
    part: str                                            # "draft", "verify", "accept" or "other"
    round: int                                           # -1 outside of the rounds
    start: float                                         # seconds from the end of the prefill
    stop: float


def spans(trace: Trace) -> list[Span]:
    """All measured parts in order, from the end of the prefill to the end of the run."""
    found, now = [], 0.0
    for index, r in enumerate(trace.rounds):
        for part in ("draft", "verify", "accept"):
            found.append(Span(part, index, now, now + r.seconds[part]))
            now = found[-1].stop
    return [*found, Span("other", -1, now, max(now, trace.total_seconds - trace.prefill_seconds))]


def arrivals(trace: Trace) -> list[tuple[float, int]]:
    """(seconds, tokens so far) at the end of each round."""
    stops, tokens = [s.stop for s in spans(trace) if s.part == "accept"], 0
    return [(stop, tokens := tokens + len(r.emitted)) for stop, r in zip(stops, trace.rounds)]


def gantt(speculative: Trace, plain: Trace, tokens: int | None = None) -> str:
    """Both runs from the end of their prefill. tokens: stop the picture where either has this many (None: show all).

    Give it runs of the same target, measured side by side; it can't know what else the machine was doing.
    """
    lanes = {"speculative": speculative, "plain": plain}
    ends = {name: end_of(trace, tokens) for name, trace in lanes.items()}
    longest = max(ends.values())
    scale, unit, per_second = WIDE / longest, *(("seconds", 1) if longest >= 2 else ("milliseconds", 1000))
    body = [draw.group(LEFT, 20 + k * 128, lane(name, lanes[name], ends[name], scale)) for k, name in enumerate(lanes)]
    axis = 20 + len(lanes) * 128
    body.append(draw.line(LEFT, axis, LEFT + WIDE, axis))
    for value in ticks(0, longest * per_second, 8):
        x = LEFT + value / per_second * scale
        body += [draw.line(x, axis, x, axis + 6), draw.text(x, axis + 24, f"{value:g}", 14, "middle")]
    body.append(draw.text(LEFT + WIDE, axis + 46, f"{unit} from the end of the prefill", 14, "end"))
    body += key(LEFT, axis + 72)
    faster = rate(speculative, ends["speculative"]) / rate(plain, ends["plain"])
    alt = f"Two lanes of measured passes. Speculative decoding emits {faster:.2f} times as many tokens a second."
    return draw.svg(axis + 92, body, "Measured passes", alt)


def end_of(trace: Trace, tokens: int | None) -> float:
    """Seconds until the trace has this many tokens (its own end if it never has, or None is asked)."""
    done = [seconds for seconds, count in arrivals(trace) if tokens is not None and count >= tokens]
    return done[0] if done else spans(trace)[-1].stop


def rate(trace: Trace, end: float) -> float:
    """Tokens a second up to `end`."""
    return max(count for seconds, count in arrivals(trace) if seconds <= end) / end


def lane(name: str, trace: Trace, end: float, scale: float) -> list[str]:
    """One run: its summary, the passes as boxes of different heights, below them a tick for each round's tokens."""
    shown = [count for seconds, count in arrivals(trace) if seconds <= end]
    summary = f"{shown[-1]} tokens in {end * 1000:.0f} ms: {rate(trace, end):.3g} tokens/s"
    parts = [draw.text(0, 16, name, 18, bold=True),
             draw.text(WIDE, 16, summary, anchor="end")]
    for s in spans(trace):
        role, high, _ = PARTS[s.part]
        if s.stop <= end and s.stop > s.start:
            wide, own = (s.stop - s.start) * scale, draw.ROLES[role]
            title = f"{s.part}: {(s.stop - s.start) * 1000:.3f} ms"
            look = (own.colour, None) if wide < 4 else (own.tint, own.colour)      # too thin for an outline: fill it
            parts.append(draw.rect(s.start * scale, 72 - high, wide, high, *look, width=1, title=title))
    free = 0.0
    for seconds, count in arrivals(trace)[:len(shown)]:
        x, half = seconds * scale, draw.text_width(str(count), 13) / 2
        parts.append(draw.line(x, 74, x, 82))
        if x - half >= free and x + half <= WIDE + 16:
            parts.append(draw.text(min(x, WIDE + 10 - half), 96, str(count), 13, "middle"))
            free = x + half + 6
    return parts


def key(x: float, y: float) -> list[str]:
    """The parts by height and colour."""
    parts = []
    for role, high, words in PARTS.values():
        parts += [draw.rect(x, y + 6 - high / 2, 18, high / 2, draw.ROLES[role].tint, draw.ROLES[role].colour),
                  draw.text(x + 26, y + 5, words, 14)]
        x += 50 + draw.text_width(words, 14)
    return parts
