"""The figures of lessons 06 to 08: their data, and what can be said of their looks without eyes."""

import re
from functools import lru_cache
from html import unescape

import pytest
import torch
from looks import looks_wrong
from models import tiny_gpt
from test_viz import titles, words

from minispec import speculate
from minispec.analysis import CHAINS, prove
from minispec.decoding import TokenTree, rules
from minispec.decoding.trace import Trace
from minispec.drafters import LMDrafter
from minispec.viz import departure_view, lengths_chart, lines_chart, mask_faults, svg
from minispec.viz.lengths import accepted_counts, constant_alpha, geometric

TREE = TokenTree((5, 6, 7, 8), (-1, -1, 0, 0), origin="chosen")


class Greedy(rules.Token):
    """Wrong on purpose: the correction is the likeliest token."""

    def __call__(self, tree, target_probs, dice):
        verdict = super().__call__(tree, target_probs, dice)
        return verdict._replace(token=int(target_probs[len(verdict.path)].argmax()))


@lru_cache(maxsize=1)
def traces() -> tuple[Trace, ...]:
    target, draft = tiny_gpt(12, 0, context=64), tiny_gpt(12, 1, context=64)
    with torch.no_grad():                                            # a draft that is often, not always, right
        for mine, other in zip(draft.parameters(), target.parameters()):
            mine.copy_(0.9 * other + 0.1 * mine)
    return tuple(speculate(target, LMDrafter(draft, 4), prompt, max_new_tokens=40).trace for prompt in ([0, 1], [3, 2]))


@lru_cache(maxsize=1)
def proofs():
    return {"wrong": prove(Greedy(), shapes=CHAINS[:1]), "right": prove(rules.Token(), shapes=CHAINS[:1])}


@lru_cache(maxsize=1)
def figures() -> dict[str, str]:
    sibling = TREE.mask().clone()
    sibling[2, 1], sibling[3, 0] = True, False
    large = TokenTree((0,) * 20, tuple(range(-1, 19)), origin="chosen")
    many = {f"a line with a long name, number {k}": [(1, k), (2, k / 2)] for k in range(6)}
    two = {"yours": [(0, 1), (8, 3.4)], "right": [(0, 1), (8, 4.2)]}
    return {"lines": lines_chart(two, "draft length γ", "tokens", "Expected tokens"),
            "lines, ceiling": lines_chart({"optimum": [(1, 0.5), (2, 0.7), (3, 0.8)], "mine": [(1, 0.4), (3, 0.6)]},
                                          "candidates k", "acceptance", "Acceptance", top=1, ceiling="optimum"),
            "lines, many": lines_chart(many, "x", "y", "Many"),
            "lines, a point": lines_chart({"p": [(3, 0)]}, "x", "y", "A point"),
            "lengths": lengths_chart(traces(), 4), "departure": departure_view(proofs()["wrong"]),
            "no departure": departure_view(proofs()["right"]), "mask": mask_faults(TREE, sibling.tolist()),
            "mask, large": mask_faults(large, [[True] * 21] * 21)}


@pytest.mark.parametrize("name", ["lines", "lines, ceiling", "lines, many", "lines, a point", "lengths", "departure",
                                  "no departure", "mask", "mask, large"])
def test_texts_are_large_apart_on_the_paper_and_legible(name):
    assert list(looks_wrong(figures()[name])) == []


@pytest.mark.parametrize("content, fault", [
    (svg.text(10, 20, "one", 12), "smaller than 13"), (svg.text(90, 20, "far out"), "off the paper"),
    (svg.text(10, 20, "one") + svg.text(20, 24, "two"), "overlap"), (svg.text(10, 20, "one", fill="#eeeeee"), "faint")])
def test_looks_that_are_wrong_are_found(content, fault):
    assert any(fault in found for found in looks_wrong(svg.svg(60, [content], "t", "a", width=100)))


def test_equal_input_gives_equal_bytes():
    once = dict(figures())
    for cached in (figures, traces, proofs):
        cached.cache_clear()
    assert figures() == once


