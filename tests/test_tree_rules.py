"""Rules beyond the token rule: block, recursive, traversal, K-sequence, match on trees, typical.

Laws are enumerated, in float64; what is compared to 1e-12 is never sampled. Models that are tables make E[accepted] a
sum over every way the dice can fall.
"""

from itertools import chain, combinations, product

import pytest
import torch
from models import TableLM, random_table, tiny_gpt

from minispec import Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import acceptance_of, expected_accepted, law_error, optimal_acceptance, prove
from minispec.analysis import checks
from minispec.decoding import EnumeratingDice, rules
from minispec.decoding.rules.kseq import price
from minispec.decoding.tree import CHOSEN, ORIGINS, ROOT, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import TableDrafter

TOKEN, BLOCK, RECURSIVE, TRAVERSAL, KSEQ, MATCH = CLAIM_EXACT = (
    rules.Token(), rules.Block(), rules.Recursive(), rules.Traversal(), rules.KSeq(), rules.Match())
EXACT = [(rule, origin) for rule in CLAIM_EXACT for origin in rule.origins]
COINS = [(rule, origin) for rule, origin in EXACT if rule is not MATCH]              # rules that reject by coins
name = lambda value: value.name if isinstance(value, rules.Rule) else str(value)
every_exact_rule = pytest.mark.parametrize("rule, origin", EXACT, ids=name)
every_coin_rule = pytest.mark.parametrize("rule, origin", COINS, ids=name)


def law(*probs: float) -> torch.Tensor:
    return torch.tensor(probs, dtype=torch.float64)


def shape_for(rule, depth=2) -> tuple[int, ...]:
    return (1,) * depth if rule.chains_only else (2,) * depth


def verdicts(rule, target_table, draft_table, shape, origin=SAMPLED) -> dict:
    """{(tokens of the tree, path, own token, bonus): probability} of one round after token 0."""
    drafter, found = TableDrafter(draft_table, branching=shape, origin=origin), {}
    drafter.start([0], Sampling())

    def judged(dice):
        tree = drafter.propose(dice, len(shape))
        path, token, bonus = rule(tree, target_table[[0, *tree.tokens]], dice)
        return tree.tokens, tuple(path), token, bonus

    for chance, outcome in EnumeratingDice().branches(judged):
        found[outcome] = found.get(outcome, 0.0) + chance
    return found


def sparse_table(V: int, seed: int) -> torch.Tensor:
    """As random_table, with a zero in every row."""
    table = random_table(V, seed)
    table[range(V), [(row + seed) % V for row in range(V)]] = 0
    return table / table.sum(-1, keepdim=True)


# --- exactness -------------------------------------------------------------------------------------------------------

@every_exact_rule
def test_the_whole_loop_has_the_targets_law(rule, origin):           # E11, A10, A22
    row = checks.row(rule, origin)
    assert row["exact"] and row["passed"] and row["max_error"] <= 1e-12
    assert row["cases"] == (4 if rule.chains_only else 6)


class Untiring(TableDrafter):
    """Sequoia's drafter: goes on where q is exhausted, with any token not tried yet."""

    def pick(self, q, count, dice):
        tokens = []
        while len(tokens) < count:
            tokens.append(dice.draw(rules.left_over(q, tokens)))
        return tokens


@pytest.mark.parametrize("rule", [RECURSIVE, TRAVERSAL, MATCH], ids=name)
def test_children_drawn_past_the_end_of_q_are_judged_exactly(rule):
    """The sparse draft has one-hot rows: the second child is then any other token, and was drawn from that law."""
    assert prove(rule, WITHOUT_REPLACEMENT, shapes=[(2, 1)], drafter=Untiring).exact


def test_left_over_is_the_law_of_the_next_draw():
    torch.testing.assert_close(rules.left_over(law(0.5, 0.3, 0.2), [0]), law(0, 0.6, 0.4))
    torch.testing.assert_close(rules.left_over(law(1, 0, 0), [0]), law(0, 0.5, 0.5))
    torch.testing.assert_close(rules.left_over(law(1, 0, 0), [0, 2]), law(0, 1, 0))


