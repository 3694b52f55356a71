"""Figures of lessons 00 to 02: their data, and what can be said of their looks without eyes."""

import re
from functools import lru_cache

import pytest
import torch
from looks import looks_wrong
from models import tiny_gpt
from test_viz import decode, titles, traces, words

from minispec import GPTConfig, generate
from minispec.bench.roofline import Machine
from minispec.viz import (agreement, chip_rows, compare, flat_chart, pass_flow, passes_grid, passes_of, race,
                          roofline_chart, without_cache)
from minispec.viz.agreement import FLOOR, verdict
from minispec.viz.flow import cache_shape, stages
from minispec.viz.passes import rows_computed
from minispec.viz.race import finish_times, tokens_by
from minispec.viz.roofline import attained, with_unit

MACHINE = Machine(bandwidth=1e11, peak=1e12)             # its ridge, at 4 bytes a weight, is at 20 tokens


def runners():
    return {"speculative": traces()["chain"], "plain": traces()["plain"]}


@lru_cache(maxsize=1)
def figures():
    grids = {name: passes_of(trace) for name, trace in runners().items()}
    found = {f"race, {clock} {k}": frame.svg for clock in ("passes", "seconds")
             for k, frame in enumerate(race(runners(), decode, clock, 6))}
    found["passes"] = passes_grid({"with a cache": grids["plain"][:12], "without": without_cache(traces()["plain"])[:12]})
    found["passes, step 3"] = passes_grid({"speculative": grids["speculative"]}, shown=3)
    found["agreement"] = agreement({"cached": [1e-16] * 12, "positions from 0": [0.0] * 4 + [0.3, 1.2, 30] + [5] * 5})
    found["agreement, all equal"] = agreement({"cached": [0.0]})
    found["compare"] = compare([f"slot {k}: stale" for k in range(8)], [0.125] * 8, [0, 0.1, 0.125, 0.3, -1, 0.2, 1, 2],
                               "Attention weights by slot")
    found["chips"] = chip_rows({"right": [("t1", "accepted"), ("t2", "correction")], "yours": [("t1", "draft?"),
                                ("t2", "bonus"), ("t3", "a role that nobody knows")]}, "Who made each token?")
    found["flow"] = pass_flow(GPTConfig(), cached=37)
    found["flow, prefill"] = pass_flow(GPTConfig(), cached=0, new=6)
    found["roofline"] = roofline_chart(MACHINE, {1: 0.05, 4: 0.05, 16: 0.06, 64: 0.3}, 1e9, 4, "a machine by hand")
    found["flat"] = flat_chart({1: 1.0, 2: 1.05, 4: 1.2, 8: 1.6, 16: 2.9}, 0.25, {"right": 4, "yours": 8})
    return found


def test_texts_are_large_apart_legible_and_on_the_paper():
    for name, drawing in figures().items():
        assert not list(looks_wrong(drawing)), name


def test_equal_input_gives_equal_bytes():
    once = figures()
    figures.cache_clear()
    assert figures() == once


# --- the race ---------------------------------------------------------------------------------------------------------

def test_the_race_counts_the_tokens_of_the_trace():
    """At every moment: the tokens of all rounds that are done; a pass is a round, seconds are the trace's own."""
    for trace in runners().values():
        emitted = [len(r.emitted) for r in trace.rounds]
        for done in range(len(emitted) + 1):
            assert tokens_by(trace, done) == sum(emitted[:done])
        ends = finish_times(trace, "seconds")
        assert ends == sorted(ends) and [tokens_by(trace, end, "seconds") for end in ends] == [
            sum(emitted[:k + 1]) for k in range(len(ends))]


def test_the_race_starts_empty_shows_each_end_and_ends_complete():
    shown = race(runners(), decode, count=6)
    totals = {name: sum(len(r.emitted) for r in trace.rounds) for name, trace in runners().items()}
    assert shown[0].caption == "Tokens after 0 target passes: speculative 0, plain 0."
    assert shown[-1].caption.endswith(", ".join(f"{name} {total}" for name, total in totals.items()) + ".")
    for name, trace in runners().items():
        first = next(frame for frame in shown if f"{name} {totals[name]}" in frame.caption)
        assert first.title == f"after {len(trace.rounds)} target passes"
        assert f"{totals[name]} of {totals[name]} tokens, finished" in words(first.svg)


def test_the_race_draws_each_role_as_wide_as_its_tokens():
    trace = traces()["chain"]
    drawing = race({"speculative": trace}, decode)[-1].svg
    widths = re.findall(r'<rect x="\S+" y="30" width="(\S+)" height="36" fill="(\S+)"', drawing)[1:]    # after the track
    accepted = sum(role == "accepted" for r in trace.rounds for _, role in r.provenance())
    total = sum(len(r.emitted) for r in trace.rounds)
    drawn = sum(float(width) for width, fill in widths if fill == "#c8ebe0")
    assert drawn == pytest.approx(920 * accepted / total, abs=1)
    assert sum(float(width) for width, _ in widths) == pytest.approx(920, abs=1)


def test_the_race_has_two_clocks():
    with pytest.raises(ValueError, match="unknown clock 'hours'"):
        race(runners(), decode, "hours")


# --- passes -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("prompt, new", [(1, 4), (2, 3), (5, 3)])
def test_passes_of_plain_decoding_by_hand(prompt, new):
    trace = generate(tiny_gpt(), [0] * prompt, max_new_tokens=new).trace
    prefill = [(0, prompt - 1)] * (prompt > 1)
    assert passes_of(trace) == prefill + [(prompt - 1 + k, 1) for k in range(new)]
    assert without_cache(trace) == [(0, 0)] * (prompt > 1) + [(0, prompt + k) for k in range(new)]
    assert rows_computed(passes_of(trace)) == prompt - 1 + new


