"""A tree four times over: as a drawing, as the attention mask, as positions, and as slots of the cache before and
after.

Row 0 of a pass is the last committed token, the root; row i + 1 is node i. A row attends to everything committed, to
itself and to its ancestors, and its position is the root's plus its depth (Miao et al. 2305.09781, section 4.2).
Afterwards the cache keeps the root and the accepted path, moved together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.trace import Round
from ..decoding.tree import ROOT, TokenTree
from . import svg as draw
from .cache_states import fates
from .ribbon import Decode

TOP, TALL = 62, 372                                      # where drawing and mask begin; the most they take


def tree_at(r: Round, decode: Decode, node: int | None = None) -> str:
    """The tree of a round with its outcome; `node` lights up (ROOT for the root)."""
    kept = r.path[:r.target_cache[2] - r.target_cache[0] - 1]
    return tree_view(r.tree, decode, node, base=r.target_cache[0], path=kept, roles=fates(r))


def tree_view(tree: TokenTree, decode: Decode, node: int | None = None, *, base: int = 0,
              path: Sequence[int] | None = None, roles: Sequence[str] | None = None) -> str:
    """base: the root's position. path: the nodes the cache keeps, None while undecided. roles (N,): default all
    "draft".
    """
    labels = ["root", *(draw.visible(decode([token])) for token in tree.tokens)]
    rows = len(tree) + 1
    tall = min(float(TALL), 60.0 * max(leaves(tree), rows * 0.5))
    lit = set() if node is None else {ROOT, *tree.path(node)}
    parts = [draw.text(10, 26, "The tree", 18, bold=True),
             draw.group(10, TOP, tree_drawing(tree, labels, 414, tall, roles, lit)),
             draw.text(440, 26, "The mask: • = may attend to", 18, bold=True),
             draw.group(430, TOP, mask_drawing(tree, labels, tall, base, node))]
    low = TOP + tall + 26
    if path is not None:
        parts += [draw.text(10, low + 14, "The target's cache after the pass, and what it keeps", 18, bold=True),
                  draw.group(10, low + 26, compaction(tree, labels, base, path, roles))]
        low += 170
    alt = (f"A tree of {len(tree)} nodes, {int(tree.depths().max())} deep, its mask, and its positions from {base} on."
           + (f" Row {node + 1} is lit: it attends to rows {sorted(n + 1 for n in lit)}." if node is not None else "")
           + (f" The cache keeps the nodes {list(path)}." if path is not None else ""))
    return draw.svg(low, parts, "Tree, mask, positions, cache", alt)


def leaves(tree: TokenTree) -> int:
    return max(1, sum(node not in tree.parents for node in range(len(tree))))


def tree_places(tree: TokenTree, w: float, h: float) -> dict[int, tuple[float, float]]:
    """Centre of each node (ROOT too) in a box of w by h: x by depth, leaves one below the other, parents amid their
    children.
    """
    depths, deep = tree.depths().tolist(), max(1, int(tree.depths().max()))
    places, line, step = {}, 0, h / leaves(tree)
    for node in [*tree.depth_first()[::-1], ROOT]:       # children come before their parent
        below = [places[child][1] for child in tree.children(node)]
        if not below:
            line += 1
        y = (below[0] + below[-1]) / 2 if below else h - (line - 0.5) * step
        places[node] = (w * (depths[node + 1] + 0.5) / (deep + 1), y)
    return places


def tree_drawing(tree: TokenTree, labels: Sequence[str], w: float, h: float, roles: Sequence[str] | None = None,
                 lit: set[int] = frozenset()) -> list[str]:
    """The drawing, root at the left. labels (1 + N,): the root's first."""
    places, roles = tree_places(tree, w, h), ["target", *(roles or ["draft"] * len(tree))]
    numbered = h / leaves(tree) >= 44
    wide = min(110.0, w / (int(tree.depths().max()) + 1) - 20)
    high = min(40.0, h / leaves(tree) - (20 if numbered else 4))
    parts = []
    for node, parent in enumerate(tree.parents):
        (x1, y1), (x2, y2) = places[parent], places[node]
        look = (draw.INK, 4) if node in lit else (draw.ROLES["unjudged"].colour, 1.5)
        parts.append(draw.line(x1 + wide / 2, y1, x2 - wide / 2, y2, *look))
    for node, (x, y) in sorted(places.items()):
        role, x, y = roles[node + 1], x - wide / 2, y - high / 2
        judged = role not in ("draft", "target")
        parts.append(draw.chip(x, y, wide, high, role, labels[node + 1], size=14, glyph=judged))
        if node in lit:
            parts.append(draw.rect(x - 1, y - 1, wide + 2, high + 2, "none", draw.INK, width=4, round_=4))
        if node != ROOT and numbered:
            parts.append(draw.text(x + 1, y - 6, str(node + 1), draw.SMALL, bold=True))
    return parts


