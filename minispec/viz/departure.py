"""What a proof by enumeration found: that a rule is exact, or the first place where its output departs."""

from __future__ import annotations

from ..analysis.prove import Proof
from . import svg as draw
from .law_bars import law_bars


def departure_view(proof: Proof) -> str:
    """The next token after the first departing prefix: the target's law and the loop's. Labels read: prefix → token.

    Where there is no departure, one line says so.
    """
    found = proof.departure
    if found is None:
        words = f"{proof.rule}: exact, in all {proof.cases} whole loops that were enumerated"
        return draw.svg(60, [draw.chip(20, 14, 36, 32, "accepted"), draw.text(70, 37, words, 18, bold=True)],
                        "No departure", f"{words}.")
    after = " ".join(map(str, found.prefix)) or "start"
    wanted, got = zip(*found.next_token)
    return law_bars(wanted, got, lambda token: f"{after} → {token}", name="the loop")