def test_the_geometric_law_sums_to_one_and_has_the_mean_of_the_theory():
    for alpha in (0.0, 0.3, 0.9, 1.0):
        law = geometric(alpha, 5)
        assert abs(sum(law) - 1) < 1e-12
        assert abs(sum(k * p for k, p in enumerate(law)) - sum(alpha ** k for k in range(1, 6))) < 1e-12
    assert geometric(0.5, 2) == [0.5, 0.25, 0.25]


def test_accepted_counts_are_the_rounds_of_the_trace():
    counts = accepted_counts(traces(), 4)
    rounds = [r for trace in traces() for r in trace.rounds if len(r.tokens) == 4]
    assert sum(counts) == len(rounds) > 10 and counts[4] == sum(r.bonus for r in rounds)
    assert sum(k * n for k, n in enumerate(counts)) == sum(len(r.path) for r in rounds)
    assert accepted_counts(traces(), 3) != counts
    assert constant_alpha([2, 1, 1]) == 3 / 6                        # 3 accepted, 3 rejected
    with pytest.raises(ValueError, match="a chain of 9 tokens"):
        lengths_chart(traces(), 9)


def test_the_lengths_chart_shows_the_counts_and_the_law():
    counts, shown = accepted_counts(traces(), 4), figures()["lengths"]
    assert [t for t in titles(shown)] == [f"{k} accepted: {n} of {sum(counts)} rounds" for k, n in enumerate(counts)]
    for k, chance in enumerate(geometric(constant_alpha(counts), 4)):
        assert f"one α: {k}, {chance:.4g}" in unescape(shown)


def test_a_chart_of_lines_shows_every_point():
    drawing = unescape(figures()["lines"])
    assert "yours: 0, 1" in drawing and "yours: 8, 3.4" in drawing and "right: 8, 4.2" in drawing
    assert "no exact rule" not in drawing and "no exact rule can be here" in figures()["lines, ceiling"]
    for bad in ({}, {"a": []}, {str(k): [(0, 0)] for k in range(7)}):
        with pytest.raises(ValueError, match="lines with points"):
            lines_chart(bad, "x", "y", "t")
    with pytest.raises(ValueError, match="ceiling must be one of"):
        lines_chart({"a": [(0, 1)]}, "x", "y", "t", ceiling="b")


def test_the_ceiling_is_drawn_along_its_line_and_the_rest_below_it():
    """All points of the lower line lie on the paper that covers the hatching; the axis goes past the ceiling."""
    drawing = figures()["lines, ceiling"]
    paper = re.search(r'<path d="M([^"]+)Z" fill="#ffffff" stroke="none"', drawing)[1]
    outline = [tuple(map(float, point.split())) for point in paper.split("L")]
    marks = re.findall(r'cx="(\S+)" cy="(\S+)" r="6"', drawing)[:3]           # the ceiling's: no other line has circles
    assert [(float(x), float(y)) for x, y in marks] == outline[1:-1]


def test_mask_faults_names_each_wrong_cell():
    drawing = figures()["mask"]
    assert "row 2, column 1: sees, must not" in titles(drawing) and "row 3, column 0: should see, doesn't" in unescape(
        " ".join(titles(drawing)))
    seen = [title for title in titles(drawing) if title.endswith("may attend, and does")]
    assert len(seen) == int(TREE.mask().sum()) - 1
    assert "2 wrong cells" in drawing and words(drawing).count("✗") == 2      # one in the grid, one in the key
    with pytest.raises(ValueError, match="has 5 rows of 5 columns, got 4 rows"):
        mask_faults(TREE, [[True] * 4] * 4)


def test_the_departure_shows_the_proof_s_numbers():
    found, drawing = proofs()["wrong"].departure, figures()["departure"]
    for wanted, got in found.next_token:
        assert f"{wanted:.3f}".removeprefix("0") in words(drawing) and f"{got:.3f}".removeprefix("0") in words(drawing)
    assert any(" ".join(map(str, found.prefix)) + " → 0" in w or "start → 0" in w for w in words(drawing))
    assert proofs()["right"].exact and "exact, in all" in figures()["no departure"]
