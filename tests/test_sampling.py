"""Logits to probabilities: temperature, top-k, top-p, in this order; by hand, and against a plain construction."""

import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minispec import Sampling

INF, NAN = float("inf"), float("nan")


def logits_of(probs: list[float]) -> torch.Tensor:
    return torch.tensor(probs, dtype=torch.float64).log()


def probs(given: list[float], *settings) -> list[float]:
    return Sampling(*settings).probs(logits_of(given)).tolist()


def by_hand(logits: list[float], temperature: float, top_k: int | None, top_p: float) -> list[float]:
    """The same on plain lists: sort once, then keep a prefix."""
    best = max(logits)
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if temperature == 0:
        return [float(token == order[0]) for token in range(len(logits))]
    weights = {token: math.exp((logits[token] - best) / temperature) for token in order[:top_k]}
    total, before, kept = sum(weights.values()), 0.0, {}
    for token in weights:
        if before / total < top_p:
            kept[token] = weights[token]
        before += weights[token]
    return [kept.get(token, 0.0) / sum(kept.values()) for token in range(len(logits))]


# --- each step by hand ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("given, settings, expected", [
    ([0.5, 0.3, 0.2], (), [0.5, 0.3, 0.2]),
    ([0.5, 0.3, 0.2], (0.5,), [25 / 38, 9 / 38, 4 / 38]),                               # squares
    ([0.64, 0.36], (2.0,), [0.8 / 1.4, 0.6 / 1.4]),                                     # square roots
    ([0.5, 0.3, 0.2], (1.0, 2), [0.625, 0.375, 0.0]),
    ([0.2, 0.3, 0.5], (1.0, 1), [0.0, 0.0, 1.0]),
    ([0.5, 0.3, 0.2], (1.0, 7), [0.5, 0.3, 0.2]),                                       # more than there are
    ([0.5, 0.3, 0.2], (1.0, None, 0.6), [0.625, 0.375, 0.0]),                           # whoever crosses 0.6 stays
    ([0.5, 0.3, 0.2], (1.0, None, 0.4), [1.0, 0.0, 0.0]),
    ([0.5, 0.3, 0.2], (1.0, None, 1e-12), [1.0, 0.0, 0.0]),                             # never empty
    ([0.3, 0.3, 0.3, 0.1], (1.0, 2), [0.5, 0.5, 0.0, 0.0]),                             # ties: the lower ids
    ([0.25, 0.25, 0.25, 0.25], (1.0, None, 0.5), [0.5, 0.5, 0.0, 0.0]),
])
def test_each_step_gives_the_numbers_worked_out_by_hand(given, settings, expected):
    assert probs(given, *settings) == pytest.approx(expected, abs=1e-14)


def test_temperature_comes_before_top_p():
    """At temperature 2 the law (.64, .36) flattens to (.571, .429): the nucleus of .6 needs both."""
    assert probs([0.64, 0.36], 2.0, None, 0.6) == pytest.approx([0.8 / 1.4, 0.6 / 1.4], abs=1e-14)


def test_top_k_comes_before_top_p():
    """Two of (.4, .3, .2, .1) are (.571, .429): the first alone fills a nucleus of .55. The other order keeps both."""
    assert probs([0.4, 0.3, 0.2, 0.1], 1.0, 2, 0.55) == [1.0, 0.0, 0.0, 0.0]


@given(st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=8), st.sampled_from([0, 0.3, 1, 2.5]),
       st.none() | st.integers(1, 9), st.just(1.0) | st.floats(0.05, 1))
def test_any_setting_equals_the_plain_construction(logits, temperature, top_k, top_p):
    expected = by_hand(logits, temperature, top_k, top_p)
    got = Sampling(temperature, top_k, top_p).probs(torch.tensor(logits, dtype=torch.float64)).tolist()
    edges = [abs(sum(sorted(by_hand(logits, temperature, top_k, 1.0), reverse=True)[:k]) - top_p) for k in range(9)]
    if top_p == 1 or min(edges) > 1e-9:                        # else rounding may decide who is in the nucleus
        assert got == pytest.approx(expected, abs=1e-9)
    assert sum(got) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("settings", itertools.product([0.0, 0.7, 1.0], [None, 1, 3], [0.5, 1.0]), ids=str)