def test_with_replacement_every_draw_is_a_node_and_without_q_may_run_out():
    one_hot, dice = torch.eye(3).double(), SeededDice()
    for origin, tokens in {SAMPLED: (1, 1), WITHOUT_REPLACEMENT: (1,), CHOSEN: (1,)}.items():
        drafter = TableDrafter(one_hot, branching=(2,), origin=origin)
        drafter.start([1], Sampling())
        assert drafter.propose(dice, room=5).tokens == tokens


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (2, 2), (1, 1, 1)], ids=str)
def test_greedy_output_does_not_depend_on_the_tree(shape):                               # A23
    target, prompt = tiny_gpt(5, 0, context=32), [1, 2]
    plain = generate(target, prompt, max_new_tokens=20, sampling=Sampling(0.0)).tokens
    for rule, origin in [(RECURSIVE, SAMPLED), (TRAVERSAL, WITHOUT_REPLACEMENT), (KSEQ, SAMPLED), (MATCH, CHOSEN),
                         (rules.Typical(), CHOSEN), *[(BLOCK, SAMPLED)] * (set(shape) == {1})]:
        drafter = TableDrafter(random_table(5, 1), branching=shape, origin=origin)
        assert speculate(target, drafter, prompt, max_new_tokens=20, rule=rule, sampling=Sampling(0.0)).tokens == plain


@pytest.mark.parametrize("temperature, top_k, top_p", product([0.0, 0.7, 2.0], [None, 1, 3], [1.0, 0.6]))
def test_every_kind_of_sampling_runs_on_a_tree(temperature, top_k, top_p):                # A24
    target, sampling = tiny_gpt(5, 2), Sampling(temperature, top_k, top_p)
    for rule, origin in COINS:
        drafter = TableDrafter(sparse_table(5, 3), branching=shape_for(rule), origin=origin)
        run = speculate(target, drafter, [3], max_new_tokens=6, rule=rule, sampling=sampling)
        assert len(run.tokens) == 6 and all(0 <= token < 5 for token in run.tokens)


# --- zero mass -------------------------------------------------------------------------------------------------------

class NeverAccepts(SeededDice):
    """Rejects what cannot be rejected, as rounding may."""

    def accept(self, prob):
        return False


@every_coin_rule
@pytest.mark.parametrize("table", [sparse_table(4, 0), torch.eye(4).double()], ids=["sparse", "one-hot"])
def test_a_rejection_where_p_equals_q_goes_on_with_a_token_of_p(rule, origin, table):    # B1 B6
    drafter = TableDrafter(table, branching=shape_for(rule), origin=origin)
    run = speculate(TableLM(table), drafter, [2], max_new_tokens=12, rule=rule, dice=NeverAccepts())
    assert len(run.tokens) == 12 and all(r.accepted == 0 for r in run.trace.rounds)
    assert all(table[before, after] > 0 for before, after in zip([2, *run.tokens], run.tokens))


@every_coin_rule
@pytest.mark.parametrize("table", [random_table(3, 4), sparse_table(3, 5), torch.eye(3).double()],
                         ids=["dense", "sparse", "one-hot"])
def test_a_draft_equal_to_the_target_is_always_accepted(rule, origin, table):
    shape = (1, 1, 1) if rule.chains_only else (1, 2)
    assert expected_accepted(rule, table, table, shape, origin) == pytest.approx(len(shape), abs=1e-12)


# --- rules that must be the same rule --------------------------------------------------------------------------------

pairs_of_tables = pytest.mark.parametrize("target_table, draft_table", [
    (random_table(3, 6), random_table(3, 7)), (random_table(3, 8), sparse_table(3, 9)),
    (sparse_table(3, 10), random_table(3, 11)), (sparse_table(3, 12), sparse_table(3, 13))],
    ids=["dense", "sparse q", "sparse p", "both sparse"])


@pairs_of_tables
@pytest.mark.parametrize("rule, other, shape", [
    (TRAVERSAL, BLOCK, (1, 1, 1)), (BLOCK, TOKEN, (1,)), (RECURSIVE, TOKEN, (1, 1)), (KSEQ, TOKEN, (1, 1)),
    (TRAVERSAL, RECURSIVE, (2,))], ids=str)
