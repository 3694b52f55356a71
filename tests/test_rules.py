"""Acceptance rules, one round at a time, by enumeration of their dice: rejection sampling on a chain, and matching."""

import itertools

import pytest
import torch
from models import random_table

from minispec.decoding import Dice, EnumeratingDice, TokenTree, Verdict, rules
from minispec.decoding.rules import residual
from minispec.decoding.tree import CHOSEN, ORIGINS, SAMPLED, WITHOUT_REPLACEMENT

TIGHT = dict(abs=1e-14)


def law(*probs: float) -> torch.Tensor:
    return torch.tensor(probs, dtype=torch.float64)


def one_hot(token: int, V: int = 3) -> torch.Tensor:
    return torch.eye(V, dtype=torch.float64)[token]


def branches(run) -> dict:
    """{result: probability} of run(dice) over all ways the dice can fall."""
    total = {}
    for probability, result in EnumeratingDice().branches(run):
        total[result] = total.get(result, 0.0) + probability
    return total


def one_round(rule, p: list[torch.Tensor], q: list[torch.Tensor], propose=None) -> dict[tuple[int, ...], float]:
    """{emitted tokens: probability}; tokens drawn from q[k] at depth k, or given by `propose`."""
    def run(dice):
        tokens = [dice.draw(row) for row in q] if propose is None else propose
        verdict = rule(TokenTree.chain(tokens, q), torch.stack(p), dice)
        return (*[tokens[node] for node in verdict.path], verdict.token)

    return branches(run)


def first(emitted: dict[tuple[int, ...], float], V: int) -> list[float]:
    """The law of the first emitted token."""
    return [sum(chance for tokens, chance in emitted.items() if tokens[0] == token) for token in range(V)]


class Scripted(Dice):
    """Coins that fall as told; a draw takes the first token that is possible, and what it was drawn from is kept."""

    def __init__(self, *coins: bool):
        super().__init__()
        self.coins, self.drawn_from = list(coins), []

    def accept(self, prob: float) -> bool:
        return self.coins.pop(0)

    def draw(self, probs: torch.Tensor) -> int:
        self.drawn_from.append(probs.tolist())
        return int(probs.nonzero()[0])


# --- the residual -----------------------------------------------------------------------------------------------------

def test_the_residual_is_the_excess_normalised_and_nothing_else():                     # A5
    assert residual(law(0.5, 0.3, 0.2), law(0.2, 0.5, 0.3)).tolist() == [1.0, 0.0, 0.0]
    assert residual(law(0.5, 0.4, 0.1), law(0.3, 0.1, 0.6)).tolist() == pytest.approx([0.4, 0.6, 0.0], **TIGHT)


@pytest.mark.parametrize("p", [law(0.5, 0.3, 0.2), law(1.0, 0.0, 0.0), law(1 / 3, 1 / 3, 1 / 3)], ids=str)
def test_where_p_equals_q_the_residual_is_p_and_not_nan(p):                            # B1 B9
    for q in (p, p * (1 + 1e-16), (p + 1e-17) / (p + 1e-17).sum()):
        assert residual(p, q).tolist() == pytest.approx(p.tolist(), **TIGHT)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_a_small_residual_is_still_the_excess_and_not_p(gap):
    """Near-equal laws reject rarely, and then the correction must be token 0: any other would be a bias of `gap`."""
    left = residual(law(0.5 + gap, 0.3, 0.2 - gap), law(0.5, 0.3, 0.2))
    assert left.tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


def test_a_residual_of_random_laws_is_a_law_that_never_holds_the_rejected_token():
    for p, q in zip(random_table(50, 0), random_table(50, 1)):
        left = residual(p, q)
        assert float(left.sum()) == pytest.approx(1, **TIGHT)
        assert not bool(left[p <= q].any())


# --- rejection sampling -----------------------------------------------------------------------------------------------

PAIRS = {"overlapping": (law(0.5, 0.3, 0.2), law(0.6, 0.3, 0.1)), "equal": (law(0.5, 0.3, 0.2), law(0.5, 0.3, 0.2)),
         "disjoint": (law(0.0, 0.4, 0.6), law(1.0, 0.0, 0.0)), "p one-hot": (one_hot(1), law(0.2, 0.3, 0.5)),
         "q one-hot": (law(0.2, 0.3, 0.5), one_hot(1)), "zeros in both": (law(0.7, 0.3, 0.0), law(0.0, 0.5, 0.5))}


