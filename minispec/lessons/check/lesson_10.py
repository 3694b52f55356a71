"""Checks of lesson 10, parallel drafting: the training mask, conditional drop, a second guess that is made apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ...training.block import Packing, pack
from ...viz import law_bars
from ...viz.packing_view import name, packing_view
from .base import Wrong, judged

NEAR = 1e-9
Place = tuple[int, int]                                  # (anchor, depth)
BY_HAND = [                                              # a row, another row, may the first attend to the second?
    ((2, 0), (1, 0), True), ((2, 0), (2, 0), True), ((1, 0), (2, 0), False), ((2, 0), (2, 1), False),
    ((2, 1), (2, 0), True), ((2, 1), (0, 0), True), ((2, 1), (3, 0), False), ((2, 1), (1, 1), False),
    ((2, 2), (2, 1), True), ((2, 1), (2, 2), False), ((2, 2), (2, 2), True), ((2, 2), (1, 2), False)]


@judged
def may_attend(function: Callable[[Place, Place], bool]) -> Iterator[Wrong]:
    """(row (anchor, depth), other (anchor, depth)) -> may the row attend to the other?"""
    whole = pack(4, 3, np.random.default_rng(0), keep=1.0)
    drawn = [pack(6, 3, np.random.default_rng(seed)) for seed in range(5)]
    for row, other, right in BY_HAND:
        if bool(function(row, other)) != right:
            yield Wrong(f"{name(row)} {'must' if right else 'must not'} attend to {name(other)}: {reason(row, other)}.",
                        *drawn_mask(function, whole))
    for packing in drawn:
        places = places_of(packing)
        for row, cells in zip(places, packing.mask.tolist()):
            for other, right in zip(places, cells):
                if bool(function(row, other)) != right:
                    yield Wrong(f"{name(row)} {'must' if right else 'must not'} attend to {name(other)}: "
                                f"{reason(row, other)}.", *drawn_mask(function, packing))


def places_of(packing: Packing) -> list[Place]:
    return list(zip(packing.anchor.tolist(), packing.depth.tolist()))


def reason(row: Place, other: Place) -> str:
    """Why this row may attend to the other, or may not."""
    (a, k), (b, j) = row, other
    if j == 0:
        return "it is text up to the row's anchor" if b <= a else "it is text that comes after the row's anchor"
    if a != b:
        return "it is a mask of another block"
    return "it is a mask of the row's own block, not behind it" if j <= k else "it is a mask behind the row"


def drawn_mask(function: Callable[[Place, Place], bool], packing: Packing) -> tuple[str, str]:
    """(SVG, alt): the mask that the function makes, its wrong cells marked."""
    places = places_of(packing)
    yours = [[bool(function(row, other)) for other in places] for row in places]
    return packing_view(packing, yours=yours), "The mask that your function makes, with the cells that are wrong"


Drop = Callable[[int, int, np.random.Generator], Sequence[Sequence[int]]]


@judged
def drop(function: Drop) -> Iterator[Wrong]:
    """(length, counts, rng) -> the anchors of each depth: all at depth 0, then counts[k - 1] of them at depth k."""
    seen = set()
    for seed, (length, counts) in enumerate([(6, (4, 3)), (8, (5, 3, 2)), (5, (5, 5)), (8, (6, 6, 6)), (7, ())] * 4):
        given = f"For a text of {length} tokens and counts {counts}"
        got = [sorted(int(a) for a in anchors) for anchors in function(length, counts, np.random.default_rng(seed))]
        if len(got) != 1 + len(counts) or got[0] != list(range(length)):
            yield Wrong(f"{given} it gives {got}: expected are {1 + len(counts)} lists, the first with all anchors.")
            return
        for k, count in enumerate(counts, start=1):
            outside = [a for a in got[k] if not 0 <= a < length - k]
            alone = [a for a in got[k] if a not in got[k - 1]]
            room = sum(a + k < length for a in got[k - 1])
            if outside:
                yield Wrong(f"{given} the anchors of depth {k} are {got[k]}, but anchor + {k} must lie in the text.")
                return
            if alone:
                yield Wrong(f"{given} depth {k} has the anchor {alone[0]}, which depth {k - 1} lacks: the block has a "
                            f"hole, and no proposal ever looks like that.", *drawn_rows(got, length))
                return
            if len(set(got[k])) < len(got[k]) or len(got[k]) != min(count, room):
                yield Wrong(f"{given} depth {k} has the anchors {got[k]}, expected are {min(count, room)} different "
                            f"ones.", *drawn_rows(got, length))
                return
        if (length, counts) == (6, (4, 3)):
            seen.add(tuple(map(tuple, got)))
    if len(seen) < 2:
        yield Wrong("It drops the same blocks every time: which ones must be drawn with rng, or some anchors are never "
                    "trained at depth.")


def drawn_rows(anchors: Sequence[Sequence[int]], length: int) -> tuple[str, str]:
    """(SVG, alt): the rows that are left, as a packing."""
    flat = [(a, k) for k, row in enumerate(anchors) for a in row if 0 <= a < length]
    packing = Packing(*(torch.tensor(column) for column in zip(*flat)))
    return packing_view(packing), "The rows that your function keeps, by anchor and depth"


@judged
def second_kept(function: Callable[[Tensor], float]) -> Iterator[Wrong]:
    """joint (V, V), the target's law of two tokens -> how often the second guess is kept, if drawn apart."""
    half = torch.zeros(4, 4).double()
    half[0, 1] = half[2, 3] = 0.5
    alone = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    cases = [(half, 0.5), (torch.eye(3).double() / 3, 1 / 3), (alone[:, None] * alone, 1.0),
             (torch.tensor([[0.4, 0.1], [0.0, 0.5]], dtype=torch.float64), 0.6)]
    generator = torch.Generator().manual_seed(10)
    for size in (2, 3, 5):
        joint = torch.rand(size, size, generator=generator, dtype=torch.float64) ** 3
        cases.append((joint / joint.sum(), None))
    for joint, by_hand in cases:
        right = kept(joint) if by_hand is None else by_hand
        got = float(function(joint.clone()))
        if not abs(got - right) <= NEAR:
            first = int(joint.sum(1).argmax())
            given = joint[first] / joint[first].sum()
            yield Wrong(f"For {[[round(x, 3) for x in row] for row in joint.tolist()]} it gives {got:.4f}, expected "
                        f"{right:.4f}. The picture shows the second token's law after the first token {first}, and the "
                        f"law that it was drawn from.",
                        law_bars(given.tolist(), joint.sum(0).tolist(), name="drawn apart",
                                 reference="p, given the first"),
                        "The target's law of the second token given the first, and its law given nothing")


def kept(joint: Tensor) -> float:
    """The same by a loop over both tokens, for laws whose first token may be impossible."""
    apart, total = joint.sum(0), 0.0
    for row in joint:
        first = float(row.sum())
        total += sum(min(float(both), first * float(q)) for both, q in zip(row, apart))
    return total
