"""The figures of lessons 03 to 05: their data, and what can be said of their looks without eyes."""

from functools import lru_cache

import pytest
from looks import looks_wrong
from test_viz import boxes, titles, words

from minispec.viz import cache_lengths, law_bars, svg, token_rows
from minispec.viz.cache_lengths import Answer
from minispec.viz.token_rows import first_difference

WORDS = ["def", " name", "\n        ", "<&\"'>", "return_value_of_a_long_name", "x"]
TEXT = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
SHORT = [0, 1, 5, 0, 1, 5]
SLOTS = ["the", " cat", " sat", " on", " a", " very_long_token", " mat"]


def decode(ids):
    return "".join(WORDS[token] for token in ids)


@lru_cache(maxsize=1)
def figures() -> dict[str, str]:
    answers = {"right": Answer(7, 5, 5), "too far": Answer(7, 5, 7), "near": Answer(7, 5, 6), "past": Answer(7, 7, 12),
               "before": Answer(6, 4, -3), "none": Answer(1, 1, 0)}
    found = {f"lengths, {name}": cache_lengths(SLOTS, {"target": answer, "draft": answers["near"]})
             for name, answer in answers.items()}
    return found | {
        "rows": token_rows({"plain decoding": SHORT, "yours": [0, 1, 0, 5], "longer": SHORT + [0]}, decode),
        "rows, late": token_rows({"plain": TEXT, "same": TEXT, "other": TEXT[:14] + [0, 0]}, decode),
        "rows, alone": token_rows({"plain": [5]}, decode),
        "law": law_bars([0.4, 0.3, 0.2, 0.1], [0.5, 0.3, 0.2, 0.0], lambda token: "abcd"[token]),
        "law, same": law_bars([0.6, 0.4], [0.6, 0.4]),
        "law, pairs": law_bars({(a, b): 1 / 16 for a in range(4) for b in range(4)}, {(0, 0): 0.5, (3, 3): 0.5}),
        "law, extreme": law_bars([1.0, 0.0], [0.0, 1.0], name="the loop")}


def test_texts_are_large_apart_legible_and_on_the_paper():
    for name, drawing in figures().items():
        assert list(looks_wrong(drawing)) == [], name


def test_equal_input_gives_equal_bytes():
    once = dict(figures())
    figures.cache_clear()
    assert figures() == once


# --- sequences compared ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tokens, reference, at", [([5, 7], [5, 9], 1), ([5], [5, 7], 1), ([5, 7, 1], [5, 7], 2),
                                                   ([], [5], 0), ([5, 7], [5, 7], None), ([], [], None)])
def test_the_first_difference_counts_a_missing_token(tokens, reference, at):
    assert first_difference(tokens, reference) == at


def test_tokens_are_marked_up_to_the_first_that_differs():
    marks = {}
    for name in ("plain decoding", "yours", "longer"):
        marks[name] = [t.split(": ")[1] for t in titles(figures()["rows"]) if t.startswith(name + " ")]
    assert marks == {"plain decoding": ["target"] * 6, "yours": ["accepted"] * 2 + ["rejected", "not judged"],
                     "longer": ["accepted"] * 6 + ["rejected"]}


def test_a_long_text_is_cut_to_where_it_changes():
    """The 15th token differs: it is on the paper, and so are the positions before it."""
    marks = [t for t in titles(figures()["rows, late"])]
    assert "other 15: rejected" in marks and "other 14: accepted" in marks and "same 15: accepted" in marks
    assert "same 1: accepted" not in marks
    assert "16" in words(figures()["rows, late"]) and "1" not in words(figures()["rows, late"])


def test_token_rows_needs_something_to_compare_with():
    for bad in ({}, {"plain": []}):
        with pytest.raises(ValueError, match="token_rows needs"):
            token_rows(bad, decode)


# --- two laws --------------------------------------------------------------------------------------------------------

def bars_of(drawing):
    """(colour, height) of every bar that isn't in the legend, from left to right."""
    found = [box for box in boxes(drawing) if box.kind == "rect" and box.bottom - box.top != 20]
    return [(box.colour, box.bottom - box.top) for box in sorted(found[1:], key=lambda box: (box.left, -box.top))]


def test_the_bars_are_the_two_laws():
    """p = .4 .3 .2 .1 came out as .5 .3 .2 0: one token too often, one never; the tallest bar stands for 0.5."""
    blue, green, red = (svg.ROLES[role].tint for role in ("target", "accepted", "rejected"))
    unit = 220 / 0.5
    wanted = [(blue, 0.4), (green, 0.4), (red, 0.1), (blue, 0.3), (green, 0.3), (blue, 0.2), (green, 0.2), (blue, 0.1),
              (svg.PAPER, 0.1)]
    found = bars_of(figures()["law"])
    assert [colour for colour, _ in found] == [colour for colour, _ in wanted]
    assert [height / unit for _, height in found] == pytest.approx([mass for _, mass in wanted], abs=2e-3)
    assert "✗ another law: distance (TV) 0.100" in words(figures()["law"])


def test_equal_laws_are_called_equal_and_others_are_not():
    assert "✓ the same law" in words(figures()["law, same"])
    assert "✓ the same law" in words(law_bars([0.5, 0.5], [0.5 + 4e-13, 0.5 - 4e-13]))
    assert "✓ the same law" not in words(law_bars([0.5, 0.5], [0.5 + 1e-11, 0.5 - 1e-11]))


def test_of_many_outcomes_those_that_differ_most_are_drawn():
    shown = words(figures()["law, pairs"])
    assert "(0, 0)" in shown and "(3, 3)" in shown and "9 of 16 outcomes" in shown


def test_law_bars_refuses_masses_that_are_none():
    for wanted, got in (([0.5, 0.5], [1.2, -0.2]), ([], [])):
        with pytest.raises(ValueError, match="law_bars needs two laws"):
            law_bars(wanted, got)


# --- the length of a cache -------------------------------------------------------------------------------------------

def test_both_lengths_are_marked_and_slots_past_the_right_one_are_hatched():
    drawing = figures()["lengths, too far"]
    assert {"✓ 5 is right", "✗ 7 is yours", "✗ 6 is yours"} <= set(words(drawing))
    looks = [t for t in titles(drawing)]
    assert looks == []                                                   # slots are named by the positions above them
    tints = [box.colour for box in boxes(drawing) if box.kind == "rect" and abs(box.bottom - box.top - 38) < 0.1]
    row = [svg.ROLES["target"].tint] * 5 + [svg.ROLES["rejected"].tint] * 2
    assert tints == row + [svg.ROLES["draft"].tint] * 5 + [svg.ROLES["rejected"].tint] * 2


def test_a_right_length_is_one_mark_and_an_impossible_one_keeps_its_number():
    assert "✓ 5 is right, and yours" in words(figures()["lengths, right"])
    assert "✗ 12 is yours" in words(figures()["lengths, past"])
    assert "✗ -3 is yours" in words(figures()["lengths, before"])