def test_passes_of_a_speculative_run_are_the_trace_s():
    trace = traces()["chain"]
    assert passes_of(trace)[1:] == [(r.context - 1, 1 + len(r.tokens)) for r in trace.rounds]
    assert without_cache(trace)[1:] == [(0, r.context + len(r.tokens)) for r in trace.rounds]


def test_the_grid_shows_each_position_as_computed_or_read():
    grid = [(0, 3), (3, 1), (4, 5), (6, 2)]
    marks = [re.fullmatch(r"pass (\d+), position (\d+): (\w+)", title).groups() for title in titles(
        passes_grid({"a run": grid}))]
    drawn = [[mark for row, _, mark in marks if int(row) == k + 1] for k in range(len(grid))]
    assert [(row.count("read"), row.count("computed")) for row in drawn] == grid
    assert "11 rows computed" in words(passes_grid({"a run": grid}))
    assert "4 rows computed" in words(passes_grid({"a run": grid}, shown=2))


# --- agreement --------------------------------------------------------------------------------------------------------

def test_rounding_leaves_no_trace_in_the_drawing():
    """Differences below the floor depend on the machine; the drawing must not."""
    assert agreement({"cached": [1e-16, 3e-15]}) == agreement({"cached": [0.0, FLOOR / 2]})
    assert agreement({"cached": [1e-16, 3e-15]}) != agreement({"cached": [0.0, 1e-9]})


def test_a_departure_is_told_in_words():
    assert verdict([0.0, 1e-11], 1e-10) == "agrees everywhere"
    assert verdict([0.0, 2.0, 0.5], 1e-10) == "departs first at 1, at most 2 apart"
    with pytest.raises(ValueError, match="not a finite number"):
        agreement({"broken": [float("nan")]})


# --- what checks draw -------------------------------------------------------------------------------------------------

def test_compare_marks_what_differs():
    drawing = compare(["a", "b", "c"], [1, 2, 0], [1, 3, 0], "Three numbers")
    assert "Wrong at: b." in drawing
    assert words(drawing).count("✗") == words(drawing).count("✓") == 2              # one each, and the legend's
    assert "-1 ✗" in words(compare(["a"], [1], [-1], "A value without a bar"))
    heights = {title: float(h) for h, title in re.findall(r'height="(\S+)" fill="\S+"[^>]*><title>(.*?)</title>', drawing)}
    assert heights["b: 2"] / heights["b: 3"] == pytest.approx(2 / 3, abs=0.01) and "c: 0" not in heights
    with pytest.raises(ValueError, match="2 labels, 1 right and 2 given"):
        compare(["a", "b"], [1], [1, 2], "Two")


def test_chip_rows_show_every_role_in_its_place():
    drawing = chip_rows({"right": [("t1", "accepted")], "yours": [("t1", "bonus"), ("t2", "guess")]}, "Roles")
    assert titles(drawing) == ["right: accepted", "yours: bonus", "yours: guess"] and "guess?" in words(drawing)


# --- shapes and the roofline ------------------------------------------------------------------------------------------

def test_the_shapes_drawn_are_those_of_a_real_pass():
    model = tiny_gpt(V=5)
    cache = model.new_cache()
    model(torch.tensor([[0, 1, 2]]), cache)
    tokens = torch.tensor([[3, 4]])
    x = model.embed(tokens, torch.arange(3, 5))
    y = model.run_layers(x, cache=cache)
    real = [tuple(t.shape) for t in (tokens, x, y, model.unembed(y))]
    assert [stage.shape for stage in stages(model.config, new=2)] == real
    cache.advance(2)
    assert cache_shape(model.config, 5) == tuple(cache.keys[0][:, :, :cache.length].shape)
    shown = words(pass_flow(model.config, cached=3, new=2))
    assert all(str(shape) in shown for shape in real) and "slots 0 to 2: computed in earlier passes" in shown


def test_dots_of_the_roofline_are_operations_over_seconds():
    assert attained({1: 0.05, 4: 0.1}, 1e9) == {1: 4e10, 4: 8e10}
    assert [with_unit(value) for value in (2.512e12, 4e10, 65, 1e6)] == ["2.5 T", "40 G", "65", "1 M"]
    shown = words(figures()["roofline"])
    assert "ridge: 20 tokens" in shown and "memory: 100 GB/s" in shown and "arithmetic: 1 TFLOP/s" in shown


def test_a_pass_at_the_roof_is_drawn_on_it():
    """A machine that reaches its own roofline: every dot lies on one of the two lines."""
    drawing = roofline_chart(MACHINE, {k: MACHINE.seconds(1e9, 4, k) for k in (1, 4, 32)}, 1e9, 4)
    lines = [[tuple(map(float, point.split())) for point in d.split("L")]
             for d, width in re.findall(r'<path d="M([\d. L]+)" fill="none" stroke="\S+" stroke-width="(\d)"', drawing)
             if width == "4"][:2]                                                  # memory, arithmetic; then the key
    circles = [tuple(map(float, c)) for c in re.findall(r'<circle cx="(\S+)" cy="(\S+)"', drawing)][:3]
    assert len(lines) == 2 and len(circles) == 3
    for x, y in circles:
        on = [a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]) for a, b in lines if a[0] - 1 <= x <= b[0] + 1]
        assert min(abs(y - height) for height in on) < 0.5
