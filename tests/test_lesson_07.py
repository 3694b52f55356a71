"""Lesson 07: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import pytest
from lesson_tools import rejected, solved, untouched

from minispec.decoding import rules
from minispec.lessons import check

NAMES = ("tree_mask", "tree_positions", "second_chances", "tree_tokens")
solution = solved("07")
right_mask = solution.tree_mask


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


@pytest.mark.parametrize("wrong, picture", [
    (lambda parents: [[c <= r for c in range(len(parents) + 1)] for r in range(len(parents) + 1)], True),   # siblings
    (lambda parents: [[c == r or r > 0 and c == parents[r - 1] + 1 for c in range(len(parents) + 1)]
                      for r in range(len(parents) + 1)], True),                           # parents, no grandparents
    (lambda parents: [[see and c != r for c, see in enumerate(row)]
                      for r, row in enumerate(right_mask(parents))], True),               # not itself
    (lambda parents: [list(column) for column in zip(*right_mask(parents))], True),       # transposed
    (lambda parents: [row[1:] for row in right_mask(parents)[1:]], False),                # the root is no row
])
def test_tree_mask(wrong, picture):
    rejected(check.tree_mask(wrong), picture)


@pytest.mark.parametrize("wrong", [
    lambda parents, base: [base + row for row in range(len(parents) + 1)],                # one slot, one position
    lambda parents, base: solution.tree_positions(parents, base + 1),                     # the root is one further
    lambda parents, base: solution.tree_positions(parents, base)[1:],                     # the root is no row
    lambda parents, base: solution.tree_positions(parents, 0),                            # the prompt is forgotten
    lambda parents, base: [base] + [base + parent + 2 for parent in parents],             # the parent's row, not depth
])
def test_tree_positions(wrong):
    rejected(check.tree_positions(wrong), picture=True)


def judged_by_p_alone(p, q, tokens, dice):
    for child, x in enumerate(tokens):                                                    # p never changes
        if dice.accept(min(1.0, float(p[x] / q[x]))):
            return child, p
    return None, rules.residual(p, q)


def p_is_left(p, q, tokens, dice):
    return solution.second_chances(p, q, tokens, dice)[0], p                              # no residual at the end


def residual_of_the_first(p, q, tokens, dice):
    left = p
    for child, x in enumerate(tokens):
        if dice.accept(min(1.0, float(left[x] / q[x]))):
            return child, left
        left = rules.residual(p, q)                                                       # of p, not of what was left
    return None, left


def likeliest_first(p, q, tokens, dice):
    order = sorted(range(len(tokens)), key=lambda child: -float(p[tokens[child]]))        # not in the order of drawing
    child, left = solution.second_chances(p, q, [tokens[c] for c in order], dice)
    return None if child is None else order[child], left


@pytest.mark.parametrize("wrong", [judged_by_p_alone, p_is_left, residual_of_the_first, likeliest_first])
def test_second_chances(wrong):
    rejected(check.second_chances(wrong), picture=True)


def test_second_chances_that_waste_a_child_are_told_so():
    rejected(check.second_chances(lambda p, q, tokens, dice: solution.second_chances(p, q, tokens[:1], dice)), False)


@pytest.mark.parametrize("wrong", [
    lambda acceptance, parents: solution.tree_tokens(acceptance, parents) - 1,            # the target's own
    lambda acceptance, parents: solution.tree_tokens([acceptance[0]] * 9, parents),       # all like the first child
    lambda acceptance, parents: 1 + sum(acceptance[0] for _ in parents),                  # no product along the path
    lambda acceptance, parents: solution.tree_tokens(acceptance[:1], parents),            # only first children count
])
def test_tree_tokens(wrong):
    rejected(check.tree_tokens(wrong), picture=True)
