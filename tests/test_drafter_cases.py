"""Faults found elsewhere (CASES.md), on the drafters that read or share their target: each test names its row."""

from typing import NamedTuple

import pytest
import torch
from models import tiny_gpt
from test_diffusion import random_draft as diffusion_draft
from test_early_exit import Continuing
from test_feature import random_draft as feature_draft
from test_glide import glide
from test_heads import random_heads

from minispec import Sampling, SeededDice, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.drafters import (DiffusionDrafter, EarlyExitDrafter, FallbackDrafter, FeatureDrafter, GlideDrafter,
                               HeadsDrafter, NgramDrafter)
from minispec.drafters.heads import Heads, HeadsConfig
from minispec.model.listening import Listening
from minispec.model.shared_backbone import SharedBackbone

BY_ORIGIN = rules.ByOrigin(rules.Block(), rules.Match())


pytestmark = pytest.mark.usefixtures("no_gradients")


def feature(model, length, own):
    target = Listening(model)
    return target, lambda: FeatureDrafter(target, feature_draft(), length, own)


def diffusion(model, length, own):
    target = Listening(model)
    return target, lambda: DiffusionDrafter(target, diffusion_draft(), length, own)


def reading(model, length, own):
    target, draft = Listening(model), glide(model.config.vocab_size, context=model.config.context)
    return target, lambda: GlideDrafter(target, draft, length, own)


def heads(model, length, own):
    target = Listening(model)
    return target, lambda: HeadsDrafter(target, random_heads(length), sampling=own)


def early_exit(model, length, own):
    target = SharedBackbone(model, 1)
    return target, lambda: EarlyExitDrafter(target, length, own)


every_drafter = pytest.mark.parametrize("make", [feature, diffusion, reading, heads, early_exit],
                                        ids=lambda make: make.__name__)


def running(make):
    """The class of a run that is enumerated: see Continuing."""
    return Continuing if make is early_exit else Speculation


# --- ends and samplings -----------------------------------------------------------------------------------------------

class Ending(NamedTuple):
    prompt: tuple[int, ...]
    max_new_tokens: int
    context: int = 16
    stop_tokens: tuple[int, ...] = ()


@every_drafter
@pytest.mark.parametrize("ending", [Ending((1, 0), 1), Ending((1,), 2), Ending((1, 0), 4, 16, (0,)),
                                    Ending((1, 0, 1), 9, 4), Ending((1, 0), 9, 5)], ids=str)
def test_the_law_is_the_targets_however_a_proposal_is_cut(make, ending):                               # C2 C4 C6 G1 G3
    """No room at all, room for one, a stop token anywhere in a proposal or as the bonus, the end of the context."""
    sampling = Sampling(1.2, top_p=0.9)
    target, build = make(tiny_gpt(2, context=ending.context), 3, Sampling(0.7))
    options = dict(sampling=sampling, stop_tokens=ending.stop_tokens)
    for rule in (rules.Token(), rules.Block()):
        loop = output_law_by_rounds(lambda: running(make)(
            target, build(), ending.prompt, max_new_tokens=ending.max_new_tokens, rule=rule, **options))
        assert law_error(loop, sequential_law(target.model, ending.prompt, ending.max_new_tokens, **options)) <= 1e-12


@every_drafter
@pytest.mark.parametrize("sampling", [Sampling(0), Sampling(0.5), Sampling(1.0, top_k=2), Sampling(1.3, top_p=0.6),
                                      Sampling(2.0, top_k=2, top_p=0.8)], ids=str)
def test_every_sampling_runs_and_shapes_both_laws(make, sampling):                                       # A16 A19 A24
    target, build = make(tiny_gpt(5, context=40), 3, None)
    run = speculate(target, build(), [1, 2], max_new_tokens=20, sampling=sampling, dice=SeededDice(1))
    kept = 1 if sampling.temperature == 0 else sampling.top_k or 5
    laws = [q for r in run.trace.rounds for q in (*r.draft_top.values(), *r.target_top)]
    assert len(run.tokens) == 20 and all(len(q) <= kept and sum(q.values()) == pytest.approx(1) for q in laws)
    if sampling.temperature == 0:
        assert run.tokens == generate(target.model, [1, 2], max_new_tokens=20, sampling=sampling).tokens


@every_drafter
def test_a_greedy_draft_is_accepted_as_often_as_the_target_would_draw_its_token(make):                      # A18
    target, build = make(tiny_gpt(5, context=60), 3, Sampling(0))
    run, met = speculate(target, build(), [1, 2], max_new_tokens=50, dice=SeededDice(2)), 0
    for r in run.trace.rounds:
        coins = [outcome.chance for outcome in r.outcomes if outcome.kind == "accept"]
        assert coins == pytest.approx([p[token] for p, token in zip(r.target_top, r.tokens)][:len(coins)])
        met += len(coins)
    assert met > 20


# --- nothing of another generation ------------------------------------------------------------------------------------

def told(r) -> list:
    """What a round was, apart from its seconds."""
    return [r.context, r.tokens, r.path, r.emitted, r.draft_cache, r.draft_top, r.target_top]


def rounds(target, drafter, prompt, seed):
    """The rounds of a generation, one after another."""
    run, dice = Speculation(target, drafter, prompt, max_new_tokens=20), SeededDice(seed)
    while not run.stop_reason:
        yield told(run.round(dice))


