"""Counts and rates against small cases by hand, the identities between them, and theory against enumeration."""

import pytest
import torch
from models import FixedTree, ScriptedLM, TableLM, random_table, tiny_gpt

from minispec import SeededDice, generate, speculate
from minispec.analysis import (best_draft_length, expected_tokens, interpolate, loop_overhead, metrics, speedup)
from minispec.decoding import EnumeratingDice, Speculation, rules
from minispec.drafters import LMDrafter, NgramDrafter, TableDrafter

TEXT = list(range(1, 61))


def recite(wrong=(), length=4, **options):
    draft = ScriptedLM([0 if place in wrong else token for place, token in enumerate(TEXT)])
    return speculate(ScriptedLM(TEXT), LMDrafter(draft, length), TEXT[:3], **options)


# --- by hand ----------------------------------------------------------------------------------------------------------

def test_four_proposed_three_kept_is_an_acceptance_of_three_quarters():                # K7
    """One round and its correction: 4 5 6 kept, the fourth proposal wrong, 7 emitted instead."""
    summary = metrics(recite(wrong=(6,), stop_tokens=[7]).trace)
    assert (summary.proposed, summary.accepted, summary.acceptance_rate) == (4, 3, 0.75)
    assert summary.acceptance_by_position == [1.0, 1.0, 1.0, 0.0]
    assert (summary.tokens, summary.rounds, summary.tokens_per_pass) == (4, 1, 4.0)    # the correction is counted here


def test_rates_by_position_are_conditional_on_being_reached():                         # K7
    """Errors at places 3 and 9. Rounds: 0 of 4, then 4 of 4, then 0 of 4, then 4 of 4."""
    generation = recite(wrong=(3, 9), max_new_tokens=12)
    rounds = generation.trace.rounds
    assert [(len(r.path), len(r.emitted)) for r in rounds] == [(0, 1), (4, 5), (0, 1), (4, 5)]
    summary = metrics(generation.trace)
    assert summary.reached_by_position == [4, 2, 2, 2]
    assert summary.acceptance_by_position == [0.5, 1.0, 1.0, 1.0]
    assert summary.acceptance_rate == 8 / 16


def test_several_generations_add_up_before_they_are_divided():                         # K3
    """Rates .75 over 4 proposals and 1 over 16: together 19 of 20, not the mean of the two rates."""
    one, many = recite(wrong=(6,), stop_tokens=[7]), recite(max_new_tokens=20)
    summary = metrics(one.trace, many.trace)
    assert summary.acceptance_rate == 19 / 20
    assert summary.tokens_per_pass == 24 / 5
    seconds = [g.trace.total_seconds - g.trace.prefill_seconds for g in (one, many)]
    assert summary.tokens_per_second == pytest.approx(24 / sum(seconds))


def test_without_proposals_there_is_no_rate():                                         # C6
    summary = metrics(generate(ScriptedLM(TEXT), TEXT[:3], max_new_tokens=5).trace)
    assert (summary.acceptance_rate, summary.acceptance_by_position, summary.tokens_per_pass) == (None, [], 1.0)


def test_tokens_past_a_stop_are_in_no_count():                                         # K11 C16
    summary = metrics(recite(stop_tokens=[5]).trace)
    assert (summary.tokens, summary.proposed, summary.accepted) == (2, 2, 2)
    assert summary.reached_by_position == [1, 1]


def test_overhead_is_what_is_neither_draft_nor_verify():
    trace = recite(max_new_tokens=5).trace
    trace.prefill_seconds, trace.total_seconds = 1.0, 3.0
    trace.rounds[0].seconds.update(draft=0.5, verify=1.0, accept=0.2)
    assert loop_overhead(trace) == pytest.approx(0.25)


# --- identities -------------------------------------------------------------------------------------------------------

def many_runs():
    target, draft = tiny_gpt(4, 0, context=48), tiny_gpt(4, 1, context=48)
    tree = FixedTree((-1, -1, 0, 1, 1), lambda ids, node: (node + ids[-1]) % 4)
    setups = [(LMDrafter(draft, 3), rules.Token()), (LMDrafter(target, 4), rules.Token()),
              (LMDrafter(draft, 2), rules.Match()), (NgramDrafter(3), rules.Match()), (tree, rules.Match())]
    for seed in range(6):
        for drafter, rule in setups:
            yield speculate(target, drafter, [0, 1, 0], max_new_tokens=25, rule=rule, dice=SeededDice(seed),
                            stop_tokens=[] if seed % 2 else [3])


def test_the_counts_of_every_run_fit_together():                                       # K1 K4 K5
    """Stops, budgets, chains and trees. A round without the target's own token is one that was cut inside its path."""
    cut_rounds = 0
    for generation in many_runs():
        summary, rounds = metrics(generation.trace), generation.trace.rounds
        cut_inside = sum(r.cut > 0 for r in rounds)
        assert summary.tokens == len(generation.tokens) == sum(len(r.emitted) for r in rounds)
        assert summary.tokens == summary.accepted + summary.rounds - cut_inside
        assert summary.rounds == len(rounds)
        assert summary.tokens_per_pass == summary.tokens / summary.rounds
        assert summary.accepted <= summary.proposed <= sum(len(r.tokens) for r in rounds)
        kept = [rate * reached for rate, reached in zip(summary.acceptance_by_position, summary.reached_by_position)]
        assert sum(kept) == pytest.approx(summary.accepted)
        assert all(after <= before + 1e-9 for before, after in zip(kept, summary.reached_by_position[1:]))
        cut_rounds += cut_inside
    assert cut_rounds > 0


