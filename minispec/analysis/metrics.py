"""What a trace says, in the field's own words, each defined here and nowhere else.

    proposed              tokens the drafter proposed (nothing past a stop, the budget or the context is counted)
    accepted              proposed tokens that were emitted
    acceptance_rate       accepted / proposed: 4 proposed, 3 kept = 0.75; None if nothing was proposed
    acceptance_by_position[k]   P(position k + 1 of a proposal is accepted, given that it was reached)
    tokens_per_pass       tokens emitted / target passes, the correction or bonus included ("block efficiency",
                          "acceptance length" in papers that count the bonus)

The identity behind the counts: tokens == accepted + target_own, and target_own == rounds - (rounds cut inside a path).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..decoding.trace import Round, Trace


@dataclass(frozen=True)
class Metrics:
    tokens: int
    rounds: int                              # = target passes, the prefill aside
    proposed: int
    accepted: int
    acceptance_rate: float | None
    acceptance_by_position: list[float]
    reached_by_position: list[int]           # how often each position was reached: the sample sizes of the line above
    tokens_per_pass: float
    seconds: float                           # decoding only: from the end of the prefill
    tokens_per_second: float


def metrics(*traces: Trace) -> Metrics:
    """Counts and rates over one or several generations: sums over sums, never a mean of rates."""
    rounds = [r for trace in traces for r in trace.rounds]
    tokens, proposed, accepted = (sum(column) for column in zip(*((len(r.emitted), r.proposed, r.accepted) for r in rounds)))
    reached, kept = positions(rounds)
    seconds = sum(trace.total_seconds - trace.prefill_seconds for trace in traces)
    return Metrics(tokens, len(rounds), proposed, accepted, accepted / proposed if proposed else None,
                   [k / r for k, r in zip(kept, reached)], reached, tokens / len(rounds), seconds, tokens / seconds)


def positions(rounds: Iterable[Round]) -> tuple[list[int], list[int]]:
    """(reached, accepted) for each position of a proposal, summed over rounds.

    Position k is reached if the k tokens before it were accepted and something was proposed there. A position past a
    cut was never judged in what the reader got, so it isn't reached.
    """
    reached: list[int] = []
    kept: list[int] = []
    for r in rounds:
        inside = len(r.emitted) if r.cut else len(r.path) + 1          # positions judged, the rejected one included
        node = -1
        for k in range(inside):
            if node not in r.parents:                                   # nothing was proposed here
                break
            if k == len(reached):
                reached.append(0)
                kept.append(0)
            reached[k] += 1
            if k == len(r.path):                                        # this is where the rejection fell
                break
            kept[k] += 1
            node = r.path[k]
    return reached, kept


def loop_overhead(trace: Trace) -> float:
    """Share of decoding time spent outside the drafting and verifying passes: rule, rollback, trace, Python."""
    decoding = trace.total_seconds - trace.prefill_seconds
    return 1 - sum(r.seconds["draft"] + r.seconds["verify"] for r in trace.rounds) / decoding
