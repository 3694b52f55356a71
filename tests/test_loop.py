"""The loop's bookkeeping: where it stops, what caches hold after every round, and that calls leave nothing behind."""

import random

import numpy as np
import pytest
import torch
from models import FixedTree, ScriptedLM, TableLM, random_table, tiny_gpt

from minispec import Sampling, SeededDice, generate, speculate
from minispec.analysis import metrics
from minispec.decoding import Speculation, rules
from minispec.drafters import LMDrafter, NgramDrafter, TableDrafter

PROMPT, GAMMA = [1, 2, 3], 4
TEXT = list(range(1, 61))                              # no token occurs twice, so a stop token falls at one place only
GREEDY = Sampling(0.0)


def scripted(wrong: tuple[int, ...] = (), context: int = 64) -> tuple[ScriptedLM, ScriptedLM]:
    """A target that recites TEXT, and a draft that does so too but for the places in `wrong`."""
    draft_text = [0 if place in wrong else token for place, token in enumerate(TEXT)]
    return ScriptedLM(TEXT, context=context), ScriptedLM(draft_text, context=context)


def recite(wrong=(), length=GAMMA, **options):
    target, draft = scripted(wrong)
    return speculate(target, LMDrafter(draft, length), PROMPT, **options)


# --- where it stops ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong", [(), (5,), tuple(range(0, 60, 3))], ids=["perfect draft", "one error", "many errors"])
@pytest.mark.parametrize("place", range(3, 3 + 2 * (GAMMA + 1)))
def test_a_stop_token_ends_the_output_wherever_in_a_round_it_falls(place, wrong):
    """Every index of a block, the bonus token and, with a draft that errs, the correction."""                # C1 C2
    generation = recite(wrong, stop_tokens=[TEXT[place]])
    assert generation.tokens == TEXT[3:place + 1]
    assert generation.stop_reason == "stop"
    assert [token for r in generation.trace.rounds for token in r.emitted] == generation.tokens               # C14


def test_the_first_of_several_stop_tokens_counts():
    assert recite(stop_tokens=[TEXT[9], TEXT[5], TEXT[7]]).tokens == TEXT[3:6]


def test_without_stop_tokens_nothing_stops_early():                                    # C3
    for nothing in (None, (), []):
        assert recite(stop_tokens=nothing, max_new_tokens=20).tokens == TEXT[3:23]
        assert generate(scripted()[0], PROMPT, stop_tokens=nothing, max_new_tokens=20).tokens == TEXT[3:23]


@pytest.mark.parametrize("wrong", [(), (4,)], ids=["perfect draft", "one error"])
@pytest.mark.parametrize("wanted", range(1, GAMMA + 3))
def test_the_budget_is_met_exactly(wanted, wrong):                                     # C4 C5
    generation = recite(wrong, max_new_tokens=wanted)
    assert generation.tokens == TEXT[3:3 + wanted]
    assert generation.stop_reason == "length"
    assert metrics(generation.trace).tokens == wanted                                  # C16


def test_a_budget_of_one_proposes_nothing_and_has_no_acceptance_rate():                # C6
    target, draft = scripted()
    generation = speculate(target, LMDrafter(draft, GAMMA), [1], max_new_tokens=1)
    assert generation.tokens == [2]
    assert metrics(generation.trace).acceptance_rate is None
    assert not draft.calls


def test_a_stop_inside_the_budget_is_reported_as_a_stop():                             # C8
    generation = recite(length=6, max_new_tokens=5, stop_tokens=[TEXT[5]])
    assert (generation.tokens, generation.stop_reason) == (TEXT[3:6], "stop")


@pytest.mark.parametrize("decode", [generate, lambda target, prompt, **options: recite(**options)],
                         ids=["plain", "speculative"])
def test_a_stop_that_is_the_last_token_of_the_budget_is_a_stop(decode):                # C8
    generation = decode(scripted()[0], PROMPT, max_new_tokens=3, stop_tokens=[TEXT[5]])
    assert (generation.tokens, generation.stop_reason) == (TEXT[3:6], "stop")


