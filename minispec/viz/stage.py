"""One round's proposal at one step: the drafted tokens, and the numbers that decide about them.

A chain's token stands above the cache slot it goes to, with q, p and the throw of the dice below it. A tree is drawn
as one.
"""

from __future__ import annotations

from ..decoding.dice import Outcome
from ..decoding.trace import Round
from . import svg as draw
from .cache_grid import Window, window
from .cache_states import STEPS, fates
from .dart import throws
from .ribbon import HEIGHT, Decode, chip_width
from .tree_view import leaves, tree_drawing

LINE = 24                                                # height of a line of numbers
CHAIN = 216                                              # height of a chain's stage


def stage_height(r: Round) -> float:
    """Height of a round's stage, the emitted tokens included."""
    count = leaves(r.tree)
    return CHAIN if r.tree.is_chain else max(150.0, min(46.0 * count, 260.0), 24.0 * count) + HEIGHT + 16


def stage(r: Round, step: str, decode: Decode, height: float) -> list[str]:
    """Parts at most `height` high. What isn't known yet at this step isn't drawn."""
    if not r.tokens:
        parts = [draw.text(10, 30, "Nothing is drafted in this round: the target's own token is all that comes.", 18)]
    elif r.tree.is_chain:
        parts = chain(r, step, decode, window(r))
    else:
        roles = fates(r) if STEPS.index(step) > 1 else None
        labels = ["root", *(draw.visible(decode([token])) for token in r.tokens)]
        parts = tree_drawing(r.tree, labels, 940, height - HEIGHT - 16, roles)
    return parts + (emitted(r, decode, height - HEIGHT) if STEPS.index(step) > 1 else [])


def chain(r: Round, step: str, decode: Decode, view: Window) -> list[str]:
    """A column for each drafted token: the chip, then lines of numbers, as far as the round has come."""
    now, fate = STEPS.index(step), fates(r)
    parts = [draw.text(10, 25, "drafted", bold=True)]
    for k, token in enumerate(r.tokens):
        label, role = draw.visible(decode([token])), fate[k] if now > 1 else "draft"
        parts.append(draw.chip(view.x(r.context + k) + 1, 0, view.wide - 2, 40, role, label, size=14, glyph=now > 1))
    y = 40 + LINE * 0.8
    for name, since, words in lines(r, decode):
        if now >= since:
            parts.append(draw.text(10, y, name, 15, bold=True))
            parts += [draw.text(view.x(r.context + k) + view.wide / 2, y, draw.fit(value, view.wide, 14), 14, "middle")
                      for k, value in enumerate(words)]
        y += LINE
    return parts + (darts(r, view, 40 + 4 * LINE + 4) if now > 1 else [])


def darts(r: Round, view: Window, y: float) -> list[str]:
    """For each coin thrown a small unit interval: accepted up to the chance, hatched beyond, and where u fell."""
    parts = []
    for k, coin in enumerate(coins_of(r)):
        x, w = view.x(r.context + k) + 6, view.wide - 12
        cut = w * coin.chance
        parts += [draw.rect(x, y, w, 12, draw.ROLES["rejected"].tint, draw.ROLES["rejected"].colour, width=1),
                  draw.hatch(x + cut, y, w - cut, 12, draw.ROLES["rejected"].colour, 5) if w - cut > 1 else "",
                  draw.rect(x, y, cut, 12, draw.ROLES["accepted"].tint, draw.ROLES["accepted"].colour, width=1),
                  draw.line(x + w * coin.u, y - 3, x + w * coin.u, y + 15, draw.INK, 3) if coin.u is not None else ""]
    return parts


def coins_of(r: Round) -> list[Outcome]:
    """The acceptance coins of a chain; none where another rule judged it."""
    try:
        return throws(r)
    except ValueError:
        return []


def lines(r: Round, decode: Decode) -> list[tuple[str, int, list[str]]]:
    """(name, index of the step from which it is known, a value for each position) for what the trace knows."""
    found = []
    if len(r.draft_top) == len(r.tokens):
        found.append(("q(x)", 0, [probability(r.draft_top[k - 1], token) for k, token in enumerate(r.tokens)]))
    found.append(("p(x)", 1, [probability(r.target_top[k], token) for k, token in enumerate(r.tokens)]))
    if coins := coins_of(r):
        found.append(("keep if u <", 2, [f"{coin.chance:.2f}" for coin in coins]))
        us = ["" if coin.u is None else f"{coin.u:.2f} " for coin in coins]
        found.append(("u", 2, [u + ("✓" if coin.result else "✗") for u, coin in zip(us, coins)]))
        return found
    drawn = [outcome.result for outcome in r.outcomes][-len(r.path) - 1:]
    no_coins = all(outcome.kind == "draw" for outcome in r.outcomes)
    if no_coins and drawn == [*(r.tokens[node] for node in r.path), r.token]:      # rules.Match
        found.append(("target drew", 2, [draw.visible(decode([token])) for token in drawn]))
    return found


def probability(entries: dict[int, float], token: int) -> str:
    """A token's recorded probability; "≤ …" where only likelier ones were kept."""
    whole, least = sum(entries.values()) > 1 - 1e-6, min(entries.values())
    value, sign = (entries[token], "") if token in entries else (0.0, "") if whole else (least, "≤")
    return "<0.01" if 0 < value < 0.005 else f"{sign}{value:.2f}"


def emitted(r: Round, decode: Decode, y: float) -> list[str]:
    """What the round hands to the reader: each token above its slot for a chain, side by side for a tree."""
    parts, view, x = [draw.text(10, y + 28, "emitted", bold=True)], window(r), 116.0
    for k, (token, role) in enumerate(r.provenance()):
        label = draw.visible(decode([token]))
        wide = view.wide - 2 if r.tree.is_chain else chip_width(label)
        x = view.x(r.context + k) + 1 if r.tree.is_chain else x
        parts.append(draw.chip(x, y, wide, HEIGHT, role, label, size=14, title=draw.ROLES[role].name))
        x += wide + 4
    return parts