def mask_drawing(tree: TokenTree, labels: Sequence[str], tall: float, base: int, node: int | None) -> list[str]:
    """The mask with a first column for all that is committed, row labels at the left, positions at the right."""
    mask, positions = tree.mask().tolist(), (tree.depths() + base).tolist()
    rows = len(mask)
    size = min(tall / rows, 357.0 / (rows + 1), 44.0)
    x0, every = 100.0, 1 if size >= 18 else 2 if size >= 10 else 4
    parts = [draw.text(x0 + size / 2, -8, "past", draw.SMALL, "middle", fill=draw.MUTED) if size > 24 else "",
             draw.text(x0 + size * (rows + 1) + 38, -8, "position", draw.SMALL, "middle", bold=True)]
    for r in range(rows):
        y, lit = r * size, node is not None and r == node + 1
        words = draw.fit(labels[r], 66, draw.SMALL, mono=True)
        if r % every == 0:
            parts += [draw.text(x0 + size * (r + 1.5), -8, str(r), draw.SMALL, "middle", bold=lit),
                      draw.text(22, y + size / 2 + 5, str(r), draw.SMALL, "end", bold=True),
                      draw.text(x0 - 8, y + size / 2 + 5, words, draw.SMALL, "end", mono=True),
                      draw.text(x0 + size * (rows + 1) + 38, y + size / 2 + 5, str(positions[r]), 14, "middle",
                                bold=lit)]
        for c, seen in enumerate([True, *mask[r]]):
            x = x0 + c * size
            fill = draw.PAPER if not seen else draw.ROLES["bonus"].colour if lit else draw.ROLES["target"].tint
            title = f"row {r} attends to " + ("all that is committed" if c == 0 else f"row {c - 1}") if seen else ""
            parts.append(draw.rect(x, y, size, size, fill, draw.GRID, width=1, title=title))
            if seen:
                middle, radius = size / 2, max(2.0, size * 0.16)
                parts.append(draw.tag("circle", cx=x + middle, cy=y + middle, r=radius, fill=draw.INK))
    if node is not None:
        parts.append(draw.rect(x0, (node + 1) * size, size * (rows + 1), size, "none", draw.INK, width=3))
    return parts


def compaction(tree: TokenTree, labels: Sequence[str], base: int, path: Sequence[int],
               roles: Sequence[str] | None) -> list[str]:
    """The pass's slots, and below them the kept ones in their new places; a line shows where each came from."""
    rows, kept = len(tree) + 1, [0, *(node + 1 for node in path)]
    wide = min(80.0, 870.0 / rows)
    roles, parts = ["target", *(roles or ["draft"] * len(tree))], []
    for r in range(rows):
        x = 70 + r * wide
        role = roles[r] if r in kept or roles[r] != "accepted" else "unjudged"
        slot = str(base + r) if wide > 30 or r % 2 == 0 else ""
        parts += [draw.text(x + wide / 2, 14, slot, draw.SMALL, "middle", fill=draw.MUTED),
                  draw.chip(x + 1, 20, wide - 2, 40, role, labels[r], size=14, glyph=role != "target")]
    for new, old in enumerate(kept):
        x1, x2 = 70 + (old + 0.5) * wide, 70 + (new + 0.5) * wide
        parts += [draw.line(x1, 62, x2, 92, draw.INK, 2), draw.head(x2, 94, 5),
                  draw.chip(70 + new * wide + 1, 96, wide - 2, 32, "target", labels[old], size=14, glyph=False)]
    x = 70 + len(kept) * wide
    return [*parts, draw.text(0, 45, "pass", bold=True), draw.text(0, 117, "kept", bold=True),
            draw.line(x, 92, x, 132, draw.INK, 3), draw.text(x + 8, 117, f"length {base + len(kept)}", bold=True)]
