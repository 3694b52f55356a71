"""Lesson 10: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import numpy as np
import pytest
import torch
from lesson_tools import rejected, solved, untouched

from minispec.lessons import check

NAMES = ("may_attend", "drop", "second_kept")
solution = solved("10")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


@pytest.mark.parametrize("wrong, word", [
    (lambda row, other: sum(other) <= sum(row), "must not"),                              # by position alone
    (lambda row, other: solution.may_attend(row, other) or other == (row[0] + 1, 0), "after the row's anchor"),
    (lambda row, other: other[1] <= row[1] and (other[0] == row[0] or other[1] == 0), "after the row's anchor"),
    (lambda row, other: other[0] <= row[0] and other[1] <= row[1], "another block"),      # masks of earlier blocks
    (lambda row, other: other[0] == row[0] or other[1] == 0 and other[0] < row[0], "mask behind the row"),
    (lambda row, other: solution.may_attend(row, other) and row != other, "must attend to"),      # not itself
    (lambda row, other: other[1] == 0 and other[0] <= row[0] or row == other, "its own block"),   # no elder masks
    (lambda row, other: solution.may_attend(row, other) and other != (row[0], 0), "text up"),      # not its anchor
])
def test_may_attend(wrong, word):
    feedback = check.may_attend(wrong)
    rejected(feedback, picture=True)
    assert word in feedback.message.replace("the row's own block", "its own block")


def with_holes(length, counts, rng):
    return [np.arange(length), *(np.sort(rng.choice(length - k, min(count, length - k), replace=False))
                                 for k, count in enumerate(counts, start=1))]


def past_the_end(length, counts, rng):
    anchors = [np.arange(length)]
    for count in counts:
        anchors.append(rng.choice(anchors[-1], size=min(count, len(anchors[-1])), replace=False))
    return anchors


def the_first_ones(length, counts, rng):
    return [range(length), *(range(min(count, length - k)) for k, count in enumerate(counts, start=1))]


def with_copies(length, counts, rng):
    anchors = [np.arange(length)]
    for k, count in enumerate(counts, start=1):
        inside = [a for a in anchors[-1] if a + k < length]
        anchors.append(rng.choice(inside, size=min(count, len(inside))))
    return anchors


@pytest.mark.parametrize("wrong, picture, word", [
    (with_holes, True, "hole"), (past_the_end, False, "in the text"), (the_first_ones, False, "same blocks"),
    (with_copies, True, "different ones"),
    (lambda length, counts, rng: solution.drop(length, counts, rng)[1:], False, "the first with all anchors"),
    (lambda length, counts, rng: solution.drop(length, [c + 1 for c in counts], rng), True, "different ones"),
    (lambda length, counts, rng: solution.drop(length, [c - 1 for c in counts], rng), True, "different ones"),
])
def test_drop(wrong, picture, word):
    feedback = check.drop(wrong)
    rejected(feedback, picture)
    assert word in feedback.message


@pytest.mark.parametrize("wrong", [
    lambda joint: float(torch.minimum(joint.sum(1), joint.sum(0)).sum()),                 # first against second
    lambda joint: float((joint.sum(0) ** 2).sum()),                                       # equal draws
    lambda joint: float(torch.minimum(joint, joint.sum(0)).sum()),                        # p(x) forgotten
    lambda joint: float(torch.minimum(joint / joint.sum(1, keepdim=True).clamp_min(1e-30), joint.sum(0)).sum(1).mean()),
    lambda joint: 1.0,                                                                    # as a chain
    lambda joint: float("nan"),
])
def test_second_kept(wrong):
    rejected(check.second_kept(wrong), picture=True)
