"""Lesson 02: the solutions pass, the untouched stubs are "not attempted yet", the mistakes that students make fail."""

import pytest
import torch
from lesson_tools import answers, rejected, solved, stubs, untouched

from minispec.lessons import check

NAMES = ("rows_computed", "attend", "cached_greedy")
solution = solved("02")


@pytest.mark.parametrize("name", NAMES)
def test_solutions_pass_and_stubs_are_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("02") == answers(solution, NAMES)


def test_a_loop_that_feeds_the_prompt_without_its_last_token_first_is_right_too():
    def prefill_first(model, prompt, count):
        cache, tokens = model.new_cache(), list(prompt)
        if len(prompt) > 1:
            model(torch.tensor([prompt[:-1]]), cache)
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens[-1:]]), cache)[0, -1].argmax()))
        return tokens[len(prompt):]

    assert check.cached_greedy(prefill_first).passed


def attention(change):
    """The right attention, but for one change: a dict with any of length, scale, dim."""
    def answer(query, keys, values, length):
        used = change.get("length", lambda n, slots: n)(length, keys.shape[1])
        keys, values = keys[:, :used], values[:, :used]
        scores = keys @ query[:, :, None] * change.get("scale", lambda size: size ** -0.5)(query.shape[-1])
        weights = scores.softmax(change.get("dim", 1)) if "weights" not in change else scores
        return (weights * values).sum(1)
    return answer


def loop(feed_of, start=lambda model: model.new_cache()):
    """A greedy loop that feeds feed_of(all tokens so far, tokens generated) in each pass."""
    def answer(model, prompt, count):
        cache, tokens = start(model), list(prompt)
        for k in range(count):
            feed = feed_of(tokens, k)
            tokens.append(int(model(torch.tensor([feed]), cache)[0, -1].argmax()))
        return tokens[len(prompt):]
    return answer


def positions_from_zero(model, prompt, count):
    cache, feed, tokens = model.new_cache(), list(prompt), []
    for _ in range(count):
        logits = model(torch.tensor([feed]), cache, positions=torch.arange(len(feed)))
        tokens.append(int(logits[0, -1].argmax()))
        feed = tokens[-1:]
    return tokens


WRONG = {
    "rows_computed": {
        "as many as tokens": lambda prompt, new, cached: prompt + new,
        "one row a pass": lambda prompt, new, cached: new,
        "the last token is fed as well": lambda prompt, new, cached: prompt + new if cached else sum(
            prompt + k for k in range(new)),
        "without a cache: all of the final text every time": lambda prompt, new, cached: prompt - 1 + new if cached
            else (prompt + new) * new,
        "the cache the wrong way round": lambda prompt, new, cached: sum(prompt + k for k in range(new)) if cached
            else prompt - 1 + new,
    },
    "attend": {
        "stale slots are attended": attention({"length": lambda n, slots: slots}),
        "the newest slot is left out": attention({"length": lambda n, slots: max(1, n - 1)}),
        "one slot too many": attention({"length": lambda n, slots: n + 1}),
        "no square root": attention({"scale": lambda size: 1.0}),
        "divided by D": attention({"scale": lambda size: 1 / size}),
        "softmax over the wrong dimension": attention({"dim": 0}),
        "no softmax": attention({"weights": None}),
    },
    "cached_greedy": {
        "everything is fed again into the cache": loop(lambda tokens, k: tokens),
        "no cache at all": loop(lambda tokens, k: tokens, start=lambda model: None),
        "the prompt is never read": loop(lambda tokens, k: tokens[-1:]),
        "the last two tokens are fed each time": loop(lambda tokens, k: tokens[-2:] if k else tokens),
        "positions start at 0 in every pass": positions_from_zero,
    },
}


@pytest.mark.parametrize("name, mistake", [(name, mistake) for name, several in WRONG.items() for mistake in several])
def test_each_mistake_fails_with_a_message_and_a_picture(name, mistake):
    rejected(getattr(check, name)(WRONG[name][mistake]), picture=True)


def test_a_waste_of_work_is_told_from_a_wrong_text():
    assert "the tokens are right" in check.cached_greedy(WRONG["cached_greedy"]["no cache at all"]).message
    assert "context of 16" in check.cached_greedy(loop(lambda tokens, k: tokens * 3)).message


def test_answers_of_another_shape_are_wrong_not_errors_of_the_check():
    assert "return a tensor (H, D)" in check.attend(lambda query, keys, values, length: values).message
    assert "return a tensor (H, D)" in check.attend(lambda query, keys, values, length: None).message
    assert "None" in check.cached_greedy(lambda model, prompt, count: None).message
