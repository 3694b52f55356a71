"""Lesson 11: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import pytest
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec import Sampling, speculate
from minispec.analysis import law_error, output_law, sequential_law
from minispec.drafters import LMDrafter
from minispec.lessons import check
from minispec.lessons.check import lesson_11

NAMES = ("layer_rows", "positions_read", "lossless")
solution = solved("11")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_answer():
    assert stubs("11") == answers(solution, NAMES)


@pytest.mark.parametrize("wrong, picture", [
    (lambda layers, exit, length: (exit * length, layers * (length + 1)), True),                  # nothing kept
    (lambda layers, exit, length: (exit * length, (layers - exit) * (length + 1)), True),         # one row lost
    (lambda layers, exit, length: (exit * (length + 1), (layers - exit) * (length + 1)), True),   # all fed
    (lambda layers, exit, length: (layers * length, layers * (length + 1)), True),                # all layers draft
    (lambda layers, exit, length: layers * (length + 1), False),                                  # one sum
])
def test_layer_rows(wrong, picture):
    feedback = check.layer_rows(wrong)
    rejected(feedback, picture)
    assert "(8, 32)" in feedback.message or not picture


@pytest.mark.parametrize("wrong, picture", [
    (lambda position, held: held, True),                                  # the prompt's rows look ahead
    (lambda position, held: position, True),                              # guesses see each other's target keys
    (lambda position, held: min(position + 1, held), True),               # a row sees the target at its own position
    (lambda position, held: min(position, held - 1), True),
    (lambda position, held: min(position, held) / 1, False),
])
def test_positions_read(wrong, picture):
    rejected(check.positions_read(wrong), picture)


def by_its_own_verifier(designs, target, prompt, count):
    return set(designs)                                                   # each is exact for the law it verifies with


def roughly(designs, target, prompt, count):
    own = sequential_law(target, prompt, count)
    return {name for name, run in designs.items() if law_error(output_law(run), own) < 0.05}


def none(designs, target, prompt, count):
    return set()


@pytest.mark.parametrize("wrong, picture", [
    (by_its_own_verifier, True), (roughly, True), (none, True), (lambda *given: "drafted by p~", False),
    (lambda *given: {"mine"}, False), (lambda *given: None, False)])
def test_lossless(wrong, picture):
    rejected(check.lossless(wrong), picture)


def test_a_tolerance_is_caught_by_the_coarse_design():
    assert "'shared layers, coarse' is not lossless" in check.lossless(roughly).message
    assert "'verified by p~' is not lossless" in check.lossless(by_its_own_verifier).message
    assert "'drafted by p~' is lossless" in check.lossless(none).message


def test_the_verifier_of_the_lossy_design_is_exact_for_its_own_law():
    wrong = lesson_11.small_projected()
    loop = output_law(lambda dice: speculate(wrong, LMDrafter(wrong.draft, 2), (1, 0), max_new_tokens=3, dice=dice,
                                             sampling=Sampling()))
    assert law_error(loop, sequential_law(wrong, (1, 0), 3)) <= 1e-12
    assert law_error(loop, sequential_law(lesson_11.small_target(), (1, 0), 3)) > 0.01
