"""Suffix matching: the automaton against a search by hand, what is proposed, and exactness with rules.Match."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import ScriptedLM, tiny_gpt

from minispec import Sampling, generate, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Dice, Speculation, Verdict, rules
from minispec.drafters import SuffixDrafter
from minispec.drafters.suffix import BORDER, Match, SuffixAutomaton, continuation

texts = st.lists(st.integers(0, 2), max_size=24)
NO_DICE = Dice()                                                 # nothing is thrown: these would raise


def longest_earlier(text, suffix_of):
    """The longest suffix of `suffix_of` that occurs in `text`, and where it occurs last: every place is tried."""
    for length in range(len(suffix_of), 0, -1):
        wanted = suffix_of[-length:]
        ends = [end for end in range(length, len(text) + 1) if text[end - length:end] == wanted]
        if ends:
            return Match(length, ends[-1])
    return Match(0, 0)


# --- the automaton ---------------------------------------------------------------------------------------------------

@settings(max_examples=60, deadline=None)
@given(texts)
def test_reading_finds_the_longest_and_latest_earlier_match(text):
    automaton = SuffixAutomaton()
    for size, token in enumerate(text, 1):
        match, wanted = automaton.read(token), longest_earlier(text[:size - 1], text[:size])
        assert match.length == wanted.length
        assert match.end == wanted.end or not match.length
    assert len(automaton.after) <= max(2, 2 * len(text))


@settings(max_examples=60, deadline=None)
@given(texts, texts)
def test_following_another_text_finds_its_longest_and_latest_match(store, text):
    automaton, place = SuffixAutomaton(), (0, 0)
    for token in store:
        automaton.read(token)
    for size, token in enumerate(text, 1):
        place = automaton.follow(*place, token)
        wanted = longest_earlier(store, text[:size])
        assert Match(place[1], automaton.end[place[0]]) == wanted or place[1] == wanted.length == 0


def test_a_long_text_is_read_in_about_linear_time():
    """Counted, not timed: every edge is made once, or moved to a split state."""
    automaton, text = SuffixAutomaton(), [(k * k // 7) % 5 for k in range(4000)]
    for token in text:
        automaton.read(token)
    assert len(automaton.after) <= 2 * len(text) and sum(map(len, automaton.after)) <= 3 * len(text)


# --- what is proposed ------------------------------------------------------------------------------------------------

def proposal(drafter, prompt, room=99):
    drafter.start(prompt, Sampling())
    return list(drafter.propose(NO_DICE, room).tokens)


def test_the_longest_match_decides_not_the_latest():
    prompt = [1, 2, 3, 7, 7, 9, 3, 8, 8, 1, 2, 3]                # "1 2 3" went on with 7; the later "3" with 8
    assert proposal(SuffixDrafter(2), prompt) == [7, 7]


def test_the_draft_grows_with_the_match():
    text = list(range(10, 30))
    for matched in (1, 2, 3, 5):
        prompt = [*text, 99, *text[:matched]]
        assert proposal(SuffixDrafter(16, growth=2.0), prompt) == text[matched:3 * matched]
        assert proposal(SuffixDrafter(16, growth=0.5), prompt) == text[matched:matched + -(-matched // 2)]
        assert proposal(SuffixDrafter(3, growth=4.0), prompt) == text[matched:matched + 3]
        assert proposal(SuffixDrafter(16, growth=4.0), prompt, room=1) == text[matched:matched + 1]


def test_too_short_a_match_proposes_nothing():
    prompt = [5, 6, 7, 8, 5, 6]
    assert proposal(SuffixDrafter(4, shortest=2), prompt) == [7, 8, 5, 6]
    assert proposal(SuffixDrafter(4, shortest=3), prompt) == []
    assert proposal(SuffixDrafter(4), [5, 6, 7]) == []


def test_a_copy_runs_on_into_itself():
    assert continuation([0, 1, 2, 0, 1], 2, 8) == [2, 0, 1, 2, 0, 1, 2, 0]
    assert proposal(SuffixDrafter(6, growth=3), [4, 4, 4]) == [4] * 6


def test_earlier_texts_are_looked_in_as_well():
    drafter = SuffixDrafter(4, texts=[[1, 2, 3, 4, 5], [1, 2, 9]])
    assert proposal(drafter, [7, 1, 2, 3]) == [4, 5], "not past the end of a text"
    assert proposal(drafter, [1, 2]) == [9], "the latest of two equally long matches"
    assert proposal(drafter, [2, 3, 8, 2, 3]) == [8, 2, 3, 8], "of two equally long ones the generation's own"
    assert proposal(drafter, [3, 8, 2, 3]) == [4, 5], "the longer match wins"


@settings(max_examples=40, deadline=None)
@given(st.lists(texts, max_size=3), texts.filter(len))
def test_no_border_between_texts_is_ever_proposed(several, prompt):
    assert BORDER not in proposal(SuffixDrafter(6, texts=several), prompt)


def test_a_repeated_text_is_copied_in_long_strides():
    """A text of 20 tokens, and the same again: 3 target passes for its 19 tokens. The last has room for 6."""
    text = list(range(20))
    target = ScriptedLM([*text, *text, 63], context=64)
    run = speculate(target, SuffixDrafter(16), [*text, 0], max_new_tokens=19, rule=rules.Match(),
                    sampling=Sampling(0.0))
    assert run.tokens == text[1:]
    assert [r.proposed for r in run.trace.rounds] == [2, 8, 6]
    assert all(r.accepted == r.proposed for r in run.trace.rounds)


def test_two_generations_do_not_influence_each_other():
    drafter, target = SuffixDrafter(4), tiny_gpt(3, 1)
    run = lambda: speculate(target, drafter, [0, 1, 0, 1], max_new_tokens=8, rule=rules.Match())
    first, second = run(), run()
    assert first.tokens == second.tokens
    assert [r.tokens for r in first.trace.rounds] == [r.tokens for r in second.trace.rounds]


# --- exactness -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_k=2), Sampling(0.0)], ids=str)
@pytest.mark.parametrize("several", [(), ([0, 2, 1, 1], [1, 0, 0])], ids=["own text", "with a store"])
def test_the_loop_has_the_targets_law(sampling, several):
    target, prompt = Memoised(tiny_gpt(3, 12)), [0, 1, 2, 0, 1]
    drafter = SuffixDrafter(2, texts=several)
    for stop_tokens in ([], [2]):
        options = dict(sampling=sampling, stop_tokens=stop_tokens)
        law = output_law_by_rounds(lambda: Speculation(target, drafter, prompt, max_new_tokens=4, rule=rules.Match(),
                                                       **options))
        assert law_error(law, sequential_law(target.model, prompt, 4, **options)) < 1e-12
        assert stop_tokens or set(map(len, law)) == {4}, "two rounds or more"
    assert len(proposal(drafter, prompt)) == 2


def test_greedy_output_is_plain_output():
    target = tiny_gpt(5, 2, context=60)
    options = dict(max_new_tokens=40, sampling=Sampling(0.0))
    run = speculate(target, SuffixDrafter(8), [0, 1, 2], rule=rules.Match(), **options)
    assert run.tokens == generate(target, [0, 1, 2], **options).tokens
    assert sum(r.accepted for r in run.trace.rounds) > 0


def test_rejection_sampling_refuses_its_trees():
    with pytest.raises(ValueError, match="use rules.Match"):
        speculate(tiny_gpt(3), SuffixDrafter(2), [0, 0], rule=rules.Token())


def test_commit_keeps_what_was_accepted():
    drafter = SuffixDrafter(4)
    drafter.start([1, 2, 3, 1, 2], Sampling())
    assert list(drafter.propose(NO_DICE, 9).tokens) == [3, 1, 2, 3]
    drafter.commit(Verdict([0, 1], 9, bonus=False))
    assert drafter.ids == [1, 2, 3, 1, 2, 3, 1, 9]


@pytest.mark.parametrize("options, message", [
    (dict(length=0), "draft length must be a whole number >= 1, got 0"), (dict(length=2.5), "got 2.5"),
    (dict(growth=0), "growth must be a number > 0"), (dict(growth=float("nan")), "growth must be a number > 0"),
    (dict(shortest=0), "shortest must be a whole number >= 1, got 0")])
def test_bad_input_says_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        SuffixDrafter(**options)