@pytest.mark.parametrize("p, q", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("rule", [rules.Token(), rules.Match()], ids=lambda rule: rule.name)
def test_the_first_token_has_the_targets_law(rule, p, q):
    assert first(one_round(rule, [p, p], [q]), 3) == pytest.approx(p.tolist(), **TIGHT)


@pytest.mark.parametrize("p, q", PAIRS.values(), ids=PAIRS)
def test_rejection_keeps_sum_min_and_matching_keeps_sum_product(p, q):                 # A9
    """The one proposed token is kept with probability sum min(p, q), or sum p q: exact both, efficient one."""
    def kept(rule):
        return sum(chance for tokens, chance in one_round(rule, [p, p], [q]).items() if len(tokens) == 2)

    assert kept(rules.Token()) == pytest.approx(float(torch.minimum(p, q).sum()), **TIGHT)
    assert kept(rules.Match()) == pytest.approx(float((p * q).sum()), **TIGHT)


def test_the_two_acceptances_of_a_worked_example():                                    # A9
    p, q = PAIRS["overlapping"]
    kept = [sum(chance for tokens, chance in one_round(rule, [p, p], [q]).items() if len(tokens) == 2)
            for rule in (rules.Token(), rules.Match())]
    assert kept == pytest.approx([0.9, 0.41], **TIGHT)


def test_a_one_hot_draft_is_accepted_with_probability_p():                             # A18 A22
    emitted = one_round(rules.Token(), [law(0.2, 0.3, 0.5), one_hot(0)], [one_hot(1)])
    assert emitted == pytest.approx({(1, 0): 0.3, (0,): 0.2, (2,): 0.5}, **TIGHT)


def test_at_temperature_zero_only_the_targets_own_token_survives():                    # A2 A16
    """q likes token 0 better than p does, and p's best is 1: whatever is proposed, 1 comes out."""
    for proposed in range(3):
        emitted = one_round(rules.Token(), [one_hot(1), one_hot(2)], [law(0.6, 0.2, 0.2)], propose=[proposed])
        assert emitted == {(1, 2) if proposed == 1 else (1,): 1.0}


def test_the_bonus_token_has_the_law_of_its_own_row():                                 # A14
    bonus = law(0.5, 0.3, 0.2)
    emitted = one_round(rules.Token(), [one_hot(0), one_hot(1), bonus], [one_hot(0), one_hot(1)])
    assert emitted == pytest.approx({(0, 1, 0): 0.5, (0, 1, 1): 0.3, (0, 1, 2): 0.2}, **TIGHT)


def test_the_first_rejection_ends_the_round_with_a_draw_from_its_residual():
    p, q = [law(0.5, 0.3, 0.2)] * 3, [law(0.2, 0.5, 0.3)] * 2
    for coins, path, drawn_from in [((False,), [], [1, 0, 0]), ((True, False), [0], [1, 0, 0]),
                                    ((True, True), [0, 1], [0.5, 0.3, 0.2])]:
        dice = Scripted(*coins)
        verdict = rules.Token()(TokenTree.chain([1, 2], q), torch.stack(p), dice)
        assert verdict == Verdict(path, 0, bonus=len(path) == 2)
        assert dice.drawn_from == [pytest.approx(drawn_from, **TIGHT)] and not dice.coins


def test_a_forced_rejection_of_equal_laws_gives_a_token_of_p():                        # B1 B6
    p = law(0.0, 0.4, 0.6)
    dice = Scripted(False)
    assert rules.Token()(TokenTree.chain([2], [p]), torch.stack([p, p]), dice).token == 1
    assert dice.drawn_from == [pytest.approx(p.tolist(), **TIGHT)]


@pytest.mark.parametrize("rule", [rules.Token(), rules.Match()], ids=lambda rule: rule.name)
def test_nothing_proposed_means_one_token_of_the_target(rule):
    p = law(0.5, 0.3, 0.2)
    emitted = branches(lambda dice: rule(TokenTree(), p[None], dice).token)
    assert emitted == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2}, **TIGHT)
    assert rule(TokenTree(), p[None], Scripted()) == Verdict([], 0, bonus=True)


# --- sample and match -------------------------------------------------------------------------------------------------

def test_matching_descends_while_a_child_holds_the_targets_token():
    """        root: 0, 2        The target draws 2 (node 1), then 1 (node 3), then 0 at the leaf.
               node 1: 0, 1      """
    tree = TokenTree((0, 2, 0, 1), (-1, -1, 1, 1), origin=CHOSEN)
    p = torch.stack([one_hot(2), one_hot(0), one_hot(1), one_hot(0), one_hot(0)])
    assert rules.Match()(tree, p, Scripted()) == Verdict([1, 3], 0, bonus=True)
    p[2] = one_hot(2)
    assert rules.Match()(tree, p, Scripted()) == Verdict([1], 2, bonus=False)


