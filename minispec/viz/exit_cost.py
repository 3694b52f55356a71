"""What a round of an early exit costs, and what it brings, where weights are the bound and where arithmetic is.

A target pass over k tokens costs v(k) = 1 + slope (k - 1) passes over one: slope 0 where weights are streamed from
memory and nothing else counts, slope 1 where every token costs the same. With E of L layers drafting, c = E / L:

    goes on from the exit    length c  +  c  +  (1 - c) v(length + 1)
    nothing kept             length c  +  v(length + 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..analysis.theory import expected_tokens
from . import svg as draw

MACHINES = {"weights are the bound: v(k) = 1": 0.0, "in between: v(k) = 1 + (k − 1) / 4": 0.25,
            "arithmetic is the bound: v(k) = k": 1.0}
DESIGNS = {"goes on": True, "nothing kept": False}
LEFT, RIGHT, GROUP, BAR = 120, 630, 112, 30              # bars from LEFT to RIGHT; a machine's height; a bar's
COLUMNS = {"cost": 720, "speedup": 808, "breaks even at": 940}     # of numbers: their right edges


class Cost(NamedTuple):
    """Of a round, in target passes over one token."""
    draft: float
    lower: float                                         # verification below the exit
    upper: float                                         # and above it

    @property
    def total(self) -> float:
        return sum(self)


def round_cost(layers: int, exit: int, length: int, slope: float, shared: bool = True) -> Cost:
    """See above. Raises ValueError unless 1 <= exit < layers."""
    if not 1 <= exit < layers:
        raise ValueError(f"the exit must lie after 1 to {layers - 1} of {layers} layers, got {exit}")
    c, wide = exit / layers, 1 + slope * length
    return Cost(length * c, c if shared else c * wide, (1 - c) * wide)


def break_even(length: int, cost: float) -> float | None:
    """The acceptance at which a round brings as many tokens as it costs passes; None if even certainty doesn't."""
    if cost >= length + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, length) < cost else (low, middle)
    return high


def exit_cost(layers: int, exit: int, length: int, acceptance: float) -> str:
    """A bar for each machine and design, as long as a round costs; the line: the tokens that it brings."""
    costs = {(machine, design): round_cost(layers, exit, length, slope, shared)
             for machine, slope in MACHINES.items() for design, shared in DESIGNS.items()}
    tokens = expected_tokens(acceptance, length)
    longest = max(length + 1.0, *(cost.total for cost in costs.values()))
    scale, body = (RIGHT - LEFT) / longest, []
    at = LEFT + tokens * scale
    low = 74 + len(MACHINES) * GROUP
    for k, machine in enumerate(MACHINES):
        body.append(draw.text(10, 92 + k * GROUP, machine, 15, bold=True))
        for j, design in enumerate(DESIGNS):
            cost = costs[machine, design]
            body += bar(102 + k * GROUP + j * (BAR + 8), design, cost, scale, numbers(length, tokens, cost.total))
    body += [draw.line(at, 50, at, low, draw.ROLES["accepted"].colour, 3, "7 4"),
             *(draw.text(right, 62, word, 14, "end", fill=draw.MUTED) for word, right in COLUMNS.items()),
             draw.text(min(max(at, 150), RIGHT - 100), 42, f"{tokens:.2f} tokens a round at α = {acceptance:g}", 15,
                       "middle", bold=True),
             *draw.legend(10, low + 24, [("draft", "drafting"), ("target", "verification, below and above the exit")])]
    alt = (f"Exit {exit} of {layers}, {length} drafted tokens, {tokens:.2f} tokens a round. "
           + " ".join(f"{machine}, {design}: cost {{}}, speedup {{}}, breaks even: {{}}.".format(
               *numbers(length, tokens, cost.total)) for (machine, design), cost in costs.items()))
    return draw.svg(low + 48, body, "Cost of a round", alt)


def numbers(length: int, tokens: float, cost: float) -> tuple[str, str, str]:
    """(cost, speedup, where it breaks even), in words."""
    even = break_even(length, cost)
    return f"{cost:.2f}", f"{tokens / cost:.2f}", "never" if even is None else f"α = {even:.2f}"


def bar(y: float, design: str, cost: Cost, scale: float, words: Sequence[str]) -> list[str]:
    """One design: drafting, below the exit, above it; and the numbers that belong to it."""
    parts, x = [draw.text(LEFT - 8, y + 20, design, 14, "end")], float(LEFT)
    for role, share in (("draft", cost.draft), ("target", cost.lower), ("target", cost.upper)):
        parts.append(draw.chip(x, y, share * scale, BAR, role, glyph=False, title=f"{design}: {share:.3f}"))
        x += share * scale
    return parts + [draw.text(right, y + 20, word, 15, "end", bold=right == COLUMNS["speedup"])
                    for right, word in zip(COLUMNS.values(), words)]
