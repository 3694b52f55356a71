"""p and q side by side at one drafted position: what is accepted, what is rejected, what the residual makes up for.

Of every token's q, the part min(p, q) is accepted and the part max(q - p, 0) rejected; max(p - q, 0) is what is then
missing from p. The two missing parts are equally large, beta = 1 - alpha, so drawing the correction from the residual
fills the gap exactly (Leviathan et al. 2211.17192, Appendix A.1). alpha = 1 - TV(p, q) is the chance of acceptance.

A law is a vector (V,) or a dict {token: probability}. A trace keeps only the likeliest entries of a large vocabulary:
what it doesn't keep is drawn as one grey column, undivided, and alpha as the interval that is certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..decoding.trace import Round
from . import svg as draw
from .ribbon import Decode

Law = Sequence[float] | Mapping[int, float]
BASE, TALL = 356, 210                                    # of the bars: base line, height of the tallest
WHOLE = 1e-6                                             # a recorded law that misses less than this misses nothing


class Split(NamedTuple):
    """Masses by token. accepted + rejected = q, accepted + residual = p."""
    accepted: list[float]
    rejected: list[float]
    residual: list[float]


class Columns(NamedTuple):
    """What can be drawn of two laws: tokens known in both, their split, and what is left of p and q."""
    tokens: list[int]
    parts: Split
    rest: tuple[float, float]

    @property
    def alpha(self) -> tuple[float, float]:
        """Least and largest acceptance that agree with what is known; equal if both laws are whole."""
        least = sum(self.parts.accepted)
        return least, least + min(self.rest)


def split(p: Sequence[float], q: Sequence[float]) -> Split:
    """Cut p (V,) and q (V,) into their three parts. Raises ValueError for masses below 0, or of different length.

    Example: split([.5, .5], [.75, .25]) == ([.5, .25], [.25, 0], [0, .25]).
    """
    p, q = [float(x) for x in p], [float(x) for x in q]
    if len(p) != len(q) or min([*p, *q], default=0.0) < 0:
        raise ValueError(f"p and q must hold masses >= 0 of the same tokens, got {len(p)} and {len(q)} entries, "
                         f"the least {min([*p, *q], default=0.0):.2g}")
    return Split([min(a, b) for a, b in zip(p, q)], [max(b - a, 0.0) for a, b in zip(p, q)],
                 [max(a - b, 0.0) for a, b in zip(p, q)])


def columns(p: Law, q: Law) -> Columns:
    """Split two laws where both are known. Raises ValueError where one has more mass than 1."""
    p, q = _as_dict(p), _as_dict(q)
    for name, law in (("p", p), ("q", q)):
        if not 0 < sum(law.values()) <= 1 + WHOLE:
            raise ValueError(f"{name} must be a law, or the known part of one: it sums to {sum(law.values()):.6f}")
    p_whole, q_whole = (sum(law.values()) > 1 - WHOLE for law in (p, q))
    tokens = [t for t in sorted({*p, *q}) if (t in p or p_whole) and (t in q or q_whole)]
    known_p, known_q = [p.get(t, 0.0) for t in tokens], [q.get(t, 0.0) for t in tokens]
    whole = p_whole and q_whole
    rest = (0.0, 0.0) if whole else (max(0.0, 1 - sum(known_p)), max(0.0, 1 - sum(known_q)))
    return Columns(tokens, split(known_p, known_q), rest)


def _as_dict(law: Law) -> dict[int, float]:
    return {int(t): float(x) for t, x in (law.items() if isinstance(law, Mapping) else enumerate(law))}


def laws_at(r: Round, node: int) -> tuple[dict[int, float], dict[int, float]]:
    """(p, q) that judged a node of a round. Raises ValueError if the drafter gave no q there."""
    parent = r.parents[node]
    if parent not in r.draft_top:
        raise ValueError(f"the drafter chose node {node} without a distribution: there is no q to compare p with")
    return r.target_top[parent + 1], r.draft_top[parent]


def bars(p: Law, q: Law, decode: Decode, drafted: int | None = None, most: int = 8) -> str:
    """The split bars. drafted: the token to point at; at most `most` columns, and one for all other tokens."""
    c = columns(p, q)
    larger = [sum(masses) for masses in zip(*c.parts)]                   # max(p, q) of each token
    order = sorted(range(len(c.tokens)), key=lambda i: (c.tokens[i] != drafted, -larger[i], i))
    shown = [(draw.visible(decode([c.tokens[i]])), [part[i] for part in c.parts], c.tokens[i] == drafted)
             for i in sorted(order[:most])]
    others = [sum(part[i] for i in order[most:]) for part in c.parts]
    least, largest = c.alpha
    tallest = max([*(sum(masses) for _, masses, _ in shown), others[0] + others[1] + c.rest[1],
                   others[0] + others[2] + c.rest[0]])
    more = sum(others) + sum(c.rest) > WHOLE
    step = (draw.WIDTH - 40) / max(len(shown) + more, 4)
    body = summary(least, largest)
    for k, (label, masses, pointed) in enumerate(shown):
        body += column(20 + k * step, step, label, masses, TALL / tallest, pointed)
    if more:
        body += column(20 + len(shown) * step, step, "all others", others, TALL / tallest, rest=c.rest)
    exact = f"{least:.3f}" if largest - least < 5e-4 else f"between {least:.3f} and {largest:.3f}"
    alt = f"Bars of q and p, token by token. Accepted mass {exact}; rejected and residual mass are the rest, each." + (
        "" if drafted is None else f" Drafted: {draw.visible(decode([drafted]))}.")
    return draw.svg(440, body, "p and q, split", alt)


def column(x: float, step: float, label: str, masses: Sequence[float], scale: float, pointed: bool = False,
           rest: tuple[float, float] = (0, 0)) -> list[str]:
    """q's bar (accepted, rejected) and p's (accepted, residual) of one token, over its label."""
    accepted, rejected, residual = masses
    wide, parts = min(60, step * 0.36), []
    for left, model, over, over_role, unknown in ((x + step / 2 - wide - 2, "draft", rejected, "rejected", rest[1]),
                                                  (x + step / 2 + 2, "target", residual, "correction", rest[0])):
        own = draw.ROLES[model]
        y = BASE
        for role, mass in (("accepted", accepted), (over_role, over), ("unjudged", unknown)):
            if mass * scale >= 1:
                y -= mass * scale
                parts.append(draw.chip(left, y, wide, mass * scale, role, glyph=mass * scale > 18,
                                       title=f"{own.glyph}: {mass:.4f}"))
        total = accepted + over + unknown
        parts += [draw.text(left + wide / 2, y - 6, f"{total:.2f}".removeprefix("0"), 14, "middle"),
                  draw.line(left, BASE + 3, left + wide, BASE + 3, own.colour, 5),
                  draw.text(left + wide / 2, BASE + 22, own.glyph, 15, "middle", bold=True)]
    words = draw.fit(label, step - 6, mono=True)
    parts.append(draw.text(x + step / 2, BASE + 46, words, anchor="middle", mono=True, bold=pointed))
    return parts + ([draw.text(x + step / 2, BASE + 70, "▲ drafted", 14, "middle", bold=True)] if pointed else [])


def summary(least: float, largest: float) -> list[str]:
    """All of q as one bar: accepted, undecided where the laws are not known, rejected. And the legend."""
    x, w, parts = 190.0, 750.0, [draw.text(20, 38, "all of q", bold=True)]
    spans = (("accepted", 0.0, least, f"✓ accepted: α {'=' if largest - least < 5e-3 else '≥'} {least:.2f}"),
             ("unjudged", least, largest, "not recorded"),
             ("rejected", largest, 1.0, f"✗ rejected: {1 - largest:.2f}"))
    for role, start, stop, words in spans:
        room, wide = w * (stop - start), draw.text_width(words, bold=True)
        if room >= 1:
            parts.append(draw.chip(x + w * start, 14, room, 36, role, glyph=False))
        if room > wide + 8:
            parts += [draw.rect(x + w * start + (room - wide) / 2, 21, wide, 22, draw.ROLES[role].tint),
                      draw.text(x + w * (start + stop) / 2, 38, words, anchor="middle", bold=True)]
    entries = [("accepted", "min(p, q): accepted"), ("rejected", "q above p: rejected"),
               ("correction", "p above q: the residual")]
    return parts + draw.legend(20, 80, entries + [("unjudged", "not recorded")] * (largest > least))