def test_every_combination_works_row_by_row_for_any_number_of_dimensions(shape, settings):        # A24
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = logits.clone()
    together = Sampling(*settings).probs(logits)
    alone = torch.stack([Sampling(*settings).probs(row) for row in logits.view(-1, 5)]).view(shape)
    assert torch.equal(together, alone)
    assert torch.equal(logits, before)                         # the caller's tensor is left alone


# --- towards temperature zero -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-8, 1e-5])
def test_a_temperature_near_zero_gives_the_likeliest_token_and_no_warning(temperature):           # B2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for logits in ([0.1, 3.0, 2.9], [-1e4, 1e4, 0.0], [-INF, 0.0, -1.0]):
            assert Sampling(temperature).probs(torch.tensor(logits)).tolist() == [0.0, 1.0, 0.0]


def test_greedy_takes_the_lowest_of_tied_ids():                                                    # H3
    assert Sampling(0).probs(torch.tensor([1.0, 3.0, 3.0, 3.0])).tolist() == [0.0, 1.0, 0.0, 0.0]
    rows = torch.zeros(3, 2000)
    assert Sampling(0).probs(rows)[:, 0].tolist() == [1.0, 1.0, 1.0]


def test_a_high_temperature_flattens():                                                            # A19
    flat, plain = (torch.tensor(probs([0.6, 0.4], temperature)) for temperature in (2.0, 1.0))
    assert 0.5 < flat[0] < plain[0] and 0.5 > flat[1] > plain[1]


def test_bfloat16_logits_give_float64_probabilities():                                             # A6
    """One conversion, then the rule and the dice see the same numbers."""
    logits = torch.tensor([0.1, 0.2, 0.3]).bfloat16()
    assert Sampling().probs(logits).dtype == torch.float64
    assert torch.equal(Sampling().probs(logits), Sampling().probs(logits.double()))


# --- what has no distribution -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("row", [[NAN, 0.0, 1.0], [0.0, 1.0, NAN], [NAN] * 3, [-INF] * 3, [0.0, INF, 1.0],
                                 [NAN, INF, 0.0]], ids=str)
def test_a_row_without_a_distribution_is_refused_wherever_it_stands(row, temperature):             # B3 B4
    with pytest.raises(ValueError, match=r"logits hold NaN, \+inf, or a row of only -inf"):
        Sampling(temperature).probs(torch.tensor([[0.0, 1.0, 2.0], row]))


@pytest.mark.parametrize("settings", itertools.product([0.0, 0.7], [None, 2], [0.5, 1.0]), ids=str)
def test_one_allowed_token_among_banned_ones_gets_everything(settings):                            # B10
    assert Sampling(*settings).probs(torch.tensor([-INF, -INF, -5.0, -INF])).tolist() == [0.0, 0.0, 1.0, 0.0]


def test_banned_tokens_stay_at_zero_even_where_top_k_has_room_for_them():
    assert Sampling(1.0, 3).probs(torch.tensor([0.0, -INF, -INF, 0.0])).tolist() == [0.5, 0.0, 0.0, 0.5]


@pytest.mark.parametrize("fields, message", [
    (dict(temperature=-0.1), "temperature must be a finite number >= 0, got -0.1"),
    (dict(temperature=NAN), "temperature must be a finite number >= 0, got nan"),
    (dict(temperature=INF), "temperature must be a finite number >= 0, got inf"),
    (dict(top_k=0), "top_k must be a whole number >= 1, or None, got 0"),
    (dict(top_k=1.5), "top_k must be a whole number >= 1, or None, got 1.5"),
    (dict(top_k=True), "top_k must be a whole number >= 1, or None, got True"),
    (dict(top_p=0.0), r"top_p must be in \(0, 1\], got 0.0"),
    (dict(top_p=1.5), r"top_p must be in \(0, 1\], got 1.5"),
    (dict(top_p=NAN), r"top_p must be in \(0, 1\], got nan"),
], ids=str)
def test_settings_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**fields)