def test_counts_of_a_chain_follow_from_its_path():                                     # K4
    for r in recite(wrong=(5, 9, 16), max_new_tokens=25).trace.rounds:
        assert (r.proposed, r.accepted) == (len(r.tokens), len(r.path))


# --- theory against enumeration ---------------------------------------------------------------------------------------

def law_of_a_round(P, Q, length):
    """[(probability, accepted tokens)] of the first round of the real loop, with room for all."""
    def run(dice):
        state = Speculation(TableLM(P), TableDrafter(Q, length), [0], max_new_tokens=length + 1)
        return len(state.round(dice).path)

    return list(EnumeratingDice().branches(run))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_expected_tokens_is_what_the_loop_emits_on_average(length):                    # K6
    """Rows all alike make every position accept with alpha = sum min(p, q), whatever came before."""
    p, q = random_table(3, 1)[0], random_table(3, 2)[0]
    alpha = float(torch.minimum(p, q).sum())
    mean = sum(chance * (kept + 1) for chance, kept in law_of_a_round(p.expand(3, 3), q.expand(3, 3), length))
    assert mean == pytest.approx(expected_tokens(alpha, length), abs=1e-12)
    assert mean == pytest.approx((1 - alpha ** (length + 1)) / (1 - alpha), abs=1e-12)


def test_expected_tokens_from_the_rates_by_position():
    """Rows that differ make the positions differ: conditional rates, taken from the enumerated round itself."""
    branches = law_of_a_round(random_table(3, 3), random_table(3, 4), 3)
    survival = [sum(chance for chance, kept in branches if kept >= k) for k in range(4)]
    by_position = [survival[k + 1] / survival[k] for k in range(3)]
    assert by_position[0] == pytest.approx(float(torch.minimum(random_table(3, 3)[0], random_table(3, 4)[0]).sum()))
    mean = sum(chance * (kept + 1) for chance, kept in branches)
    assert mean == pytest.approx(expected_tokens(by_position, 3), abs=1e-12)


def test_expected_tokens_at_its_ends():
    assert expected_tokens(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert [expected_tokens(alpha, 4) for alpha in (0.0, 1.0)] == [1.0, 5.0]
    assert expected_tokens(0.7, 0) == 1.0
    assert expected_tokens([0.5, 0.9], 4) == pytest.approx(1 + 0.5 * (1 + 0.9 + 0.9**2 + 0.9**3))    # the last goes on


# Draft length with the highest speedup, and that speedup, for acceptance (row) and draft cost c (column).
BEST = {0.5: [(5, 1.88), (3, 1.63), (2, 1.46), (1, 1.25), (1, 1.07)],          # c = .2: 1 and 2 tie
        0.6: [(7, 2.30), (4, 1.92), (3, 1.67), (2, 1.40), (1, 1.14)],
        0.7: [(9, 2.97), (6, 2.35), (4, 1.98), (3, 1.58), (2, 1.22)],
        0.8: [(14, 4.23), (8, 3.09), (6, 2.47), (4, 1.87), (2, 1.36)],
        0.9: [(24, 7.49), (13, 4.67), (10, 3.43), (7, 2.37), (4, 1.58)],
        0.95: [(40, 12.5), (21, 6.60), (15, 4.48), (10, 2.88), (6, 1.77)]}


@pytest.mark.parametrize("alpha", BEST)
def test_speedup_and_best_length_reproduce_the_table(alpha):
    for cost, (length, gain) in zip([0.01, 0.05, 0.1, 0.2, 0.4], BEST[alpha]):
        assert best_draft_length(alpha, cost) == length
        assert speedup(alpha, length, cost) == pytest.approx(gain, abs=0.006 if gain < 10 else 0.06)


def test_speculation_does_not_pay_where_the_draft_costs_more_than_it_is_accepted():
    assert best_draft_length(0.3, 0.4) == 0 and speedup(0.3, 0, 0.4) == 1.0
    assert best_draft_length(0.41, 0.4) == 1                        # it pays exactly if alpha > c


def test_a_costly_verification_shortens_the_best_draft():                              # L2
    linear = interpolate({1: 1.0, 9: 2.6})                          # one more token costs a fifth of a pass
    assert speedup(0.8, 4, 0.1, linear) == pytest.approx(expected_tokens(0.8, 4) / (0.4 + 1.8))
    assert best_draft_length(0.8, 0.1, linear) < best_draft_length(0.8, 0.1)


def test_a_measured_curve_is_linear_between_its_points_and_beyond_the_last_two():
    curve = interpolate({8: 2.0, 1: 1.0, 4: 1.3})
    assert [curve(k) for k in (1, 2, 4, 6, 8, 12)] == pytest.approx([1.0, 1.1, 1.3, 1.65, 2.0, 2.7])
    assert interpolate({1: 1.0})(9) == 1.0


@pytest.mark.parametrize("acceptance", [-0.1, 1.1, [0.5, 2.0], []], ids=str)
def test_an_acceptance_outside_zero_and_one_is_refused(acceptance):
    with pytest.raises(ValueError, match=r"acceptance must be one or several numbers in \[0, 1\]"):
        expected_tokens(acceptance, 3)