@pytest.mark.parametrize("options", [dict(stop_tokens=[TEXT[4]]), dict(max_new_tokens=2)], ids=["stop", "length"])
def test_there_is_no_round_after_the_end(options):
    """Stepping by hand: one round too many would emit past the stop, the budget or the context."""
    target, draft = scripted()
    run, dice = Speculation(target, LMDrafter(draft, GAMMA), PROMPT, **options), SeededDice(0)
    while not run.stop_reason:
        run.round(dice)
    with pytest.raises(ValueError, match=f"the generation has ended [(]{run.stop_reason}[)]: start another"):
        run.round(dice)
    assert run.ids == TEXT[:5]


def test_a_stop_token_in_the_prompt_stops_nothing():
    assert recite(stop_tokens=[PROMPT[-1]], max_new_tokens=4).tokens == TEXT[3:7]


def test_no_model_is_called_after_the_stop():                                          # C15
    target, draft = scripted()
    seen = []
    speculate(target, LMDrafter(draft, GAMMA), PROMPT, stop_tokens=[TEXT[3 + GAMMA]],  # the bonus of the first round
              on_round=lambda r: seen.append((len(target.calls), len(draft.calls))))
    assert seen == [(2, 1 + GAMMA)] == [(len(target.calls), len(draft.calls))]         # one prefill each, one round


def test_rounds_are_streamed_as_they_happen_and_add_up_to_the_output():                # C14
    chunks = []
    generation = recite((5, 9), max_new_tokens=17, on_round=lambda r: chunks.append(r.emitted))
    assert sum(chunks, []) == generation.tokens
    assert chunks == [r.emitted for r in generation.trace.rounds]
    assert all(1 <= len(chunk) <= GAMMA + 1 for chunk in chunks)


# --- what is fed, and where -------------------------------------------------------------------------------------------

def test_each_round_feeds_the_last_token_and_the_proposal_and_nothing_twice():         # D5 D17 L12
    """Draft errors at places 5 and 12: the calls, typed by hand (gamma 3, prompt of three tokens)."""
    target, draft = scripted(wrong=(5, 12))
    speculate(target, LMDrafter(draft, 3), PROMPT, max_new_tokens=12)
    fed = [(call.tokens, call.positions) for call in target.calls]
    assert fed == [([1, 2], [0, 1]),                                                   # prefill: all but the last
                   ([3, 4, 5, 0], [2, 3, 4, 5]),                                       # 4 5 right, 0 wrong: 6 instead
                   ([6, 7, 8, 9], [5, 6, 7, 8]),                                       # all right, bonus 10
                   ([10, 11, 12, 0], [9, 10, 11, 12]),                                 # 11 12 right, 0 wrong: 13
                   ([13, 14], [12, 13])]                                               # room for one, and the bonus 15
    assert [(call.tokens, call.positions[0]) for call in draft.calls] == [
        ([1, 2], 0), ([3], 2), ([4], 3), ([5], 4),                                     # the last proposal is not fed
        ([6], 5), ([7], 6), ([8], 7),
        ([9, 10], 8), ([11], 10), ([12], 11),                                          # two: 9 was accepted but not fed
        ([13], 12)]


def test_positions_run_on_without_a_gap_over_a_thousand_rounds():                      # G7 D2
    target, draft = TableLM(random_table(3, 1), context=4000), TableLM(random_table(3, 2), context=4000)
    generation = speculate(target, LMDrafter(draft, 2), [0], max_new_tokens=2400, rule=rules.Match())
    assert len(generation.trace.rounds) >= 1000
    for model in (target, draft):
        for call in model.calls:
            assert call.positions == list(range(call.cache_length, call.cache_length + len(call.tokens)))
    assert [call.cache_length for call in target.calls] == [r.context - 1 for r in generation.trace.rounds]


def test_nodes_of_a_tree_are_fed_at_the_position_of_their_depth():                     # E1
    target = ScriptedLM(TEXT)
    tree = FixedTree((-1, -1, 0, 1, 1, 3), lambda ids, node: 63 - node)
    speculate(target, tree, PROMPT, max_new_tokens=9, rule=rules.Match())
    assert target.calls[1].positions == [2, 3, 3, 4, 4, 4, 5]


