"""The figures of lesson 10: their data, and what can be said of their looks without eyes."""

import re
from functools import lru_cache

import numpy as np
import pytest
import torch
from looks import looks_wrong
from models import tiny_gpt
from test_viz import titles, words

from minispec import SeededDice, speculate
from minispec.bench.suite import by_depth, one_pass
from minispec.bench.timing import Passes
from minispec.drafters import LMDrafter
from minispec.drafters.block import BlockDrafter
from minispec.training.block import Packing, pack
from minispec.viz.mask_grid import Mask, mask_grids
from minispec.viz.packing_view import packing_view
from minispec.viz.rounds_chart import Lane, lane_of, rounds_chart

PACKING = pack(6, 3, np.random.default_rng(1))           # 13 rows; (2, 1) was dropped
PRICES = Passes(10, 1.0, 0.1, {1: 1.0, 4: 1.3}, {1: 1.0, 5: 2.0})


def shown_mask() -> Mask:
    return Mask(["x2", "[m]"], ["x1", "x2", "[m]"], [[True, True, False], [True, True, True]], "causal")


@lru_cache(maxsize=1)
def faulty() -> list[list[bool]]:
    mask = PACKING.mask.clone()
    mask[3, 2], mask[2, 9] = False, True                 # text that it should see; a mask of another block
    return mask.tolist()


@lru_cache(maxsize=1)
def figures() -> dict[str, str]:
    lane = Lane([0.15] * 5, 1.3, 2.9)
    return {"packing": packing_view(PACKING), "a row of it": packing_view(PACKING, 12),
            "faulty": packing_view(PACKING, yours=faulty()),
            "large": packing_view(pack(8, 4, np.random.default_rng(1), keep=1.0), 20),
            "small": packing_view(pack(2, 1, np.random.default_rng(1))),
            "one mask": mask_grids({"causal": shown_mask()}),
            "two masks": mask_grids({"causal": shown_mask(), "both ways": shown_mask()}),
            "rounds": rounds_chart({"chain": lane, "block": Lane([0.01], 1.3, 2.0), "plain": Lane([], 1.0)}),
            "many rounds": rounds_chart({f"drafter number {k}": lane for k in range(7)})}


@pytest.mark.parametrize("name", ["packing", "a row of it", "faulty", "large", "small", "one mask", "two masks",
                                  "rounds", "many rounds"])
def test_texts_are_large_apart_on_the_paper_and_legible(name):
    assert list(looks_wrong(figures()[name])) == []


def test_equal_input_gives_equal_bytes():
    once = dict(figures())
    figures.cache_clear()
    assert figures() == once


# --- packing_view -----------------------------------------------------------------------------------------------------

def test_the_packing_shows_every_row_and_every_cell_that_may_be_attended():
    found = titles(figures()["packing"])
    places = list(zip(PACKING.anchor.tolist(), PACKING.depth.tolist()))
    assert [t for t in found if t.startswith("row ")] == [
        f"row {places.index(place)}: ({place[0]}, {place[1]}), position {sum(place)}"
        for place in sorted(places, key=lambda place: (place[1], place[0]))]
    cells = {t for t in found if t.endswith("may attend")}
    assert cells == {f"({a}, {k}) and ({b}, {j}): may attend" for (a, k), row in zip(places, PACKING.mask.tolist())
                     for (b, j), sees in zip(places, row) if sees}


def test_a_lit_row_names_what_it_sees():
    drawing = figures()["a row of it"]
    assert "(3, 2) is lit: it attends to (0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2)." in drawing
    frames = re.findall(r'fill="none" stroke="#1a1a1a" stroke-width="(\S+)"', drawing)
    assert sorted(frames) == sorted(["2.5"] * 5 + ["5", "3"]), "five seen rows, the row itself, its line of the mask"


def test_wrong_cells_are_marked_each_in_its_way():
    drawing = figures()["faulty"]
    assert "(3, 0) and (2, 0): may attend, doesn't" in " ".join(titles(drawing)).replace("&#x27;", "'")
    assert "(2, 0) and (4, 1): attends, must not" in titles(drawing)
    assert words(drawing).count("✗") == 2 and words(drawing).count("?") == 2          # one in the grid, one in the key
    assert "2 cells of the mask are wrong" in drawing and "wrong" not in figures()["packing"]