@every_drafter
@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 0, 0]], ids=len)
def test_a_drafter_used_twice_behaves_as_if_new(make, prompt):                                              # D19 M3
    target, build = make(tiny_gpt(3, context=32), 3, None)
    used = build()
    list(rounds(target, used, [2, 2, 2], 5))
    assert list(rounds(target, used, prompt, 1)) == list(rounds(target, build(), prompt, 1))


@every_drafter
@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 0, 0]], ids=len)
def test_generations_that_take_turns_on_one_target_do_not_hear_each_other(make, prompt):                # DESIGN 4.5
    target, build = make(tiny_gpt(3, context=32), 3, None)
    alone = list(rounds(target, build(), prompt, 1))
    turns, other = rounds(target, build(), prompt, 1), rounds(target, build(), [2, 0, 2], 2)
    between = []
    for r in turns:
        between.append(r)
        next(other, None)
        generate(target, [0, 1, 2], max_new_tokens=2)
    assert between == alone


# --- proposals --------------------------------------------------------------------------------------------------------

@every_drafter
@pytest.mark.parametrize("prompt", [[1], [1, 2, 0]], ids=len)
def test_every_round_with_room_proposes_what_fits(make, prompt):                                            # D4 D14
    """However the round before ended. Of a prompt of one token some have nothing to read in the first round."""
    target, build = make(tiny_gpt(4, context=64), 3, None)
    run, ends = speculate(target, build(), prompt, max_new_tokens=60, dice=SeededDice(3)), set()
    end = len(prompt) + 60
    for r in run.trace.rounds[1 if len(prompt) == 1 else 0:]:
        assert len(r.tokens) == min(3, end - r.context - 1)
        ends.add(len(r.path))
    assert len(ends) > 2, "rejections and full acceptances were seen"


@pytest.mark.parametrize("length", [1, 3, 6])
def test_an_exit_under_layers_that_do_nothing_is_never_rejected(length):                                     # D1 D20
    model = tiny_gpt(4, context=80)
    for name in ("attn", "mlp"):
        for weight in model.h[1].get_submodule(name).c_proj.parameters():
            weight.zero_()
    target = SharedBackbone(model, 1)
    run = speculate(target, EarlyExitDrafter(target, length), [1, 2], max_new_tokens=70)
    assert all(len(r.path) == len(r.tokens) for r in run.trace.rounds)
    assert len(run.trace.rounds) == -(-70 // (length + 1))


@pytest.mark.parametrize("length", [1, 3, 6])
def test_a_draft_that_reads_nothing_and_is_the_target_is_never_rejected(length):                             # D1 D20
    target = Listening(tiny_gpt(4, context=80))
    draft = glide(4, context=80, reads_target=False)
    draft.load_state_dict(target.model.state_dict())
    run = speculate(target, GlideDrafter(target, draft, length), [1, 2], max_new_tokens=70)
    assert all(len(r.path) == len(r.tokens) for r in run.trace.rounds)
    assert len(run.trace.rounds) == -(-70 // (length + 1))


# --- beside another drafter -------------------------------------------------------------------------------------------

@every_drafter
@pytest.mark.parametrize("prompt", [(1, 0), (1,)], ids=len)
@pytest.mark.parametrize("first", [True, False], ids=["asked first", "asked second"])
def test_beside_a_lookup_the_law_is_the_targets_up_to_the_context(make, first, prompt):            # G1 G3
    """Where it did not propose, its features may be another token's: q is then worse, and still what was drawn from."""
    target, build = make(tiny_gpt(2, context=6), 2, None)
    pair = lambda: (build(), NgramDrafter(2)) if first else (NgramDrafter(2), build())
    loop = output_law_by_rounds(lambda: Speculation(
        target, FallbackDrafter(*pair()), prompt, max_new_tokens=9, rule=BY_ORIGIN))
    assert law_error(loop, sequential_law(target.model, prompt, 9)) <= 1e-12


# --- given another target than the loop's -----------------------------------------------------------------------------

@pytest.mark.parametrize("make", [feature, heads, diffusion, reading], ids=lambda make: make.__name__)
def test_a_drafter_that_reads_must_be_given_the_loops_target(make):                              # DESIGN 4.6
    _, build = make(tiny_gpt(2, context=12), 2, None)
    with pytest.raises(ValueError, match="must be given the Listening target that `speculate` has"):
        Speculation(tiny_gpt(2, context=12), build(), (1, 0, 1), max_new_tokens=4)


def test_an_exit_is_refused_where_another_target_read_as_many_tokens():
    target, build = early_exit(tiny_gpt(2, context=12), 2, None)
    speculate(target, build(), (1, 0), max_new_tokens=3)                      # leaves a cache of 4 behind
    with pytest.raises(ValueError, match="its backbone must be the target"):
        Speculation(tiny_gpt(2, context=12), build(), (1, 0, 1, 0, 1), max_new_tokens=4)


def test_heads_without_a_tree_or_with_an_unknown_origin_are_refused():
    target = Listening(tiny_gpt(2))
    for options, said in ((dict(branching=()), "a tree needs"), (dict(origin="guessed"), "guessed")):
        with pytest.raises(ValueError, match=said):
            HeadsDrafter(target, Heads(HeadsConfig(2, 8)), **options)
