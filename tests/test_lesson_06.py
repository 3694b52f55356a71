"""Lesson 06: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import pytest
from lesson_tools import rejected, solved, untouched

from minispec.lessons import check

solution = solved("06")
right_tokens, right_speedup = solution.tokens_per_round, solution.predicted_speedup


def product(alphas):
    total = 1.0
    for alpha in alphas:
        total *= alpha
    return total


def best(lengths, speedup):
    return max(lengths, key=speedup)


def no_zero(alpha, cost, verify, longest):
    return best(range(1, longest + 1), lambda n: right_speedup([alpha] * n, cost, verify))


def not_the_longest(alpha, cost, verify, longest):
    return best(range(longest), lambda n: right_speedup([alpha] * n, cost, verify) if n else 1.0)


MISTAKES = {
    "tokens_per_round": {
        "the target's own token is forgotten": lambda alphas: right_tokens(alphas) - 1,
        "positions are added as if each were always reached": lambda alphas: 1 + sum(alphas),
        "only whole acceptance counts": lambda alphas: 1 + len(alphas) * product(alphas),
        "the mean stands for all positions": lambda alphas: right_tokens(
            [sum(alphas) / max(1, len(alphas))] * len(alphas))},
    "predicted_speedup": {
        "the pass is one row short": lambda alphas, cost, verify: right_tokens(alphas) / (
            len(alphas) * cost + verify(len(alphas))),
        "drafting is free": lambda alphas, cost, verify: right_tokens(alphas) / verify(len(alphas) + 1),
        "one draft pass for all": lambda alphas, cost, verify: right_tokens(alphas) / (cost + verify(len(alphas) + 1)),
        "the textbook's v": lambda alphas, cost, verify: right_tokens(alphas) / (len(alphas) * cost + 1),
        "a pass for each token": lambda alphas, cost, verify: right_tokens(alphas) / (
            len(alphas) * cost + (len(alphas) + 1) * verify(1))},
    "choose_length": {
        "it always speculates": no_zero,
        "the longest is left out": not_the_longest,
        "the most tokens, whatever they cost": lambda alpha, cost, verify, longest: longest},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


@pytest.mark.parametrize("name, mistake", [(name, mistake) for name, all_of in MISTAKES.items() for mistake in all_of])
def test_a_mistake_is_told_and_drawn(name, mistake):
    rejected(getattr(check, name)(MISTAKES[name][mistake]), picture=True)