def test_acceptance_after_a_rejection_starts_anew():                                   # D4 D20
    """The draft errs once; before and after, every proposal is taken whole."""
    rounds = recite(wrong=(5,), max_new_tokens=28).trace.rounds
    assert [r.accepted for r in rounds[:5]] == [2, 4, 4, 4, 4]
    assert all(r.tokens for r in rounds)


# --- draft == target --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sampling", [Sampling(), GREEDY], ids=str)
@pytest.mark.parametrize("length", range(1, 7))
def test_a_draft_equal_to_the_target_is_accepted_whole_for_fifty_rounds(length, sampling):        # D1 D20
    """An error anywhere in the draft's cache shows here. Rounding could reject a token with a chance below 1e-11."""
    model = tiny_gpt(6, seed=length, context=400)
    generation = speculate(model, LMDrafter(model, length), [5], max_new_tokens=50 * (length + 1), sampling=sampling)
    summary = metrics(generation.trace)
    assert summary.rounds == 50
    assert summary.acceptance_rate == 1.0
    assert summary.tokens_per_pass == length + 1


# --- after every round ------------------------------------------------------------------------------------------------

def contents(cache) -> torch.Tensor:
    """All that a cache holds: (2, L, B, H, length, D)."""
    keys, values = ([rows[:, :, :cache.length] for rows in side] for side in (cache.keys, cache.values))
    return torch.stack([torch.stack(keys), torch.stack(values)])


def assert_equals_a_fresh_prefill(model, cache, ids):
    fresh = model.new_cache()
    if cache.length:
        model(torch.tensor([ids[:cache.length]]), fresh)
    torch.testing.assert_close(contents(cache), contents(fresh), rtol=0, atol=1e-10)


@torch.inference_mode()
def check_every_round(target, drafter, prompt, seed, draft=None, **options):
    """Run to the end; assert after each round all that must always hold. Returns the rounds."""
    run, dice, rounds = Speculation(target, drafter, prompt, **options), SeededDice(seed), []
    while not run.stop_reason:
        before, lag = len(run.ids), getattr(drafter, "lag", None)
        rounds.append(run.round(dice))
        assert run.ids[before:] == rounds[-1].emitted
        assert 1 <= len(rounds[-1].emitted) <= drafter.max_nodes + 1
        assert run.cache.length == len(run.ids) - 1
        assert rounds[-1].target_cache == (before - 1, before + len(rounds[-1].tokens), len(run.ids) - 1)      # D16
        assert_equals_a_fresh_prefill(target, run.cache, run.ids)
        if draft is not None:
            taken_whole = len(rounds[-1].emitted) == len(rounds[-1].tokens) + 1
            assert drafter.lag == len(run.ids) - 1 - drafter.cache.length
            assert drafter.lag == (int(taken_whole) if rounds[-1].tokens else lag + 1)
            assert_equals_a_fresh_prefill(draft, drafter.cache, run.ids)
    return rounds


@pytest.mark.parametrize("length", [1, 2, 5])
def test_caches_hold_the_committed_tokens_and_nothing_else(length):                    # D1 D2 D14
    rounds = []
    for seed in range(4):
        target, draft = tiny_gpt(5, seed, context=48), tiny_gpt(5, seed + 50, context=48)
        rounds += check_every_round(target, LMDrafter(draft, length), [0, 4, 2], seed, draft, max_new_tokens=30,
                                    sampling=Sampling(3.0))
    assert {len(r.path) == len(r.tokens) for r in rounds} == {True, False}             # both ends of a round were met


@pytest.mark.parametrize("stop", range(5))
def test_caches_hold_the_committed_tokens_where_a_stop_cut_the_round(stop):
    model = tiny_gpt(5, seed=9, context=48)
    check_every_round(model, LMDrafter(model, 4), [0, 4], 3, stop_tokens=[stop], max_new_tokens=40)