@pytest.mark.parametrize("tokens", [(0, 2), (2, 1), (0, 1, 2), (1, 1), (2, 0, 2)], ids=str)
def test_matching_equals_accepting_children_one_by_one_against_what_is_left_of_p(tokens):         # A11 A22
    """A node shared by several paths, or a token held by several siblings, gets one chance: p(x), not 1 - (1 - p)^k."""
    p, tree = law(0.09, 0.61, 0.3), TokenTree(tokens, (-1,) * len(tokens), origin=CHOSEN)

    def point_mass(dice):
        left = p.clone()
        for child, x in enumerate(tokens):
            if left[x] > 0 and dice.accept(float(left[x] / left.sum())):
                return x, tokens.index(x)
            left[x] = 0
        return dice.draw(left), None

    def match(dice):
        verdict = rules.Match()(tree, torch.stack([p] + [one_hot(0)] * len(tokens)), dice)
        return (tree.tokens[verdict.path[0]], verdict.path[0]) if verdict.path else (verdict.token, None)

    assert branches(match) == pytest.approx(branches(point_mass), **TIGHT)


# --- which trees a rule takes -----------------------------------------------------------------------------------------

def test_rejecting_a_token_that_was_not_drawn_from_q_is_biased():                      # A3
    """The likeliest token is proposed under a q that calls it likely, .8: the law becomes (.75, .25), not (.6, .4)."""
    p, q = law(0.6, 0.4), law(0.8, 0.2)
    lie = one_round(rules.Token(), [p, p], [q], propose=[0])
    assert first(lie, 2) == pytest.approx([0.75, 0.25], **TIGHT)
    tree = TokenTree.chain([0], [q], origin=CHOSEN)
    with pytest.raises(ValueError, match="use rules.Match"):
        rules.Token()(tree, torch.stack([p, p]), Scripted())
    honest = branches(lambda dice: rules.Match()(tree, torch.stack([p, p]), dice).path != [])
    assert honest == pytest.approx({True: 0.6, False: 0.4}, **TIGHT)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("parents", [(-1, 0), (-1, -1)], ids=["chain", "branches"])
@pytest.mark.parametrize("name", ["Token", "Match"])
def test_a_tree_is_judged_or_refused_with_the_name_of_a_rule_that_takes_it(name, parents, origin):
    p = law(0.5, 0.3, 0.2)
    tree = TokenTree((1, 2), parents, {-1: p, 0: p}, origin)
    judge = lambda name: getattr(rules, name)()(tree, torch.stack([p] * 3), Scripted(*[True] * 9))
    if name == "Match" or (origin, parents) == (SAMPLED, (-1, 0)):
        judge(name)
    else:
        with pytest.raises(ValueError, match=f"rules.{name} .*: use rules.") as refusal:
            judge(name)
        judge(str(refusal.value).split("rules.")[-1])                  # the rule that is named does take it


def test_what_each_rule_claims():
    assert (rules.Token().name, rules.Token.exact, rules.Token.origins, rules.Token.chains_only) == \
           ("token", True, (SAMPLED,), True)
    assert (rules.Match().name, rules.Match.exact, set(rules.Match.origins), rules.Match.chains_only) == \
           ("match", True, {SAMPLED, WITHOUT_REPLACEMENT, CHOSEN}, False)


@pytest.mark.parametrize("seed", range(5))
def test_two_proposals_have_the_targets_joint_law(seed):
    """Random conditional tables; the emitted pair, completed with p where the round ended early, against p p."""
    P, Q = random_table(3, seed), random_table(3, seed + 100)

    def run(dice):
        tokens = [dice.draw(Q[0])]
        tokens.append(dice.draw(Q[tokens[0]]))
        q = [Q[0], Q[tokens[0]]]
        verdict = rules.Token()(TokenTree.chain(tokens, q), torch.stack([P[0], P[tokens[0]], P[tokens[1]]]), dice)
        emitted = [tokens[node] for node in verdict.path] + [verdict.token]
        while len(emitted) < 3:
            emitted.append(dice.draw(P[emitted[-1]]))
        return tuple(emitted)

    expected = {(a, b, c): float(P[0, a] * P[a, b] * P[b, c]) for a, b, c in itertools.product(range(3), repeat=3)}
    assert branches(run) == pytest.approx(expected, **TIGHT)