def test_two_rules_give_the_same_law_of_verdicts(rule, other, shape, target_table, draft_table):
    """Tree, path, own token and bonus together: Traversal is Block on a chain, Block is Token on a single token, ..."""
    assert law_error(*(verdicts(r, target_table, draft_table, shape) for r in (rule, other))) < 1e-12


def test_block_and_token_differ_from_two_tokens_on():
    assert law_error(*(verdicts(r, random_table(3, 6), random_table(3, 7), (1, 1)) for r in (BLOCK, TOKEN))) > 0.01


# --- how much is kept ------------------------------------------------------------------------------------------------

def test_two_tokens_already_make_block_better_than_token():
    """p = (1/3, 2/3), q = (2/3, 1/3) at every position: alpha = 2/3. Token keeps 2/3 + 4/9 = 10/9.

    Block: P_1 = 1/2 after 0 and 1 after 1, E = 2/3. P_2 = 1/4, 1, 1/2, 1 after 00, 01, 10, 11, which q draws with 4/9,
    2/9, 2/9, 1/9: E = 5/9. In all 11/9: after 01 the surplus of the second token pays for the first.
    """
    p, q = law(1 / 3, 2 / 3).expand(2, 2), law(2 / 3, 1 / 3).expand(2, 2)
    assert expected_accepted(TOKEN, p, q, (1, 1)) == pytest.approx(10 / 9, abs=1e-12)
    assert expected_accepted(BLOCK, p, q, (1, 1)) == pytest.approx(11 / 9, abs=1e-12)


@pairs_of_tables
def test_expected_accepted_follows_the_formulas(target_table, draft_table):
    """Token: sum_i E_q[prod_{j<=i} min(1, p/q)]. Block: sum_i E_q[P_i], P_i = min(1, P_{i-1} p/q)."""
    token = block = 0.0
    for length in (1, 2, 3):
        for tokens in product(range(3), repeat=length):
            chance = product_of_minima = P = 1.0
            for before, x in zip((0, *tokens), tokens):
                chance *= float(draft_table[before, x])
                ratio = float(target_table[before, x] / draft_table[before, x]) if chance else 0.0
                product_of_minima, P = product_of_minima * min(1, ratio), min(1, P * ratio)
            token, block = token + chance * product_of_minima, block + chance * P
    assert expected_accepted(TOKEN, target_table, draft_table, (1, 1, 1)) == pytest.approx(token, abs=1e-12)
    assert expected_accepted(BLOCK, target_table, draft_table, (1, 1, 1)) == pytest.approx(block, abs=1e-12)
    assert block >= token


@pytest.mark.parametrize("origin", [SAMPLED, WITHOUT_REPLACEMENT])
def test_traversal_keeps_more_than_recursive_on_average(origin):
    """Four random pairs of tables; no dominance is claimed for a single one."""
    gains = []
    for seed in range(4):
        target_table, draft_table = random_table(3, 100 + seed), random_table(3, 200 + seed)
        gains.append(expected_accepted(TRAVERSAL, target_table, draft_table, (2, 1), origin)
                     - expected_accepted(RECURSIVE, target_table, draft_table, (2, 1), origin))
    assert sum(gains) > 0.01


def test_a_worked_example_of_two_children():
    """p = (.5, .3, .2), q = (.2, .5, .3). One child: sum min(p, q) = .7, and the residual is (1, 0, 0).

    Recursive, with replacement: .7 + .3 * q(0) = .76. Without: token 1 was rejected with .2, token 2 with .1, and the
    second child is token 0 with .2/.5 and .2/.7: .7 + .2 * .4 + .1 * 2/7 = .80857.
    Optimum with replacement: S = {1, 2}: p(S) + 1 - q(S)^2 = .5 + 1 - .64 = .86. Chosen: q's top two, 1 and 2.
    """
    p, q = law(0.5, 0.3, 0.2), law(0.2, 0.5, 0.3)
    assert acceptance_of(TOKEN, p, q, 1) == pytest.approx(0.7)
    assert acceptance_of(RECURSIVE, p, q, 2) == pytest.approx(0.76)
    assert acceptance_of(RECURSIVE, p, q, 2, WITHOUT_REPLACEMENT) == pytest.approx(0.7 + 0.08 + 0.2 / 7)
    assert acceptance_of(MATCH, p, q, 2, CHOSEN) == pytest.approx(0.3 + 0.2)
    assert optimal_acceptance(p, q, 2) == pytest.approx(0.86)
    assert 0.76 < acceptance_of(KSEQ, p, q, 2) < 0.86