def test_caches_hold_the_committed_tokens_after_a_path_through_a_tree():
    tree = FixedTree((-1, -1, -1, 0, 0, 1, 2, 2, 6), lambda ids, node: (node + sum(ids)) % 3)
    rounds = check_every_round(tiny_gpt(3, 1, context=48), tree, [0, 1, 2], 0, rule=rules.Match(), max_new_tokens=40)
    assert any(r.path != list(range(len(r.path))) for r in rounds)                     # rows were gathered


def test_caches_hold_the_committed_tokens_with_prompt_lookup():
    target = tiny_gpt(3, 2, context=48)
    check_every_round(target, NgramDrafter(3), [0, 1, 2, 0, 1], 0, rule=rules.Match(), max_new_tokens=30)


def test_nothing_is_allocated_anew_during_a_generation():                              # D7 M5
    model = tiny_gpt(4, seed=1, context=48)
    run, dice = Speculation(model, LMDrafter(tiny_gpt(4, 2, context=48), 3), [0, 1], max_new_tokens=40), SeededDice(0)
    memory = lambda: [(rows.data_ptr(), rows.shape) for cache in (run.cache, run.drafter.cache)
                      for rows in (*cache.keys, *cache.values)]
    before = memory()
    while not run.stop_reason:
        run.round(dice)
        assert memory() == before


# --- the context ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("free", [1, 2, 3])
def test_a_prompt_close_to_the_limit_ends_exactly_at_the_context(free, length):        # G1 G3
    target, draft = scripted(context=20)
    prompt = TEXT[:20 - free]
    for generation in (speculate(target, LMDrafter(draft, length), prompt), generate(target, prompt)):
        assert generation.text_ids == TEXT[:20]
        assert generation.stop_reason == "context"


def test_a_budget_that_ends_with_the_context_is_a_length_stop():
    target, draft = scripted(context=20)
    assert speculate(target, LMDrafter(draft, 4), TEXT[:15], max_new_tokens=5).stop_reason == "length"


@pytest.mark.parametrize("prompt_length", [3, 15, 16, 17, 18, 30])
def test_past_the_context_of_a_shorter_draft_decoding_goes_on_plainly(prompt_length):  # G2 G5
    target, draft = ScriptedLM(TEXT), ScriptedLM(TEXT, context=16)
    generation = speculate(target, LMDrafter(draft, 4), TEXT[:prompt_length], max_new_tokens=30)
    assert generation.tokens == TEXT[prompt_length:prompt_length + 30]
    for r in generation.trace.rounds:
        assert len(r.tokens) == min(4, max(0, 17 - r.context), prompt_length + 30 - r.context - 1)


# --- greedy decoding --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(50))
def test_greedy_speculation_emits_the_greedy_text(seed):                               # A1 A2 A15 A23 D6 H4
    """Fifty random pairs, draft lengths and rules: token by token what plain decoding emits (float64)."""
    target, draft = tiny_gpt(5, seed), tiny_gpt(5, seed + 1000)
    rule = (rules.Token(), rules.Match())[seed % 2]
    plain = generate(target, [seed % 5, 1], sampling=GREEDY)
    fast = speculate(target, LMDrafter(draft, 1 + seed % 4), [seed % 5, 1], sampling=GREEDY, rule=rule)
    assert fast.tokens == plain.tokens


def test_on_a_tie_the_lowest_id_wins_in_both_ways_of_decoding():                       # H3
    tied = TableLM(torch.tensor([[0.2, 0.4, 0.4], [0.3, 0.3, 0.4], [0.4, 0.4, 0.2]], dtype=torch.float64))
    assert generate(tied, [0], max_new_tokens=6, sampling=GREEDY).tokens == [1, 2, 0, 1, 2, 0]
    drafter = LMDrafter(TableLM(random_table(3, 5)), 3)
    assert speculate(tied, drafter, [0], max_new_tokens=6, sampling=GREEDY).tokens == [1, 2, 0, 1, 2, 0]


# --- seeds, and calls that leave nothing behind -----------------------------------------------------------------------

