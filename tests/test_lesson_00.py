"""Lesson 00: the solutions pass, the untouched stubs are "not attempted yet", the mistakes that students make fail."""

import pytest
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec.lessons import check

NAMES = ("roles", "tokens_per_pass")
solution = solved("00")


@pytest.mark.parametrize("name", NAMES)
def test_solutions_pass_and_stubs_are_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("00") == answers(solution, NAMES)


def own(r):
    return "bonus" if r.bonus else "correction"


WRONG_ROLES = {
    "a stop is forgotten": lambda r: ["accepted"] * len(r.path) + ["target" if not r.tokens else own(r)],
    "the own token is always a correction": lambda r: (["accepted"] * len(r.path) + ["correction"])[:len(r.emitted)],
    "nothing proposed counts as a bonus": lambda r: (["accepted"] * len(r.path) + [own(r)])[:len(r.emitted)],
    "all that was proposed is accepted": lambda r: (["accepted"] * len(r.tokens) + [own(r)])[:len(r.emitted)],
    "the own token is left out": lambda r: ["accepted"] * min(len(r.path), len(r.emitted)),
    "names of its own": lambda r: ["draft"] * len(r.emitted),
}
WRONG_RATES = {
    "the target's own token is not counted": lambda rounds: sum(r.accepted for r in rounds) / len(rounds),
    "what a stop cut off is counted": lambda rounds: sum(len(r.path) + 1 for r in rounds) / len(rounds),
    "per proposed token": lambda rounds: sum(len(r.emitted) for r in rounds) / max(1, sum(len(r.tokens) for r in rounds)),
    "only rounds with a proposal": lambda rounds: (lambda some: sum(len(r.emitted) for r in some) / max(1, len(some)))(
        [r for r in rounds if r.tokens]),
    "the last round only": lambda rounds: len(rounds[-1].emitted),
}


WRONG = {"roles": WRONG_ROLES, "tokens_per_pass": WRONG_RATES}


@pytest.mark.parametrize("name, mistake", [(name, mistake) for name, several in WRONG.items() for mistake in several])
def test_each_mistake_fails_with_a_message_and_a_picture(name, mistake):
    rejected(getattr(check, name)(WRONG[name][mistake]), picture=True)


def test_answers_of_another_type_are_wrong_not_errors_of_the_check():
    assert "return a list" in check.roles(lambda r: "accepted").message
    assert "None" in check.tokens_per_pass(lambda rounds: None).message
    assert "ZeroDivisionError" in check.tokens_per_pass(lambda rounds: 1 / 0).message
