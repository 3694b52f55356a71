"""The dice: edge cases with uniforms given by hand, the law under a seed, and every branch under enumeration."""

import math

import pytest
import torch
from chance import chance_of

from minispec.decoding import EnumeratingDice, Outcome, SeededDice, rules
from minispec.decoding.tree import TokenTree

JUST_BELOW_ONE = 1 - 2**-53                            # the largest uniform there is


class Loaded(SeededDice):
    """Dice whose uniforms are given."""

    def __init__(self, *uniforms: float):
        super().__init__()
        self.given = list(uniforms)

    def uniform(self) -> float:
        return self.given.pop(0)


# --- one throw --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("probs, u, token", [
    ([0.5, 0.25, 0.25], 0.0, 0),
    ([0.5, 0.25, 0.25], 0.4999, 0),
    ([0.5, 0.25, 0.25], 0.5, 1),                       # token 0 owns [0, 0.5), token 1 [0.5, 0.75)
    ([0.5, 0.25, 0.25], 0.75, 2),
    ([0.5, 0.25, 0.25], JUST_BELOW_ONE, 2),
    ([0.0, 1.0, 0.0], 0.0, 1),                         # probability 0 before, behind and between
    ([0.0, 1.0, 0.0], JUST_BELOW_ONE, 1),
    ([0.5, 0.0, 0.5], 0.5, 2),
    ([0.5, 0.0, 0.5, 0.0, 0.0], JUST_BELOW_ONE, 2),
    ([0.1] * 10 + [0.0], JUST_BELOW_ONE, 9),           # ten tenths add up to a little less than one
    ([1e-300, 0.0], JUST_BELOW_ONE, 0),
    ([2.0, 6.0], 0.2499, 0),                           # weights need no normalising
    ([2.0, 6.0], 0.25, 1),
])
def test_a_draw_takes_the_first_token_whose_cumulated_probability_exceeds_u(probs, u, token):
    assert Loaded(u).draw(torch.tensor(probs, dtype=torch.float64)) == token