def run_with(seed, drafter=None, rule=None, prompt=(0, 1, 2, 0, 1)):
    target, drafter = tiny_gpt(5, 1, context=48), drafter or LMDrafter(tiny_gpt(5, 2, context=48), 3)
    return speculate(target, drafter, prompt, max_new_tokens=24, dice=SeededDice(seed), rule=rule)


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():                # J1 J2
    """Twenty-four tokens under five seeds; two of them being equal by chance is less likely than 1e-6."""
    outputs = [tuple(run_with(seed).tokens) for seed in range(5)]
    assert [tuple(run_with(seed).tokens) for seed in range(5)] == outputs
    assert len(set(outputs)) == 5


@pytest.mark.parametrize("drafter, rule", [(LMDrafter(tiny_gpt(5, 2, context=48), 3), rules.Token()),
                                           (NgramDrafter(3), rules.Match()),
                                           (TableDrafter(random_table(5, 1), 3), rules.Token())],
                         ids=["lm", "ngram", "table"])
def test_a_drafter_used_twice_behaves_as_if_new(drafter, rule):                        # D19 M3
    first = run_with(7, drafter, rule)
    run_with(8, drafter, rule, prompt=[4, 4, 3])
    again = run_with(7, drafter, rule)
    assert again.tokens == first.tokens
    assert [(r.tokens, r.path, r.outcomes) for r in again.trace.rounds] == \
           [(r.tokens, r.path, r.outcomes) for r in first.trace.rounds]


def test_two_generations_in_turn_do_not_influence_each_other():                        # J5
    def start(seed):
        return Speculation(target, LMDrafter(draft, 3), [seed, 1], max_new_tokens=20), SeededDice(seed)

    target, draft = tiny_gpt(5, 3, context=48), tiny_gpt(5, 4, context=48)
    alone = []
    for seed in (0, 1):
        run, dice = start(seed)
        while not run.stop_reason:
            run.round(dice)
        alone.append(run.ids)
    both = [start(0), start(1)]
    while not all(run.stop_reason for run, _ in both):
        for run, dice in both:
            if not run.stop_reason:
                run.round(dice)
    assert [run.ids for run, _ in both] == alone


@pytest.mark.parametrize("method", ["plain", "speculative"])
def test_no_global_random_state_is_read_or_written(method):
    model, outputs = tiny_gpt(5, 1, context=48), set()
    for seed in (1, 2):
        torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
        before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
        options = dict(max_new_tokens=24, dice=SeededDice(3))
        generation = (generate(model, [0], **options) if method == "plain" else
                      speculate(model, LMDrafter(model, 3), [0], **options))
        outputs.add(tuple(generation.tokens))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (random.getstate(), str(np.random.get_state())) == before[1:]
    assert len(outputs) == 1


def test_a_callers_list_is_left_alone():
    prompt = [0, 1, 2]
    generation = run_with(0, prompt=prompt)
    generation.tokens.append(99)
    assert prompt == [0, 1, 2] == generation.prompt


def test_stepping_by_hand_builds_no_gradient_graph():
    model = tiny_gpt(5, 1)                                                             # its weights ask for gradients
    run = Speculation(model, LMDrafter(model, 2), [0, 1, 2])
    run.round(SeededDice(0))
    assert not any(rows.requires_grad for rows in (*run.cache.keys, *run.drafter.cache.keys))


