"""Lesson 03: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import pytest
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec.lessons import check

NAMES = ("count_matches", "greedy_round", "greedy_decode")
solution = solved("03")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("03") == answers(solution, NAMES)


@pytest.mark.parametrize("wrong", [
    lambda drafted, wanted: sum(x == y for x, y in zip(drafted, wanted)),                    # counts beyond a gap
    lambda drafted, wanted: len(drafted) if drafted == wanted[:-1] else 0,                   # all or nothing
    lambda drafted, wanted: solution.count_matches(drafted, wanted[1:]),                     # one row too late
    lambda drafted, wanted: solution.count_matches(drafted, wanted) + 1,                     # counts the correction too
])
def test_count_matches(wrong):
    rejected(check.count_matches(wrong), picture=True)


def no_own_token(target, draft, ids, length):
    return solution.greedy_round(target, draft, ids, length)[:-1]


def keeps_the_wrong_guess(target, draft, ids, length):
    drafted = draft.text(ids, length)
    kept = len(solution.greedy_round(target, draft, ids, length))
    return drafted[:kept]


def one_row_late(target, draft, ids, length):
    drafted = []
    for _ in range(length):
        drafted.append(draft(ids + drafted)[-1])
    wanted = target(ids + drafted + [0])[len(ids):]
    return wanted[:solution.count_matches(drafted, wanted) + 1]


def a_pass_for_each_token(target, draft, ids, length):
    out = []
    for guess in [draft(ids + draft.text(ids, k))[-1] for k in range(length)] + [None]:
        out.append(target(ids + out)[-1])
        if out[-1] != guess:
            return out


def writes_into_ids(target, draft, ids, length):
    out = solution.greedy_round(target, draft, list(ids), length)
    ids += out
    return out


def drafts_one_pass_too_many(target, draft, ids, length):
    draft(ids)
    return solution.greedy_round(target, draft, ids, length)


@pytest.mark.parametrize("wrong, picture", [(no_own_token, True), (keeps_the_wrong_guess, True), (one_row_late, True),
                                            (a_pass_for_each_token, False), (writes_into_ids, False),
                                            (drafts_one_pass_too_many, False), (lambda *given: None, False)])
def test_greedy_round(wrong, picture):
    rejected(check.greedy_round(wrong), picture)


def too_many(target, draft, ids, length, new_tokens):
    out = []
    while len(out) < new_tokens:
        out += solution.greedy_round(target, draft, ids + out, length)
    return out                                               # the last round is not cut


def forgets_what_it_wrote(target, draft, ids, length, new_tokens):
    out = []
    while len(out) < new_tokens:
        out += solution.greedy_round(target, draft, ids, length)
    return out[:new_tokens]


def prompt_and_all(target, draft, ids, length, new_tokens):
    return ids + solution.greedy_decode(target, draft, ids, length, new_tokens)


def a_token_a_round(target, draft, ids, length, new_tokens):
    out = []
    while len(out) < new_tokens:
        out += solution.greedy_round(target, draft, ids + out, length)[:1]
    return out


@pytest.mark.parametrize("wrong, picture", [(too_many, True), (forgets_what_it_wrote, True), (prompt_and_all, True),
                                            (a_token_a_round, False)])
def test_greedy_decode(wrong, picture):
    rejected(check.greedy_decode(wrong), picture)