def test_dropped_blocks_are_dashed_places():
    dashed = lambda drawing: len(re.findall(r'fill="none" stroke="#d4d4d4"[^>]*stroke-dasharray="4 4"', drawing))
    assert dashed(figures()["packing"]) == (6 + 5 + 4) - len(PACKING.anchor) == 2
    assert dashed(figures()["large"]) == 0


def test_a_packing_with_holes_can_be_drawn():
    holes = Packing(torch.tensor([0, 1, 2, 0]), torch.tensor([0, 0, 0, 2]))
    assert list(looks_wrong(packing_view(holes))) == []


def test_packing_view_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="row must be 0 to 12, got 13"):
        packing_view(PACKING, 13)
    with pytest.raises(ValueError, match="13 rows has as many rows and columns, got 12 rows"):
        packing_view(PACKING, yours=faulty()[1:])


# --- mask_grids -------------------------------------------------------------------------------------------------------

def test_a_mask_s_dots_are_its_true_cells():
    drawing = figures()["one mask"]
    assert titles(drawing) == ["x2 attends to x1", "x2 attends to x2", "[m] attends to x1", "[m] attends to x2",
                               "[m] attends to [m]"]
    assert drawing.count("<circle") == 5 and "causal: x2 attends to x1, x2, [m] attends to x1, x2, [m]" in drawing


def test_mask_grids_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="got 3"):
        mask_grids({str(k): shown_mask() for k in range(3)})
    with pytest.raises(ValueError, match="'short' must have 2 rows of 3 cells"):
        mask_grids({"short": shown_mask()._replace(sees=[[True] * 3])})


# --- rounds_chart -----------------------------------------------------------------------------------------------------

def test_a_lane_shows_each_pass_as_long_as_it_takes():
    drawing = figures()["rounds"]
    found = titles(drawing)
    assert found.count("draft pass: 0.150") == 5 and found.count("target pass: 1.300") == 2
    boxes = re.findall(r'width="(\S+)" height="\S+"[^>]*><title>([^<]+)', drawing)
    wide = {title: float(width) for width, title in boxes}
    for cost in ("1.300", "1.000"):
        assert wide[f"target pass: {cost}"] == pytest.approx(920 / 2.05 * float(cost), abs=0.1)
    assert "2.90 tokens for 2.05: speedup 1.41" in words(drawing) and "cost 1.00" in words(drawing)
    for bad in ({}, {str(k): Lane([], 1.0) for k in range(8)}):
        with pytest.raises(ValueError, match="1 to 7 rounds"):
            rounds_chart(bad)


def test_the_mean_round_of_a_chain_and_of_a_block():
    target, draft, block = tiny_gpt(5, 0, context=64), tiny_gpt(5, 1, context=64), tiny_gpt(6, 1, context=64)
    runs = [speculate(target, drafter, [1, 0], max_new_tokens=40, dice=SeededDice(0)).trace.rounds
            for drafter in (LMDrafter(draft, 3), BlockDrafter(block, 3))]
    full = [[r for r in rounds if len(r.tokens) == 3] for rounds in runs]
    assert any(len(rounds) > len(whole) for rounds, whole in zip(runs, full)), "a last round was cut"
    chain, parallel = (lane_of(rounds, feeds, PRICES.draft, PRICES.verify)
                       for rounds, feeds in zip(runs, (by_depth, one_pass)))
    lag = sum(r.context - r.draft_cache[0] for r in full[0]) / len(full[0])
    assert chain.draft == pytest.approx([PRICES.draft(1) * (1 + 0.25 * (lag - 1)), 0.1, 0.1])
    assert len(parallel.draft) == 1 and 0.1 < parallel.draft[0] < 0.3
    for lane, whole in zip((chain, parallel), full):
        assert lane.target == pytest.approx(1.3)
        assert lane.tokens == sum(len(r.emitted) for r in whole) / len(whole)
