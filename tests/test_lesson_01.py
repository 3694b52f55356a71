"""Lesson 01: the solutions pass, the untouched stubs are "not attempted yet", the mistakes that students make fail."""

import pytest
import torch
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec.bench.roofline import Machine, measure_machine
from minispec.lessons import check

NAMES = ("intensity", "pass_seconds", "flat_until")
solution = solved("01")


@pytest.mark.parametrize("name", NAMES)
def test_solutions_pass_and_stubs_are_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("01") == answers(solution, NAMES)


WRONG = {
    "intensity": {
        "the addition is forgotten": lambda k, size: k / size,
        "bytes are forgotten": lambda k, size: 2 * k,
        "upside down": lambda k, size: size / (2 * k),
        "weights are read for every token": lambda k, size: 2 / size,
    },
    "pass_seconds": {
        "sum for maximum": lambda w, size, k, bandwidth, peak: w * size / bandwidth + 2 * w * k / peak,
        "minimum": lambda w, size, k, bandwidth, peak: min(w * size / bandwidth, 2 * w * k / peak),
        "weights are read for every token": lambda w, size, k, bandwidth, peak: max(w * size * k / bandwidth,
                                                                                    2 * w * k / peak),
        "one operation a weight": lambda w, size, k, bandwidth, peak: max(w * size / bandwidth, w * k / peak),
        "memory alone": lambda w, size, k, bandwidth, peak: w * size / bandwidth,
    },
    "flat_until": {
        "the largest k below the line, though the curve was above it before":
            lambda curve, slack: max(k for k in curve if curve[k] <= 1 + slack),
        "on the line is too much": lambda curve, slack: _until(curve, lambda v: v < 1 + slack),
        "slack taken for the limit": lambda curve, slack: _until(curve, lambda v: v <= slack),
        "the first k above the line": lambda curve, slack: next((k for k in sorted(curve) if curve[k] > 1 + slack),
                                                                max(curve)),
        "the value for the place": lambda curve, slack: max(v for v in curve.values() if v <= 1 + slack),
    },
}


def _until(curve, fits):
    flat = 1
    for k in sorted(curve):
        if not fits(curve[k]):
            break
        flat = k
    return flat


@pytest.mark.parametrize("name, mistake", [(name, mistake) for name, several in WRONG.items() for mistake in several])
def test_each_mistake_fails_with_a_message_and_a_picture(name, mistake):
    rejected(getattr(check, name)(WRONG[name][mistake]), picture=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", [None, "4", float("nan"), -3.0])
def test_answers_that_are_no_use_are_wrong_not_errors_of_the_check(name, answer):
    feedback = getattr(check, name)(lambda *arguments: answer)
    assert feedback.status == "wrong" and "raised" not in feedback.message


# --- the roofline itself ---------------------------------------------------------------------------------------------

def test_the_roofline_by_hand():
    """100 GB/s, 1 TFLOP/s, 4 bytes a weight: 10 operations a byte, 2 a weight and token: the ridge is at 20 tokens."""
    machine = Machine(bandwidth=1e11, peak=1e12)
    assert machine.ridge(4) == 20 and machine.ridge(2) == 10
    assert machine.seconds(1e9, 4, 1) == machine.seconds(1e9, 4, 20) == 0.04
    assert machine.seconds(1e9, 4, 40) == 0.08
    assert machine.curve(4, [1, 10, 20, 40]) == {1: 1, 10: 1, 20: 1, 40: 2}


def test_a_machine_is_measured():
    found = measure_machine(read_bytes=2**20, repeats=1)
    assert found.bandwidth > 0 and found.peak > 0
    half = measure_machine(dtype=torch.bfloat16, read_bytes=2**20, repeats=1)
    assert half.bandwidth > 0 and half.peak > 0
