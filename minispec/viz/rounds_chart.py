"""What one round of each drafter costs and yields: its draft passes and the target's pass as boxes, laid end to end.

A box is as long as the pass takes, in units of a target pass over one token; so is plain decoding's, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..analysis.theory import VerifyCurve
from ..decoding.trace import Round
from . import svg as draw
from .charts import ticks

LEFT, WIDE, TALL = 20.0, 920.0, 92                       # where boxes begin, the longest round, the height of a lane


class Lane(NamedTuple):
    """draft: the cost of each draft pass, one after the other; target: of the target's pass. tokens: that come out, if
    it is known."""
    draft: Sequence[float]
    target: float
    tokens: float | None = None

    @property
    def cost(self) -> float:
        return sum(self.draft) + self.target


def lane_of(rounds: Sequence[Round], feeds: Callable[[Round], list[int]], draft: Callable[[int], float],
            verify: VerifyCurve) -> Lane:
    """The mean of the rounds with a proposal of full length: a run's last ones, whose room was cut, don't count.

    feeds: tokens fed in each draft pass of a round (bench/suite.py). draft, verify: what a draft pass and a target pass
    over k tokens cost.
    """
    most = max(len(r.tokens) for r in rounds)
    full = [r for r in rounds if len(r.tokens) == most]
    costs = [[draft(k) for k in feeds(r)] for r in full]
    mean = [sum(column) / len(full) for column in zip(*costs)]
    return Lane(mean, verify(1 + most), sum(len(r.emitted) for r in full) / len(full))


def rounds_chart(lanes: Mapping[str, Lane]) -> str:
    """A lane for each name, at most seven. Raises ValueError for none, or more."""
    if not 1 <= len(lanes) <= 7:
        raise ValueError(f"1 to 7 rounds can be compared, got {len(lanes)}")
    longest = max(1.0, *(lane.cost for lane in lanes.values()))
    scale, body = WIDE / longest, []
    for k, (name, lane) in enumerate(lanes.items()):
        body.append(draw.group(LEFT, 14 + k * TALL, drawn(name, lane, scale)))
    axis = 14 + len(lanes) * TALL
    body.append(draw.line(LEFT, axis, LEFT + WIDE, axis))
    for value in ticks(0, longest, 8):
        body += [draw.line(LEFT + value * scale, axis, LEFT + value * scale, axis + 6),
                 draw.text(LEFT + value * scale, axis + 24, f"{value:g}", 14, "middle")]
    body += [*draw.legend(LEFT, axis + 46, [("draft", "a draft pass"), ("target", "the target's pass")]),
             draw.text(LEFT + WIDE, axis + 51, "time of one round, in one-token target passes", 14, "end")]
    told = "; ".join(f"{name}: {len(lane.draft)} draft passes, {words(lane)}" for name, lane in lanes.items())
    return draw.svg(axis + 66, body, "One round of each drafter", f"{told}.")


def words(lane: Lane) -> str:
    """Cost, yield, and what it comes to."""
    if lane.tokens is None:
        return f"cost {lane.cost:.2f}"
    return f"{lane.tokens:.2f} tokens for {lane.cost:.2f}: speedup {lane.tokens / lane.cost:.2f}"


def drawn(name: str, lane: Lane, scale: float) -> list[str]:
    """Name and sum above, the passes below."""
    parts, x = [draw.text(0, 18, name, 17, bold=True), draw.text(WIDE, 18, words(lane), 16, "end")], 0.0
    for role, costs, high in (("draft", lane.draft, 30), ("target", [lane.target], 46)):
        for cost in costs:
            wide, look = cost * scale, draw.ROLES[role]
            parts.append(draw.rect(x, 74 - high, wide, high, look.tint, look.colour, title=f"{role} pass: {cost:.3f}"))
            if wide > 16:
                parts.append(draw.text(x + wide / 2, 74 - high / 2 + 5, look.glyph, 15, "middle", bold=True))
            x += wide
    return parts
