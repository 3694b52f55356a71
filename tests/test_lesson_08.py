"""Lesson 08: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import math

import pytest
from lesson_tools import rejected, solved, untouched

from minispec.decoding import Verdict
from minispec.lessons import check

NAMES = ("keep_masses", "longest_kept", "match", "typical_law")
solution = solved("08")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def cut_once(ratios):
    return [min(1.0, math.prod(ratios[:i + 1])) for i in range(len(ratios))]              # a surplus is saved for later


@pytest.mark.parametrize("wrong", [
    cut_once,
    lambda ratios: [math.prod(min(1.0, r) for r in ratios[:i + 1]) for i in range(len(ratios))],    # token by token
    lambda ratios: [math.prod(ratios[:i + 1]) for i in range(len(ratios))],               # never cut to 1
    lambda ratios: [1.0, *solution.keep_masses(ratios)],                                  # P_0 as well
])
def test_keep_masses(wrong):
    rejected(check.keep_masses(wrong), picture=True)


def first_failure(chances, dice):
    kept = 0
    for i, chance in enumerate(chances, 1):
        if not dice.accept(chance):
            return kept
        kept = i
    return kept


@pytest.mark.parametrize("wrong, picture", [
    (first_failure, True),                                                                # a clean-up that isn't
    (lambda chances, dice: sum(dice.accept(chance) for chance in chances), True),         # how many, not which
    (lambda chances, dice: max(0, solution.longest_kept(chances, dice) - 1), True),       # counts from 0
    (lambda chances, dice: len(chances) * dice.accept(chances[-1]), True),                # all or nothing
    (lambda chances, dice: solution.longest_kept(chances, dice) + 1, False),              # more than there are
])
def test_longest_kept(wrong, picture):
    rejected(check.longest_kept(wrong), picture)


def a_sample_for_each_child(tree, target_probs, dice):
    node, path = -1, []
    while True:
        for child in tree.children(node):
            if dice.draw(target_probs[node + 1]) == tree.tokens[child]:
                break
        else:
            return Verdict(path, dice.draw(target_probs[node + 1]), bonus=not tree.children(node))
        path.append(child)
        node = child


def ends_greedily(tree, target_probs, dice):
    path = solution.match(tree, target_probs, dice).path
    return Verdict(path, int(target_probs[path[-1] + 1 if path else 0].argmax()), False)


def draws_again(tree, target_probs, dice):
    path = solution.match(tree, target_probs, dice).path
    return Verdict(path, dice.draw(target_probs[path[-1] + 1 if path else 0]), False)


def looks_at_first_children(tree, target_probs, dice):
    node, path = -1, []
    while True:
        y = dice.draw(target_probs[node + 1])
        if not tree.children(node) or tree.tokens[tree.children(node)[0]] != y:
            return Verdict(path, y, False)
        node = tree.children(node)[0]
        path.append(node)


@pytest.mark.parametrize("wrong, picture", [
    (a_sample_for_each_child, True), (ends_greedily, True), (draws_again, True),
    (lambda tree, target_probs, dice: Verdict([], dice.draw(target_probs[0]), False), False),      # accepts nothing
    (looks_at_first_children, False),                                                     # exact, accepts too little
])
def test_match(wrong, picture):
    rejected(check.match(wrong), picture)


def renormalised(p, q, bar):
    law = q * (p > bar)
    return law / law.sum()


@pytest.mark.parametrize("wrong", [
    renormalised,                                                                         # a rejection draws from q again
    lambda p, q, bar: q * (p > bar) + (1 - (q * (p > bar)).sum()) * p,                    # a rejection draws from p
    lambda p, q, bar: q * (p > bar),                                                      # a rejection emits nothing
    lambda p, q, bar: p,                                                                  # as if it were exact
])
def test_typical_law(wrong):
    rejected(check.typical_law(wrong), picture=True)
