"""Two laws over the same outcomes: the target's, and the one that came out. Where they differ, which way?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..analysis.exact import total_variation
from . import svg as draw

BASE, TALL = 330, 220                                    # base line of the bars, height of the tallest
TOLERANCE = 1e-12                                        # laws that agree to this are equal

AnyLaw = Sequence[float] | Mapping[object, float]


def as_law(law: AnyLaw) -> dict[object, float]:
    """{outcome: probability}; a sequence (V,) is read as the law of the tokens 0..V-1."""
    return {outcome: float(chance) for outcome, chance in (law.items() if isinstance(law, Mapping) else enumerate(law))}


def law_bars(wanted: AnyLaw, got: AnyLaw, label: Callable[[object], str] = str, *, name: str = "came out",
             reference: str = "the target's p", most: int = 9) -> str:
    """A pair of bars for each outcome: the target's probability, and what came out, cut into the part that is right,
    what comes too often (✗, hatched) and what is missing (dashed).

    wanted, got: {outcome: probability}, or (V,). label: outcome -> words under its bars. reference, name: of the two
    bars. Of more than `most` outcomes those with the largest difference are shown. Raises ValueError for negative
    masses.
    """
    p, r = as_law(wanted), as_law(got)
    if not p or min([*p.values(), *r.values()]) < 0:
        raise ValueError("law_bars needs two laws of probabilities >= 0, and at least one outcome in the first")
    outcomes = list(p) + [outcome for outcome in r if outcome not in p]
    apart = {outcome: r.get(outcome, 0.0) - p.get(outcome, 0.0) for outcome in outcomes}
    kept = set(sorted(outcomes, key=lambda outcome: -abs(apart[outcome]))[:most])
    shown = [outcome for outcome in outcomes if outcome in kept]
    tallest = max(max(p.get(outcome, 0.0), r.get(outcome, 0.0)) for outcome in shown) or 1.0
    step, scale = (draw.WIDTH - 40) / max(len(shown), 4), TALL / tallest
    distance, worst = total_variation(r, p), max(abs(gap) for gap in apart.values())
    equal = worst <= TOLERANCE
    verdict = "✓ the same law" if equal else f"✗ another law: distance (TV) {distance:.3f}"
    body = [draw.text(20, 34, verdict, 20, bold=True),
            *draw.legend(20, 66, [("target", reference), ("accepted", f"{name}: right"),
                                  ("rejected", "too often"), ("empty", "missing")])]
    for k, outcome in enumerate(shown):
        words = draw.fit(label(outcome), step - 8, mono=True)
        body += pair(20 + k * step, step, p.get(outcome, 0.0), r.get(outcome, 0.0), scale)
        body.append(draw.text(20 + (k + 0.5) * step, BASE + 26, words, anchor="middle", mono=True, bold=True))
    if len(outcomes) > len(shown):
        body.append(draw.text(draw.WIDTH - 20, 34, f"{len(shown)} of {len(outcomes)} outcomes", 14, "end"))
    worst_at = max(outcomes, key=lambda outcome: abs(apart[outcome]))
    alt = "Two laws that agree." if equal else (
        f"Two laws at distance {distance:.3f}. The largest gap is at {label(worst_at)}: "
        f"{p.get(worst_at, 0.0):.3f} is right, {r.get(worst_at, 0.0):.3f} came out.")
    return draw.svg(BASE + 44, body, "Two laws", alt)


def pair(x: float, step: float, p: float, r: float, scale: float) -> list[str]:
    """The two bars of one outcome, with their heights in numbers."""
    wide, parts = min(70.0, step * 0.36), []
    left, right = x + step / 2 - wide - 2, x + step / 2 + 2
    both, more, less = min(p, r) * scale, max(0.0, r - p) * scale, max(0.0, p - r) * scale
    for at, y, height, role in ((left, BASE, p * scale, "target"), (right, BASE, both, "accepted"),
                                (right, BASE - both, more, "rejected")):
        if height >= 1:
            parts.append(draw.chip(at, y - height, wide, height, role, glyph=height > 20))
    if less >= 1:
        parts.append(draw.rect(right, BASE - both - less, wide, less, draw.PAPER, draw.MUTED, dash="4 4"))
    tops = ((left, p * scale, p), (right, both + more + less, r))
    parts.append(draw.line(x + 4, BASE, x + step - 4, BASE))
    return parts + [draw.text(at + wide / 2, BASE - top - 6, f"{value:.3f}".removeprefix("0"), 14, "middle")
                    for at, top, value in tops]
