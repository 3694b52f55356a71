"""Lesson 05: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import pytest
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec.lessons import check
from minispec.lessons.check.lesson_05 import sound_traces

NAMES = ("lengths_after", "tokens_to_feed", "first_broken")
solution = solved("05")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("05") == answers(solution, NAMES)


@pytest.mark.parametrize("wrong, picture", [
    (lambda n, length, accepted: (n + accepted, n + accepted), True),                    # the draft fed everything
    (lambda n, length, accepted: (n + accepted + 1, n + accepted), True),                # counts the correction
    (lambda n, length, accepted: (n - 1, n - 1), True),                                  # all the way back
    (lambda n, length, accepted: (n + length, n + length - 1), True),                    # never rolls back
    (lambda n, length, accepted: (n + accepted, n + accepted - 1), True),                # the draft one too far, always
    (lambda n, length, accepted: n + accepted, False),
])
def test_lengths_after(wrong, picture):
    rejected(check.lengths_after(wrong), picture)


@pytest.mark.parametrize("wrong, picture", [
    (lambda ids, length: ids[-1:], True),                    # the classic: only the last token is new
    (lambda ids, length: ids, True),                         # reads everything again, at the wrong place
    (lambda ids, length: ids[length - 1:], True),            # one token twice
    (lambda ids, length: ids[length + 1:], False),           # nothing left to feed: the loop itself stops
])
def test_tokens_to_feed(wrong, picture):
    rejected(check.tokens_to_feed(wrong), picture)


def expects_both_equal(trace):
    return next((k for k, r in enumerate(trace.rounds)
                 if not r.target_cache[2] == r.draft_cache[2] == r.context + len(r.emitted) - 1), None)


def looks_at_the_target_only(trace):
    return next((k for k, r in enumerate(trace.rounds) if r.target_cache[2] != r.context + len(r.emitted) - 1), None)


def always_allows_one_behind(trace):
    return next((k for k, r in enumerate(trace.rounds) if r.target_cache[2] != r.context + len(r.emitted) - 1
                 or not 0 <= r.target_cache[2] - r.draft_cache[2] <= 1), None)


def counts_from_one(trace):
    found = solution.first_broken(trace)
    return found if found is None else found + 1


@pytest.mark.parametrize("wrong, picture", [(expects_both_equal, True), (looks_at_the_target_only, True),
                                            (always_allows_one_behind, True), (counts_from_one, True),
                                            (lambda trace: None, True)])
def test_first_broken(wrong, picture):
    rejected(check.first_broken(wrong), picture)


def test_the_sound_traces_hold_both_ends_of_a_round():
    """Otherwise the check could not tell the right answer from one that forgets one of them."""
    assert len(sound_traces()) == 6
    assert {r.bonus for trace in sound_traces() for r in trace.rounds} == {True, False}
