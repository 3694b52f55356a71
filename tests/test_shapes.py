"""Tree shapes: the dynamic programme against all ordered trees, best-first against both, and the choice of a size."""

import math
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import FixedTree, ScriptedLM, TableLM, random_table

from minispec import Sampling, SeededDice, TokenTree, speculate
from minispec.analysis import expected_tokens
from minispec.analysis.shapes import best_first, best_size, best_tree, child_acceptance, tree_tokens
from minispec.analysis.theory import best_draft_length, speedup
from minispec.decoding import EnumeratingDice, Speculation, rules
from minispec.drafters import LMDrafter, TreeDrafter

FALLING = [0.6, 0.2, 0.1]
UNEVEN = [0.3, 0.05, 0.5]                                         # the likely third child stands behind the second


# --- the slow reference: all ordered trees ----------------------------------------------------------------------------

@lru_cache(maxsize=None)
def forests(nodes: int, depth: int, width: int) -> list[tuple]:
    """All ordered forests of exactly `nodes` nodes, at most `depth` deep, each node with at most `width` children, at
    most `width` trees. A tree is the tuple of its children."""
    if nodes == 0:
        return [()]
    if depth == 0:
        return []
    return [(tree, *rest) for size in range(1, nodes + 1) for tree in forests(size - 1, depth - 1, width)
            for rest in forests(nodes - size, depth, width) if len(rest) < width]


def accepted(forest: tuple, p: list[float]) -> float:
    """Expected accepted tokens below a node that was reached."""
    return sum(p[b] * (1 + accepted(tree, p)) for b, tree in enumerate(forest))


def brute_force(p: list[float], nodes: int, depth: int, width: int) -> float:
    return max(1 + accepted(forest, p) for size in range(nodes + 1) for forest in forests(size, depth, width))


