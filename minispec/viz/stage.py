"""One round's proposal at one step: the drafted tokens, and the numbers that decide about them.

A chain's token stands above the cache slot it goes to, with q, p and the throw of the dice below it. A tree is drawn as one.
"""

from __future__ import annotations

from ..decoding.trace import Round
from . import svg as draw
from .cache_grid import STEPS, Window, fates, window
from .dart import throws
from .ribbon import HEIGHT, Decode, chip_width, provenance
from .tree_view import leaves, tree_drawing

LINE = 24                                                # height of a line of numbers
CHAIN = 206                                              # height of a chain's stage


def stage_height(r: Round) -> float:
    """Height of a round's stage, the emitted tokens included."""
    return CHAIN if r.tree.is_chain else max(150.0, min(46.0 * leaves(r.tree), 260), 24.0 * leaves(r.tree)) + HEIGHT + 16


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
    return parts


def lines(r: Round, decode: Decode) -> list[tuple[str, int, list[str]]]:
    """(name, index of the step from which it is known, a value for each position) for what the trace knows."""
    found = []
    if len(r.draft_top) == len(r.tokens):
        found.append(("q(x)", 0, [probability(r.draft_top[k - 1], token) for k, token in enumerate(r.tokens)]))
    found.append(("p(x)", 1, [probability(r.target_top[k], token) for k, token in enumerate(r.tokens)]))
    try:
        coins = throws(r)
    except ValueError:                                   # another rule: it drew the target's own token at each node reached
        drawn = [outcome.result for outcome in r.outcomes if outcome.kind == "draw"][-len(r.path) - 1:]
        if drawn == [*(r.tokens[node] for node in r.path), r.token]:
            found.append(("target drew", 2, [draw.visible(decode([token])) for token in drawn]))
        return found
    found.append(("keep if u <", 2, [f"{coin.chance:.2f}" for coin in coins]))
    if all(coin.u is not None for coin in coins):
        found.append(("u", 2, [f"{coin.u:.2f} {'✓' if coin.result else '✗'}" for coin in coins]))
    return found


def probability(entries: dict[int, float], token: int) -> str:
    """A token's recorded probability; "≤ …" where only likelier ones were kept."""
    if token in entries:
        return f"{entries[token]:.2f}"
    return "0.00" if sum(entries.values()) > 1 - 1e-6 else f"≤{min(entries.values()):.2f}"


def emitted(r: Round, decode: Decode, y: float) -> list[str]:
    """What the round hands to the reader: each token above its slot for a chain, side by side for a tree."""
    parts, view, x = [draw.text(10, y + 28, "emitted", bold=True)], window(r), 116.0
    for k, (token, role) in enumerate(provenance(r)):
        label = draw.visible(decode([token]))
        wide = view.wide - 2 if r.tree.is_chain else chip_width(label)
        x = view.x(r.context + k) + 1 if r.tree.is_chain else x
        parts.append(draw.chip(x, y, wide, HEIGHT, role, label, size=14, title=draw.ROLES[role].name))
        x += wide + 4
    return parts