tables_and_k = pytest.mark.parametrize("seed, k", list(product(range(3), (1, 2, 3))))


@tables_and_k
def test_no_rule_accepts_more_often_than_the_optimum(seed, k):
    p, q = random_table(3, seed)[0], sparse_table(3, 50 + seed)[1]
    best = {SAMPLED: optimal_acceptance(p, q, k), WITHOUT_REPLACEMENT: optimal_acceptance(p, q, k, replacement=False)}
    for rule, origin in [(RECURSIVE, SAMPLED), (TRAVERSAL, SAMPLED), (KSEQ, SAMPLED), (RECURSIVE, WITHOUT_REPLACEMENT),
                         (TRAVERSAL, WITHOUT_REPLACEMENT), (MATCH, SAMPLED), (MATCH, WITHOUT_REPLACEMENT)]:
        assert acceptance_of(rule, p, q, k, origin) <= best[origin] + 1e-12
    assert acceptance_of(KSEQ, p, q, k) >= acceptance_of(RECURSIVE, p, q, k) - 1e-12
    if k == 1:
        assert best[SAMPLED] == pytest.approx(float(p.minimum(q).sum()), abs=1e-12) == best[WITHOUT_REPLACEMENT]


@tables_and_k
def test_the_optimum_with_replacement_is_the_minimum_over_all_sets(seed, k):
    p, q = sparse_table(5, seed)[0], sparse_table(5, 60 + seed)[2]
    sets = chain.from_iterable(combinations(range(5), size) for size in range(6))
    bounds = [float(p[list(S)].sum() + 1 - q[list(S)].sum() ** k) for S in sets]
    assert optimal_acceptance(p, q, k) == pytest.approx(min(bounds), abs=1e-12)


def test_the_search_over_all_sets_says_where_it_ends():
    with pytest.raises(ValueError, match="at most 12 tokens, got 13"):
        optimal_acceptance(torch.ones(13) / 13, torch.ones(13) / 13, 2, replacement=False)


@tables_and_k
def test_the_price_of_k_children_solves_its_equation(seed, k):
    p, q = random_table(4, seed)[0], sparse_table(4, 70 + seed)[3]
    rho = price(p, q, k)
    accepted = float((p / rho).minimum(q).sum())
    assert 1 <= rho <= k and 1 - (1 - accepted) ** k == pytest.approx(rho * accepted, abs=1e-12)
    assert price(p, p, k) == 1


# --- typical acceptance ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("origin", ORIGINS)
def test_typical_acceptance_is_lossy_and_says_so(origin):
    row = checks.row(rules.Typical(), origin)
    assert not row["exact"] and row["passed"] and row["max_error"] > 0.1


def test_typical_keeps_the_longest_path_of_likely_enough_tokens():
    """Two paths of two tokens pass; (1, 1) is the likelier. bar = min(.09, .3 exp(-H)); H(.6, .4) = .673, bar .09."""
    tree = TokenTree((0, 1, 0, 1), (-1, -1, 0, 1), origin=CHOSEN)
    p = torch.stack([law(0.4, 0.6), law(0.95, 0.05), law(0.08, 0.92), law(0.5, 0.5), law(0.2, 0.8)])
    assert rules.Typical()(tree, p, SeededDice()) == ([1, 3], 1, True)
    p[2] = law(0.92, 0.08)                                                               # now node 3 is below the bar
    assert rules.Typical()(tree, p, SeededDice()) == ([0, 2], 0, True)


def test_the_bar_of_typical_is_lower_where_the_target_is_unsure():
    assert rules.Typical().bar(law(0.88, 0.12)) == 0.09
    assert rules.Typical().bar(torch.ones(16).double() / 16) == pytest.approx(0.3 / 16)
    assert rules.Typical().bar(law(1, 0, 0)) == 0.09                                     # 0 log 0 = 0


def test_typical_refuses_bars_that_are_no_probabilities():
    with pytest.raises(ValueError, match=r"epsilon and delta must be in \(0, 1\], got 0 and 0.3"):
        rules.Typical(epsilon=0)