def test_the_reference_counts_as_catalan_did():
    assert [len(forests(n, n, n)) for n in range(8)] == [math.comb(2 * n, n) // (n + 1) for n in range(8)]


acceptances = st.lists(st.floats(0, 1), min_size=1, max_size=3).map(lambda w: [x / max(1, sum(w)) for x in w])
sizes, depths = st.integers(0, 8), st.integers(1, 8)


def check_limits(parents, nodes, depth, width):
    tree = TokenTree((0,) * len(parents), parents)                # refuses a child before its parent
    assert len(tree) <= nodes and tree.depths().max() <= depth
    assert all(len(tree.children(node)) <= width for node in range(-1, nodes))


@settings(max_examples=60, deadline=None)
@given(acceptances, sizes, depths)
def test_the_dynamic_programme_equals_all_trees_tried(p, nodes, depth):
    shape = best_tree(p, nodes, depth)
    assert shape.tokens_per_pass == pytest.approx(brute_force(p, nodes, depth, len(p)), abs=1e-12)
    assert tree_tokens(p, shape.parents) == shape.tokens_per_pass
    check_limits(shape.parents, nodes, depth, len(p))


@settings(max_examples=60, deadline=None)
@given(acceptances.map(lambda p: sorted(p, reverse=True)), sizes, depths)
def test_best_first_is_as_good_where_acceptance_falls(p, nodes, depth):
    shape = best_first(p, nodes, depth)
    assert shape.tokens_per_pass == pytest.approx(best_tree(p, nodes, depth).tokens_per_pass, abs=1e-12)
    check_limits(shape.parents, nodes, depth, len(p))


def test_best_first_is_worse_where_a_younger_child_is_the_likely_one():
    assert best_tree(UNEVEN, 3).parents == (-1, -1, -1)                              # 1.85
    assert best_first(UNEVEN, 3).parents == (-1, 0, -1)                              # 1.44: it can't see past the .05


def test_the_first_nodes_of_best_first_are_the_best_tree_of_that_size():
    parents = best_first(FALLING, 20).parents
    for size in range(21):
        best = best_tree(FALLING, size).tokens_per_pass
        assert tree_tokens(FALLING, parents[:size]) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("p, nodes, parents", [
    ([0.9, 0.05], 4, (-1, 0, 1, 2)),                              # sure of the first: a chain
    ([0.3, 0.25, 0.2], 3, (-1, -1, -1)),                          # sure of nothing: a fan
    ([0.6, 0.3], 4, (-1, -1, 0, 2)),                              # .6 .36 .3 .216: then .18, .18
    ([0.5, 0.0], 9, tuple(range(-1, 8))), ([0.0, 0.0], 3, ()), ([0.5], 0, ())])
def test_shapes_that_can_be_told_by_hand(p, nodes, parents):
    assert best_tree(p, nodes).parents == parents
    check = best_first(p, nodes).parents
    assert tree_tokens(p, check) == pytest.approx(tree_tokens(p, parents)) and len(check) == len(parents)


def test_width_and_depth_are_limited_where_asked():
    assert best_tree(FALLING, 12, max_depth=2).depth == 2 and best_tree(FALLING, 12, max_depth=2, max_width=2) == \
        best_tree(FALLING[:2], 12, max_depth=2)
    assert best_tree(FALLING, 5, max_width=1).parents == best_first(FALLING, 5, max_width=1).parents == (-1, 0, 1, 2, 3)


def test_tokens_of_a_shape_by_hand_and_of_a_chain_by_the_formula():
    assert tree_tokens([0.5, 0.25], (-1, -1, 0)) == 1 + 0.5 + 0.25 + 0.5 * 0.5
    assert tree_tokens([0.5], (-1, -1, 1)) == 1.5                 # the second child is beyond the list: never accepted
    assert tree_tokens([0.8, 0.1], (-1, 0, 1, 2)) == pytest.approx(expected_tokens(0.8, 4))


@pytest.mark.parametrize("p", [[], [1.1], [-0.1], [0.7, 0.4], [float("nan")]], ids=str)
@pytest.mark.parametrize("ask", [lambda p: best_tree(p, 3), lambda p: best_first(p, 3), lambda p: best_size(p, 0.1),
                                 lambda p: tree_tokens(p, (-1,))])
def test_what_is_no_list_of_exclusive_probabilities_is_refused(ask, p):
    with pytest.raises(ValueError, match="probabilities of children that exclude each other"):
        ask(p)


# --- the clock's choice -----------------------------------------------------------------------------------------------

def test_where_nothing_pays_the_shape_is_empty_and_the_speedup_one():
    assert best_size([0.1], cost=0.5) == ((), 1.0, 1.0)
    assert best_size(FALLING, cost=0.05, verify=lambda k: k) == ((), 1.0, 1.0)       # each row costs a whole pass


def test_a_cliff_in_the_verify_curve_ends_the_tree_before_it():
    shape = best_size(FALLING, cost=0.01, verify=lambda k: 1.0 if k <= 9 else 10.0, sizes=range(1, 33))
    assert len(shape.parents) == 8                                # 8 nodes and the last committed token


def test_a_dear_draft_makes_the_tree_flat_and_a_cheap_one_deep():
    depths = [best_size(FALLING, cost, sizes=[16]).depth for cost in (0.001, 0.05, 0.2, 0.8)]
    assert depths == sorted(depths, reverse=True) and depths[0] > depths[-1] == 1


def test_the_speedup_is_the_best_of_all_sizes_and_depths():
    verify, p, cost = (lambda k: 0.9 + 0.1 * k), FALLING, 0.1
    every = [
        (1 + accepted(forest, p)) / (depth * cost + verify(1 + size))
        for size in range(1, 8) for depth in range(1, size + 1) for forest in forests(size, depth, 3)]
    shape = best_size(p, cost, verify, sizes=range(1, 8))
    assert shape.speedup == pytest.approx(max(every), abs=1e-12)
    assert shape.speedup == shape.tokens_per_pass / (shape.depth * cost + verify(1 + len(shape.parents)))


def test_with_one_child_the_choice_is_the_best_draft_length():
    for alpha, cost in [(0.5, 0.1), (0.8, 0.1), (0.9, 0.05)]:
        shape = best_size([alpha], cost, sizes=range(1, 21), max_depth=20)
        assert len(shape.parents) == shape.depth == best_draft_length(alpha, cost, longest=20)
        assert shape.speedup == pytest.approx(speedup(alpha, shape.depth, cost))


# --- measuring --------------------------------------------------------------------------------------------------------

def test_child_acceptance_counts_reached_nodes_only():
    """The target recites 1 2 3 ...; children hold the right token as second child of the root and first child below."""
    right = lambda ids, node: {0: 50, 1: len(ids), 2: len(ids) + 1, 3: len(ids) + 1, 4: 51}[node]
    drafter = FixedTree((-1, -1, 0, 1, 1), right)                 # node 2, under the wrong node 0, is never reached
    trace = speculate(ScriptedLM(range(20)), drafter, [0], max_new_tokens=9, rule=rules.Match(),
                      sampling=Sampling(0)).trace
    assert [len(r.path) for r in trace.rounds] == [2, 2, 2]
    assert child_acceptance(trace) == ([3 / 6, 3 / 6], [6, 6])    # each round: root 2nd of 2, node 1 first of 2
    assert child_acceptance(trace, trace) == ([0.5, 0.5], [12, 12])


def test_where_nodes_have_unequal_numbers_of_children_the_measure_still_sums_to_at_most_one():
    """Root: wrong, right; below the right one a chain that is right. First children: 2 of 3 taken. The one second child
    was taken, but it was asked for only where the first had failed, 1/3: not 2/3 + 1."""
    right = lambda ids, node: 63 if node == 0 else len(ids) + node - 1
    trace = speculate(ScriptedLM(range(20)), FixedTree((-1, -1, 1, 2), right), [0], max_new_tokens=4,
                      rule=rules.Match(), sampling=Sampling(0)).trace
    acceptance, reached = child_acceptance(trace)
    assert acceptance == pytest.approx([2 / 3, 1 / 3]) and reached == [3, 1]
    assert best_tree(acceptance, 4).tokens_per_pass > 2


def test_child_acceptance_stops_at_a_cut():
    right = lambda ids, node: len(ids) + node
    cut = speculate(ScriptedLM(range(20)), FixedTree((-1, 0, 1, 2), right), [0], max_new_tokens=9, rule=rules.Match(),
                    sampling=Sampling(0), stop_tokens=[2]).trace
    assert cut.rounds[0].emitted == [1, 2] and child_acceptance(cut) == ([1.0], [2])
    whole = speculate(ScriptedLM(range(20)), FixedTree((-1, 0, 1, 2), right), [0], max_new_tokens=5, rule=rules.Match(),
                      sampling=Sampling(0)).trace
    assert child_acceptance(whole) == ([1.0], [4])


def test_on_chains_it_is_accepted_over_reached():
    traces = [speculate(TableLM(random_table(5, 0)), LMDrafter(TableLM(random_table(5, 1)), 3), [0], max_new_tokens=40,
                        dice=SeededDice(seed)).trace for seed in range(3)]
    rounds = [r for trace in traces for r in trace.rounds]
    (p,), (reached,) = child_acceptance(*traces)
    assert reached == sum(len(r.path) + (not r.bonus) for r in rounds)
    assert p == sum(len(r.path) for r in rounds) / reached


def coin_models() -> tuple[TableLM, TableLM]:
    """A target and a draft whose laws are the same after every token."""
    return tuple(TableLM(torch.tensor([law] * 3, dtype=torch.float64), context=999)
                 for law in ([0.5, 0.3, 0.2], [0.4, 0.4, 0.2]))


@pytest.mark.parametrize("parents", [best_tree([0.5, 0.3], 6).parents, (-1, 0, 0, -1, 3), (-1, -1, -1)], ids=str)
def test_a_round_emits_what_theory_expects_where_acceptance_is_the_same_at_every_node(parents):
    """By enumeration. Children are chosen by q, 0 before 1 before 2, and matched with probability p."""
    target, draft = coin_models()

    def tokens(dice):
        drafter = TreeDrafter(draft, parents=parents, origin="chosen")
        return len(Speculation(target, drafter, [0], max_new_tokens=20, rule=rules.Match()).round(dice).emitted)

    mean = sum(probability * count for probability, count in EnumeratingDice().branches(tokens))
    assert mean == pytest.approx(tree_tokens([0.5, 0.3, 0.2], parents), abs=1e-12)


def test_acceptance_measured_on_one_shape_is_that_of_the_law():
    """At least 300 nodes are reached and the spread is below 0.03: 0.15 off has a chance below 1e-6."""
    target, draft = coin_models()
    trace = speculate(target, TreeDrafter(draft, [2, 2], origin="chosen"), [0], max_new_tokens=600, rule=rules.Match(),
                      dice=SeededDice(0)).trace
    acceptance, reached = child_acceptance(trace)
    assert min(reached) >= 300 and max(abs(a - p) for a, p in zip(acceptance, [0.5, 0.3], strict=True)) < 0.15
