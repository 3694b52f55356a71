"""The acceptance dart: one uniform number decides whether a drafted token stays, a second one picks its correction.

The first, u, falls on [0, 1]: left of min(1, p/q) accepts. After a rejection the second falls on the cumulated
residual max(p - q, 0) / beta: the token under it is the correction. Two throws, because the first one is used up:
given a rejection, u is known to lie above p/q, and a correction picked with it would no longer have the residual's
law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..decoding.dice import Outcome
from ..decoding.trace import Round
from . import svg as draw
from .bars import WHOLE, Law, columns, laws_at
from .ribbon import Decode

LEFT, WIDE = 40.0, 880.0                                 # the unit interval on paper


class Slice(NamedTuple):
    """A token's share [start, stop) of the cumulated residual."""
    token: int
    start: float
    stop: float


def residual_slices(p: Law, q: Law) -> list[Slice]:
    """The residual's CDF in order of token id, as the dice read it; empty where a law isn't wholly known, or p == q."""
    c = columns(p, q)
    mass = sum(c.parts.residual)
    if sum(c.rest) > WHOLE or mass <= 0:
        return []
    slices, start = [], 0.0
    for token, part in zip(c.tokens, c.parts.residual):
        if part > 0:
            slices.append(Slice(token, start, start + part / mass))
            start += part / mass
    return slices


def throws(r: Round) -> list[Outcome]:
    """The coins of a chain's acceptance, one for each position judged. Raises ValueError where tokens weren't judged
    so.
    """
    coins = [outcome for outcome in r.outcomes if outcome.kind == "accept"]
    expected = [1] * len(r.path) + [0] * (len(r.path) < len(r.tokens))
    by_token = [coin.result for coin in coins] == expected and all(map(_is_ratio, coins, _laws(r), r.tokens))
    if not (r.tree.is_chain and by_token):
        raise ValueError(f"this round threw {len(coins)} acceptance coins for {len(r.tokens)} nodes: the dart shows "
                         f"chains judged token by token (rules.Token)")
    return coins


def _laws(r: Round) -> list[tuple[Law, Law]]:
    return [laws_at(r, node) for node in range(len(r.tokens)) if r.parents[node] in r.draft_top]


def _is_ratio(coin: Outcome, laws: tuple[Law, Law], token: int) -> bool:
    """Whether the coin's chance is min(1, p/q), as far as the trace knows them. (Block verification throws others.)"""
    p, q = laws
    return token not in p or token not in q or abs(coin.chance - min(1.0, p[token] / q[token])) < 1e-6


def dart_at(r: Round, position: int, decode: Decode) -> str:
    """The dart for a position (0 = first) of a chain judged by rules.Token, from its trace. Raises ValueError
    otherwise.
    """
    coins = throws(r)
    if not 0 <= position < len(coins):
        raise ValueError(f"position must be one of those judged, 0..{len(coins) - 1}, got {position}")
    if coins[position].u is None:
        raise ValueError("enumerating dice throw no numbers: take a trace made with SeededDice")
    p, q = laws_at(r, position)
    second = None if coins[position].result else r.outcomes[-1]
    return dart(p, q, r.tokens[position], coins[position], second, decode)


def dart(p: Law, q: Law, token: int, coin: Outcome, second: Outcome | None, decode: Decode) -> str:
    """coin: the throw that judged `token`; second: the draw from the residual, or None after an acceptance."""
    name = draw.visible(decode([token]))
    kept = bool(coin.result)
    question = f"1  Keep “{name}”?  It stays if u is below min(1, p/q) = {coin.chance:.3f}"
    body = [draw.text(LEFT, 30, question, 18, bold=True),
            *strip(70, [("accepted", 0.0, coin.chance, "accept"), ("rejected", coin.chance, 1.0, "reject")], coin.u),
            *arrow(70, coin.u, f"u = {coin.u:.3f}: {'✓ accepted' if kept else '✗ rejected'}")]
    alt = (f"First throw u = {coin.u:.3f} against {coin.chance:.3f}: {name} is {'accepted' if kept else 'rejected'}.")
    if second is None:
        return draw.svg(176, body, "The acceptance dart", alt)
    picked, slices = draw.visible(decode([second.result])), residual_slices(p, q)
    question = f"2  Which token instead?  “{picked}” has {second.chance:.3f} of the residual (p − q)₊"
    body.append(draw.text(LEFT, 214, question, 18, bold=True))
    if slices:
        spans = [("correction" if s.token == second.result else "unjudged", s.start, s.stop,
                  draw.visible(decode([s.token]))) for s in slices]
        body += strip(246, spans, second.u, mono=True)
    else:                                                # where its slice begins can't be known: only its width
        body += strip(246, [("correction", 0.0, second.chance, picked),
                            ("unjudged", second.chance, 1.0, "the residual's other tokens")])
    note = f"u = {second.u:.3f}: ↻ {picked}" if second.u is not None else f"↻ {picked}"
    pointed = slices and second.u is not None
    body += arrow(246, second.u, note) if pointed else [draw.text(draw.WIDTH / 2, 330, note, 18, "middle", bold=True)]
    return draw.svg(352, body, "The acceptance dart", f"{alt} Second throw: the correction is {picked}.")


def strip(y: float, spans: Sequence[tuple[str, float, float, str]], u: float | None = None, mono: bool = False,
          ) -> list[str]:
    """The unit interval, 46 high, cut into (role, start, stop, words); words are shown where they fit, beside the dart
    at u. Ends are marked.
    """
    parts = []
    for role, start, stop, words in spans:
        x, w = LEFT + WIDE * start, WIDE * (stop - start)
        if w < 0.5:
            continue
        r, label = draw.ROLES[role], f"{draw.ROLES[role].glyph} {words}".strip("– ")
        wide = draw.text_width(label, mono=mono, bold=True)
        parts.append(draw.chip(x, y, w, 46, role, glyph=False, title=f"{words}: {stop - start:.4f}"))
        if u is not None and start < u < stop:           # the dart stands in this part: the wider side has the words
            x, w = (x, WIDE * (u - start)) if u - start > stop - u else (LEFT + WIDE * u, WIDE * (stop - u))
        if wide + 12 <= w:
            parts += [draw.rect(x + (w - wide) / 2 - 3, y + 11, wide + 6, 24, r.tint),
                      draw.text(x + w / 2, y + 29, label, anchor="middle", mono=mono, bold=True)]
    return parts + [draw.text(LEFT, y + 66, "0", 14, "middle"), draw.text(LEFT + WIDE, y + 66, "1", 14, "middle")]


def arrow(y: float, u: float, words: str) -> list[str]:
    """The dart: a line through the strip at u, its number below."""
    x, half = LEFT + WIDE * u, draw.text_width(words, 18, bold=True) / 2
    middle = min(max(x, LEFT + 16 + half), LEFT + WIDE - 16 - half)
    return [draw.line(x, y - 12, x, y + 62, draw.INK, 3),
            draw.head(x, y), draw.text(middle, y + 84, words, 18, "middle", bold=True)]