# --- a wrong pairing is refused, with the name of the right rule -----------------------------------------------------

q = law(0.5, 0.5)
CHAIN = TokenTree.chain([0, 1], [q, q])
BRANCHES = TokenTree((0, 1, 1), (-1, -1, 0), {ROOT: q, 0: q})
WITHOUT = TokenTree((0, 1), (-1, -1), {ROOT: q}, WITHOUT_REPLACEMENT)
TOP = TokenTree((0, 1), (-1, -1), origin=CHOSEN)
TOP_CHAIN = TokenTree.chain([0, 1], origin=CHOSEN)


@pytest.mark.parametrize("rule, tree, right", [
    (TOKEN, BRANCHES, "rules.Recursive or rules.Traversal"), (BLOCK, BRANCHES, "rules.Recursive or rules.Traversal"),
    (TOKEN, WITHOUT, "rules.Recursive or rules.Traversal"), (BLOCK, WITHOUT, "rules.Recursive or rules.Traversal"),
    (KSEQ, WITHOUT, "rules.Recursive or rules.Traversal"), (TOKEN, TOP_CHAIN, "rules.Match"),
    (BLOCK, TOP_CHAIN, "rules.Match"), (RECURSIVE, TOP, "rules.Match"), (TRAVERSAL, TOP, "rules.Match"),
    (KSEQ, TOP, "rules.Match"), (RECURSIVE, TOP_CHAIN, "rules.Match")], ids=name)
def test_a_tree_the_rule_cannot_judge_is_refused_with_the_right_rule(rule, tree, right):
    probs = q.expand(1 + len(tree), 2)
    with pytest.raises(ValueError, match=rf"use {right}$"):
        rule(tree, probs, SeededDice())
    suggested = getattr(rules, right.split()[0].removeprefix("rules."))()
    assert suggested(tree, probs, SeededDice()).token in (0, 1)                         # and it does judge it


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, RECURSIVE, TRAVERSAL, KSEQ], ids=name)
def test_sampled_children_without_draft_probs_are_refused(rule):                          # A18
    tree = TokenTree.chain([0, 1], [q])
    with pytest.raises(ValueError, match="needs draft_probs at every node that has children.*use rules.Match"):
        rule(tree, q.expand(3, 2), SeededDice())


@pytest.mark.parametrize("tree", [
    TokenTree.chain([2], [law(0.5, 0.5, 0)]), TokenTree.chain([0], [law(float("nan"), 0.5, 0.5)]),             # B4
    TokenTree((0, 0), (-1, -1), {ROOT: law(0.5, 0.5, 0)}, WITHOUT_REPLACEMENT),
    TokenTree((0, 2), (-1, -1), {ROOT: law(0.5, 0.5, 0)}, WITHOUT_REPLACEMENT)],
    ids=["q = 0", "q = NaN", "one token twice without replacement", "q = 0 while others were left"])
def test_a_token_that_its_own_q_cannot_have_drawn_is_refused(tree):
    """p / 0 would accept it always, whatever p says."""
    for rule in (rule for rule, origin in COINS if origin == tree.origin):
        with pytest.raises(ValueError, match=r"its draft_probs give it the probability (0\.0|nan).*rules.Match"):
            list(EnumeratingDice().branches(lambda dice: rule(tree, law(0.2, 0.3, 0.5).expand(3, 3), dice)))


def test_tokens_of_one_node_count_once_under_match():                                    # siblings with one token
    tree = TokenTree((0, 0, 1), (-1, -1, 1), origin=CHOSEN)
    assert acceptance(MATCH, tree, law(0.3, 0.7)) == pytest.approx(0.3)


def acceptance(rule, tree, p) -> float:
    """P(something is accepted), p after every node alike."""
    return sum(chance for chance, verdict in EnumeratingDice().branches(
        lambda dice: rule(tree, p.expand(1 + len(tree), len(p)), dice)) if verdict.path)


def test_a_node_that_three_paths_share_is_judged_once():                                 # A11
    tree = TokenTree((0, 0, 1, 2), (-1, 0, 0, 0), origin=CHOSEN)
    assert acceptance(MATCH, tree, law(0.09, 0.41, 0.5)) == pytest.approx(0.09)