@pytest.mark.parametrize("seed", range(20))
def test_a_token_of_probability_zero_is_never_drawn(seed):
    """Random laws with zeros, at every edge of the cumulated sum and one step of rounding to either side."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.rand(12, generator=generator, dtype=torch.float64) * (torch.rand(12, generator=generator) < 0.4)
    probs[seed % 12] += 0.1
    edges = (probs.cumsum(0) / probs.sum()).tolist()
    near = {u for edge in edges for u in (math.nextafter(edge, 0), edge, math.nextafter(edge, 1)) if u < 1}
    for u in near | {0.0, JUST_BELOW_ONE}:
        assert probs[Loaded(u).draw(probs)] > 0


@pytest.mark.parametrize("prob, u, accepted", [(0.0, 0.0, False), (1.0, JUST_BELOW_ONE, True), (0.5, 0.5, False),
                                               (0.5, 0.4999, True), (5e-324, 0.0, True)])
def test_a_coin_of_probability_one_never_fails_and_of_zero_never_passes(prob, u, accepted):
    assert Loaded(u).accept(prob) is accepted


@pytest.mark.parametrize("dice", [SeededDice(0), EnumeratingDice()], ids=["seeded", "enumerating"])
def test_a_coin_of_no_probability_is_refused(dice):                                    # B3: 0 / 0 in a rule
    with pytest.raises(ValueError, match="the chance of a coin is nan"):
        dice.accept(float("nan"))


@pytest.mark.parametrize("dice", [SeededDice(0), EnumeratingDice()], ids=["seeded", "enumerating"])
@pytest.mark.parametrize("probs", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]], ids=str)
def test_a_draw_from_nothing_is_refused(dice, probs):                                  # B1 B8
    with pytest.raises(ValueError, match="cannot draw from probabilities that sum to"):
        dice.draw(torch.tensor(probs))


def test_each_throw_is_recorded_once_and_taken_once():
    dice = Loaded(0.25, 0.9)
    dice.accept(0.5)
    dice.draw(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    coin, draw = dice.take_outcomes()
    assert coin == Outcome("accept", 0.5, 1, 0.25)
    assert (draw.kind, draw.result, draw.u) == ("draw", 2, 0.9) and draw.chance == pytest.approx(0.2, abs=1e-15)
    assert dice.take_outcomes() == []


# --- seeds ------------------------------------------------------------------------------------------------------------

def throws(seed: int) -> list[float]:
    dice = SeededDice(seed)
    return [dice.uniform() for _ in range(8)]


def test_the_seed_decides_every_throw():                                               # J1 J2
    assert throws(3) == throws(3)
    assert len({tuple(throws(seed)) for seed in range(50)}) == 50


def test_no_global_generator_is_read_or_written():                                     # J5
    before, first = torch.get_rng_state(), throws(0)
    torch.rand(7)
    assert throws(0) == first
    torch.set_rng_state(before)
    throws(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_follow_the_law():
    """10,000 draws; false alarm 1e-6 for a fresh seed, and this one is fixed."""
    law = {0: 0.5, 1: 0.2, 2: 0.15, 3: 0.1, 4: 0.05}
    dice, probs = SeededDice(0), torch.tensor(list(law.values()), dtype=torch.float64)
    assert chance_of((dice.draw(probs) for _ in range(10_000)), law) > 1e-6


def test_throws_in_a_row_are_independent():
    """Pairs of draws, 9 outcomes; false alarm 1e-6."""
    dice, probs = SeededDice(1), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    law = {(a, b): float(probs[a] * probs[b]) for a in range(3) for b in range(3)}
    assert chance_of(((dice.draw(probs), dice.draw(probs)) for _ in range(10_000)), law) > 1e-6


def test_draft_and_acceptance_together_have_the_targets_law():                         # A10 J4
    """One round of rejection sampling, 5,000 times; false alarm 1e-6. Coins and draws must not share a uniform: the
    residual (0, .5, .5) would follow the coin that rejected."""
    p, q = (torch.tensor(probs, dtype=torch.float64) for probs in ([0.2, 0.4, 0.4], [0.6, 0.2, 0.2]))
    dice, rule, target_probs = SeededDice(2), rules.Token(), torch.stack([p, p])

    def first_token() -> int:
        tree = TokenTree.chain([dice.draw(q)], [q])
        verdict = rule(tree, target_probs, dice)
        return tree.tokens[0] if verdict.path else verdict.token

    assert chance_of((first_token() for _ in range(5_000)), dict(enumerate(p.tolist()))) > 1e-6


def test_the_statistical_check_sees_a_small_bias():
    """Its power: a coin that is off by three hundredths does not pass."""
    dice, probs = SeededDice(3), torch.tensor([0.53, 0.27, 0.2], dtype=torch.float64)
    assert chance_of((dice.draw(probs) for _ in range(10_000)), {0: 0.5, 1: 0.3, 2: 0.2}) < 1e-6


def test_the_statistical_check_agrees_with_a_table_of_chi_square():
    """Two degrees of freedom, x = 5.991: 5 %. Four, x = 9.488: 5 %. (Counts chosen to give these x.)"""
    third, fifth = dict.fromkeys(range(3), 1 / 3), dict.fromkeys(range(5), 1 / 5)
    assert chance_of([0] * 100 + [1] * 100 + [2] * 100, third) == 1.0
    counts = [100 + 10, 100, 100 - 10]                                                  # x = 2, tail exp(-1)
    assert chance_of([k for k, n in enumerate(counts) for _ in range(n)], third) == pytest.approx(0.36788, abs=1e-5)
    counts = [100 + 20, 100, 100, 100, 100 - 20]                                        # x = 8, tail 5 exp(-4)
    assert chance_of([k for k, n in enumerate(counts) for _ in range(n)], fifth) == pytest.approx(0.09158, abs=1e-5)


# --- every branch -----------------------------------------------------------------------------------------------------

def test_a_coin_has_two_branches():
    assert list(EnumeratingDice().branches(lambda dice: dice.accept(0.25))) == [(0.25, True), (0.75, False)]


def test_branches_may_ask_different_things_and_their_probabilities_multiply():
    def run(dice):
        return dice.draw(torch.tensor([1.0, 0.0, 4.0])) if dice.accept(0.25) else None

    branches = list(EnumeratingDice().branches(run))
    assert [result for _, result in branches] == [0, 2, None]
    assert [probability for probability, _ in branches] == pytest.approx([0.05, 0.2, 0.75], abs=1e-15)


def test_what_cannot_happen_has_no_branch():
    for prob, only in ((1.0, True), (0.0, False), (1.5, True), (-0.5, False)):
        assert list(EnumeratingDice().branches(lambda dice: dice.accept(prob))) == [(1.0, only)]


def test_a_run_without_throws_has_one_branch():
    assert list(EnumeratingDice().branches(lambda dice: "same")) == [(1.0, "same")]


def test_dice_can_be_enumerated_twice():
    dice = EnumeratingDice()
    assert list(dice.branches(lambda d: d.accept(0.5))) == list(dice.branches(lambda d: d.accept(0.5)))


def test_a_run_that_depends_on_more_than_the_dice_is_caught():
    calls = []

    def forgetful(dice):
        calls.append(None)
        return dice.accept(0.1 * len(calls))

    with pytest.raises(RuntimeError, match="depends on more than the dice"):
        list(EnumeratingDice().branches(forgetful))
