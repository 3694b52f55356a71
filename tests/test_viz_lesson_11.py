"""The figures of lesson 11: their data, and what can be said of their looks without eyes."""

from functools import lru_cache

import pytest
import torch
from looks import looks_wrong
from models import tiny_gpt
from test_viz import titles, words

from minispec import GPT, GPTConfig, speculate
from minispec.analysis.theory import speedup
from minispec.decoding.trace import Round
from minispec.drafters import EarlyExitDrafter, LMDrafter
from minispec.drafters.feature import FeatureConfig, FeatureDraft, FeatureDrafter
from minispec.model.listening import Listening
from minispec.model.shared_backbone import SharedBackbone
from minispec.viz.exit_cost import break_even, exit_cost, round_cost
from minispec.viz.feature_rows import feature_caption, feature_rows, feature_states, feature_steps
from minispec.viz.layer_grid import bill, computed, layer_bill, layer_caption, layer_grid, layer_steps
from minispec.viz.target_views import View, target_views

LONG = lambda tokens: f"a long token {tokens[0]}"


@lru_cache(maxsize=1)
def exit_round() -> Round:
    """Some guesses stay, not all: three layers, exit after one, three guesses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = GPT(GPTConfig(vocab_size=3, context=64, n_layer=3, n_head=2, n_embd=8)).eval().requires_grad_(False)
        for weight in model.parameters():
            weight += torch.randn_like(weight)                                         # lively laws
    target = SharedBackbone(model, 1)
    trace = speculate(target, EarlyExitDrafter(target, 3), [1, 2], max_new_tokens=60).trace
    return next(r for r in trace.rounds if len(r.tokens) == 3 and 0 < r.accepted < 3)


@lru_cache(maxsize=1)
def feature_rounds() -> list[Round]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        draft = FeatureDraft(FeatureConfig(2, 8)).double().eval().requires_grad_(False)
    target = Listening(tiny_gpt(3, context=64).requires_grad_(False))
    return speculate(target, FeatureDrafter(target, draft, 3), [1, 2, 0, 1], max_new_tokens=40).trace.rounds


def feature_round(kept: int) -> Round:
    return next(r for r in feature_rounds()[1:] if len(r.tokens) == 3 and len(r.path) == kept)


VIEWS = [View("prompt, position 2", 2, 5, 2), View("last token", 5, 5, 5),
         View("guess 3, with a long name that is cut", 8, 5, 5)]


@lru_cache(maxsize=1)
def figures() -> dict[str, str]:
    drawn = {f"grid {step}": layer_grid(exit_round(), 1, LONG, step) for step in range(layer_steps(exit_round()))}
    for kept in (0, 3):
        r = feature_round(kept)
        drawn |= {f"rows {kept} {step}": feature_rows(r, LONG, step) for step in range(feature_steps(r))}
    drawn |= {f"cost {exit} {length} {alpha}": exit_cost(8, exit, length, alpha)
              for exit, length, alpha in ((2, 4, 0.7), (1, 1, 0.0), (7, 8, 1.0), (1, 8, 0.3))}
    return drawn | {"first rows": feature_rows(feature_rounds()[0], LONG, 0), "bill": layer_bill(8, 2, 4, 2),
                    "bill, small": layer_bill(3, 1, 1, 1), "views": target_views(VIEWS),
                    "views, wrong": target_views(VIEWS, [3, 5, 8])}


def test_texts_are_large_apart_on_the_paper_and_legible():
    assert {name: faults for name, drawing in figures().items() if (faults := list(looks_wrong(drawing)))} == {}


def test_equal_input_gives_equal_bytes():
    once = dict(figures())
    for cached in (figures, exit_round, feature_rounds):
        cached.cache_clear()
    assert figures() == once


# --- who computes which layer -----------------------------------------------------------------------------------------

def test_every_cell_is_computed_once_and_the_sums_are_the_trace_s():
    r, when = exit_round(), computed(3, 1, 3)
    assert [sum(layer == row for row, _ in when) for layer in range(3)] == r.layer_tokens
    assert [when[0, column] for column in range(4)] == [0, 1, 2, 3]                # drafting, then the last guess
    assert {when[layer, column] for layer in (1, 2) for column in range(4)} == {4}
    assert set(computed(8, 2, 4).values()) == set(range(6))


def test_the_grid_fills_step_by_step():
    grids = [titles(figures()[f"grid {step}"]) for step in range(6)]
    assert all(f"layer 2, column {column}, step 4" in grids[0] for column in range(4))
    drafted = [words(figures()[f"grid {step}"]).count("q") for step in range(6)]       # one is the key's
    verified = [words(figures()[f"grid {step}"]).count("p") for step in range(6)]
    assert drafted == [2, 3, 4, 4, 4, 4] and verified[:5] == [1, 1, 1, 2, 10]
    assert "for a guess that did not stay" in words(figures()["grid 5"])


def test_the_captions_say_who_reads_what():
    r = exit_round()
    assert layer_caption(r, 1, 0).startswith("Draft pass 1: layers 0 to 0 read the last committed token")
    assert "guess 3 was drawn but never fed" in layer_caption(r, 1, 3)
    assert f"{r.accepted} of 3 guesses stay" in layer_caption(r, 1, 5) and "12 in all" in layer_caption(r, 1, 5)


def test_a_round_that_did_not_go_on_from_its_draft_is_refused():
    model = tiny_gpt(3, context=32)
    ordinary = speculate(model, LMDrafter(tiny_gpt(3, 1, context=32), 2), [1, 2], max_new_tokens=8).trace.rounds[0]
    with pytest.raises(ValueError, match="layer_tokens = None"):
        layer_grid(ordinary, 1, LONG)


def test_the_bill_is_what_the_backbone_counts():
    r = exit_round()
    assert sum(bill(3, 1, 3)[:2]) == sum(r.layer_tokens)
    assert bill(8, 2, 4) == (8, 32, 0) and bill(8, 2, 4, shared=False) == (8, 40, 8)
    assert bill(8, 2, 4, own_layers=3) == (12, 40, 0)
    assert words(figures()["bill"]).count("2×") == 8 + 1                               # and the key


# --- what a round costs -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("exit, length", [(1, 1), (2, 4), (7, 8)])
def test_the_costs_are_those_of_the_two_regimes(exit, length):
    c = exit / 8
    for shared in (True, False):
        assert round_cost(8, exit, length, 0, shared).total == pytest.approx(length * c + 1)
    assert round_cost(8, exit, length, 1).total == pytest.approx(length + 1)
    assert round_cost(8, exit, length, 1, shared=False).total == pytest.approx(length * c + length + 1)
    saved = round_cost(8, exit, length, 0.25, False).total - round_cost(8, exit, length, 0.25).total
    assert saved == pytest.approx(c * 0.25 * length)                                   # c (v(length + 1) - 1)


def test_at_the_break_even_the_speedup_is_one():
    cost = round_cost(8, 2, 4, 0).total
    assert speedup(break_even(4, cost), 4, 0.25) == pytest.approx(1)
    assert break_even(4, 5.0) is None and break_even(4, 6.0) is None
    assert break_even(4, 4.999) < 1
    with pytest.raises(ValueError, match="after 1 to 7 of 8 layers, got 8"):
        round_cost(8, 8, 4, 0)


def test_the_picture_shows_the_numbers():
    shown = words(figures()["cost 2 4 0.7"])
    assert shown.count("2.00") == 2 and "2.75" in shown and "3.00" in shown and shown.count("never") == 2
    assert "2.77 tokens a round at α = 0.7" in shown


# --- rows of a feature draft ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_the_states_are_those_of_the_trace_s_caches(kept):
    rounds = feature_rounds()
    index = next((k for k, r in enumerate(rounds[:-1]) if k and len(r.tokens) == 3 and len(r.path) == kept), None)
    if index is None:
        pytest.skip("no such round in this run")
    r, n = rounds[index], rounds[index].context
    before, top, after = r.draft_cache
    in_cache = lambda step: [t for t, row in feature_states(r, step).items() if row.state in ("kept", "new")]
    assert len(in_cache(2)) + before == top                                            # three passes, the last draft's
    assert len(in_cache(4)) + before == after == n - 1
    dropped = [t for t, row in feature_states(r, 4).items() if row.state == "dropped"]
    assert dropped == list(range(after, top))
    anew = [t for t, row in feature_states(r, 5).items() if row.state == "new"]
    assert len(anew) == kept + 1 and anew[0] == after == rounds[index + 1].draft_cache[0]
    assert all(row.feature == "true" for t, row in feature_states(r, 5).items() if t <= anew[-1])


def test_tokens_and_features_appear_when_they_are_known():
    r = feature_round(3)
    guesses = lambda step: [row for t, row in feature_states(r, step).items() if t >= r.context - 1]
    assert [row.token for row in guesses(0)][:3] == [None] * 3
    assert [row.token for row in guesses(2)][:3] == [*r.tokens[:2], None]
    assert [row.feature for row in guesses(2)][:3] == ["guess", "guess", ""]
    assert [row.feature for row in guesses(3)][:4] == ["true"] * 4                    # the target has read all of them
    assert [row.token for row in guesses(5)] == r.emitted
    assert "3 of 3 guesses stay" in feature_caption(r, 4) and "reads 4 rows" in feature_caption(r, 5)
    assert "reads 1 row with" in feature_caption(feature_round(0), 5)


# --- what a row reads of the target -----------------------------------------------------------------------------------

def test_cells_are_read_there_or_not_there():
    shown = titles(figures()["views"])
    state = lambda name, column: next(t for t in shown if t.startswith(f"{name}, target position {column}:"))
    assert state("prompt, position 2", 1).endswith("position 1: read")
    assert state("prompt, position 2", 2).endswith("there, not read")
    assert state("last token", 4).endswith("4: read") and state("last token", 5).endswith("not there")


def test_wrong_answers_are_marked_cell_by_cell():
    wrong = [title for title in titles(figures()["views, wrong"]) if title.endswith("wrong")]
    assert [title.partition(",")[0] for title in wrong] == ["prompt"] + ["guess 3"] * 3
    assert "wrong" not in words(figures()["views"]) and "wrong" in words(figures()["views, wrong"])
    too_few = titles(target_views(VIEWS, [1, 5, 3]))
    assert [title for title in too_few if title.endswith("wrong")] == [
        "prompt, position 2, target position 1: wrong",
        *(f"{VIEWS[2].name}, target position {column}: wrong" for column in (3, 4))]
