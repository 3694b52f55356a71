"""How far a draft length policy is from the best: the oracle that proposes exactly what will be accepted.

With tau tokens accepted, gamma* = tau was the best length: less would have lost tokens, more was thrown away. It is
only known afterwards, so no drafter reaches it; the gap says what a better stopping rule could still win. Everything
is counted in passes of the target over one token: c for a draft pass, v(k) for a verification of k tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..decoding.trace import Round
from .theory import VerifyCurve, flat


def tokens_per_cost(rounds: Iterable[Round], cost: float, verify: VerifyCurve = flat) -> float:
    """Tokens emitted for the time of a one-token target pass, over rounds of chains: its predicted speedup."""
    return _rate(((len(r.emitted), len(r.tokens)) for r in rounds), cost, verify)


def oracle_tokens_per_cost(rounds: Iterable[Round], cost: float, verify: VerifyCurve = flat) -> float:
    """The same, had each round proposed just the tokens that were accepted.

    The best there is, as long as one more drafted token costs less than a target pass of its own. Take rounds of a long
    fixed length: where all proposals were accepted, more of them might have been.
    """
    return _rate(((len(r.emitted), r.accepted) for r in rounds), cost, verify)


def _rate(rounds: Iterable[tuple[int, int]], cost: float, verify: VerifyCurve) -> float:
    """rounds: (tokens emitted, tokens proposed) of each."""
    tokens, proposed = zip(*rounds)
    return sum(tokens) / sum(k * cost + verify(k + 1) for k in proposed)