# --- bad input --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("prompt, options, message", [
    ([], {}, "the prompt is empty: give at least one token"),
    (torch.tensor([], dtype=torch.int64), {}, "the prompt is empty"),
    ([0] * 16, {}, "the prompt has 16 tokens: at most 15 fit a context of 16"),
    ([0] * 40, {}, "the prompt has 40 tokens"),
    ([0, 5], {}, "token 5 is out of range: ids are whole numbers from 0 to 4"),
    ([-1], {}, "token -1 is out of range"),
    ([0.5], {}, "token 0.5 is out of range"),
    ([0], dict(stop_tokens=[7]), "token 7 is out of range"),
    ([0], dict(max_new_tokens=0), "max_new_tokens must be a whole number >= 1, got 0"),
    ([0], dict(max_new_tokens=2.5), "max_new_tokens must be a whole number >= 1, got 2.5"),
    ([[0, 1], [1, 2]], {}, "2 prompts was given: decode one sequence at a time"),                              # F6
    (torch.tensor([[0, 1], [1, 2]]), {}, "a batch of 2 prompts was given: decode one sequence at a time"),     # F6
], ids=lambda value: str(value)[:24])
@pytest.mark.parametrize("decode", ["plain", "speculative"])
def test_a_bad_request_is_refused_with_what_was_given_and_what_is_allowed(decode, prompt, options, message):
    model = tiny_gpt(5, 0)
    drafter = [] if decode == "plain" else [LMDrafter(model)]
    with pytest.raises(ValueError, match=message):
        (speculate if drafter else generate)(model, *drafter, prompt, **options)


def test_a_tensor_is_as_good_a_prompt_as_a_list():
    model = tiny_gpt(5, 0)
    for prompt in (torch.tensor([0, 1]), torch.tensor([[0, 1]])):
        assert generate(model, prompt).tokens == generate(model, [0, 1]).tokens


@pytest.mark.parametrize("build", [LMDrafter, lambda model, length: NgramDrafter(length),
                                   lambda model, length: TableDrafter(random_table(5, 0), length)],
                         ids=["lm", "ngram", "table"])
@pytest.mark.parametrize("length", [0, -1, 1.5])
def test_a_draft_length_below_one_is_refused(build, length):
    with pytest.raises(ValueError, match=f"draft length must be a whole number >= 1, got {length}"):
        build(tiny_gpt(5, 0), length)


@pytest.mark.parametrize("longest, shortest", [(0, 1), (2, 3), (2, 0)])
def test_match_sizes_out_of_order_are_refused(longest, shortest):
    with pytest.raises(ValueError, match="1 <= shortest <= longest"):
        NgramDrafter(3, longest, shortest)


def test_a_table_that_holds_no_distributions_is_refused():
    for table in ([[0.5, 0.6], [0.5, 0.5]], [[1.5, -0.5], [0.5, 0.5]]):
        with pytest.raises(ValueError, match="must be probabilities that sum to 1"):
            TableDrafter(torch.tensor(table))


@pytest.mark.parametrize("size", [4, 6])
def test_a_draft_with_another_vocabulary_is_refused(size):                             # I2
    with pytest.raises(ValueError, match=f"the draft has a vocabulary of {size} tokens, the target one of 5"):
        speculate(tiny_gpt(5, 0), LMDrafter(tiny_gpt(size, 1)), [0])


def test_a_proposal_outside_the_vocabulary_is_refused():                               # B3
    with pytest.raises(ValueError, match="the target's ids are whole numbers from 0 to 4"):
        speculate(tiny_gpt(5, 0), FixedTree((-1, 0), lambda ids, node: 5), [0], rule=rules.Match())


def test_a_drafter_that_goes_past_its_room_is_refused():                               # C4
    class Greedy(FixedTree):
        def propose(self, dice, room):
            return super().propose(dice, room + 1)

    with pytest.raises(ValueError, match="proposed 3 tokens in a row: there is room for 2"):
        speculate(tiny_gpt(5, 0), Greedy((-1, 0, 1), lambda ids, node: 0), [0], rule=rules.Match(), max_new_tokens=3)


@pytest.mark.parametrize("sick", ["target", "draft"])
def test_a_model_that_returns_nan_is_refused(sick):                                    # B3 B4
    models = {"target": tiny_gpt(5, 0), "draft": tiny_gpt(5, 1)}
    with torch.no_grad():
        models[sick].wte.weight[3] = float("nan")
    with pytest.raises(ValueError, match="logits hold NaN"):
        speculate(models["target"], LMDrafter(models["draft"]), [0])


def test_a_rule_that_cannot_judge_the_drafters_trees_is_refused():
    with pytest.raises(ValueError, match="rules.Token cannot judge a tree whose children were chosen: use rules.Match"):
        speculate(tiny_gpt(5, 0), NgramDrafter(2), [0, 1, 0])
