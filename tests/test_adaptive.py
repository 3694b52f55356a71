"""Adaptive draft length: every stopping rule is exact, looking ahead is not; what each rule does, by hand; the learned
head; and the oracle."""

import math

import pytest
import torch
from models import TableLM, assert_like_a_fresh_prefill, random_table, tiny_gpt

from minispec import Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import (Memoised, law_error, oracle_tokens_per_cost, output_law_by_rounds, sequential_law,
                               tokens_per_cost)
from minispec.analysis.theory import best_draft_length, interpolate
from minispec.bench.draft_lengths import compare, stopping_rules
from minispec.bench.timing import Passes
from minispec.decoding import EnumeratingDice, Speculation, rules
from minispec.drafters import AcceptanceHead, AdaptiveDrafter, LMDrafter, LookAheadDrafter
from minispec.drafters.acceptance_head import features
from minispec.drafters.adaptive import All, Payoff, Steered, Stopping, Survival, Threshold, confidence, entropy_bound
from minispec.model import save_model
from minispec.training.acceptance_head import HeadRecipe, cross_entropy, examples, fit_head, reliability, train_head

TARGET, DRAFT = Memoised(tiny_gpt(3, 0)), Memoised(tiny_gpt(3, 1))
CURVE = interpolate({1: 1.0, 2: 1.1, 4: 1.4})


def random_head():
    """Untrained: its estimates mean nothing, which exactness must bear."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return AcceptanceHead()


class TokenParity(Stopping):
    """On after even tokens only: as wild as a rule can be, and as dependent on the tokens."""

    def goes_on(self, tokens, beliefs):
        return not tokens or tokens[-1] % 2 == 0


STOPPING = {
    "confidence": Threshold(confidence, 0.5), "entropy": Threshold(entropy_bound, 0.6),
    "learned head": Threshold(random_head(), 0.5), "steered": Steered(confidence, 0.5, goal=0.6, step=0.2),
    "survival": Survival(confidence, 0.4), "payoff": Payoff(0.4, CURVE, confidence),
    "all": All(Threshold(confidence, 0.4), Survival(entropy_bound, 0.3)), "parity": TokenParity()}
every_rule = pytest.mark.parametrize("stopping", STOPPING.values(), ids=STOPPING)


# --- exactness -------------------------------------------------------------------------------------------------------

def prove(drafter, rule, *, sampling=Sampling(), target=TARGET, new_tokens=4):
    """(largest error of the joint law, the lengths of all proposals that had room for two)."""
    lengths = set()

    class Watched(type(rule)):
        def __call__(self, tree, target_probs, dice):
            lengths.add(len(tree))
            return super().__call__(tree, target_probs, dice)

    law = output_law_by_rounds(lambda: Speculation(target, drafter, [0, 1], max_new_tokens=new_tokens, rule=Watched(),
                                                   sampling=sampling))
    return law_error(law, sequential_law(target.model, [0, 1], new_tokens, sampling=sampling)), lengths


@every_rule
@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
def test_no_stopping_rule_changes_the_law(stopping, rule):
    error, lengths = prove(AdaptiveDrafter(DRAFT, stopping, 2), rule)
    assert error < 1e-12
    assert {1, 2} <= lengths, "it should stop early here and not there"


@pytest.mark.parametrize("sampling", [Sampling(0.7, top_k=2), Sampling(0.0)], ids=str)
@pytest.mark.parametrize("name", ["confidence", "payoff"])
def test_nor_at_other_temperatures(name, sampling):
    assert prove(AdaptiveDrafter(DRAFT, STOPPING[name], 3), rules.Token(), sampling=sampling, new_tokens=5)[0] < 1e-12


@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
def test_looking_ahead_does(rule):
    error, lengths = prove(LookAheadDrafter(DRAFT, 0.3, 2), rule)
    assert error > 1e-3 and {0, 1, 2} <= lengths
    assert prove(LookAheadDrafter(DRAFT, 0.3, 2), rules.Match())[0] < 1e-12


def same_everywhere(law):
    """A model whose every row is `law`."""
    return TableLM(torch.tensor(law, dtype=torch.float64).expand(len(law), len(law)))


def first_token_law(drafter, p):
    """The law of the first emitted token, where every row of the target is p."""
    law, target = [0.0] * len(p), same_everywhere(p)
    run = lambda dice: Speculation(target, drafter, [0], max_new_tokens=2).round(dice).emitted[0]
    for chance, token in EnumeratingDice().branches(run):
        law[token] += chance
    return law


def test_the_bias_of_looking_ahead_by_hand():
    """Token 2 is drawn with q = .1, dropped, and comes back only by the target's own .2: .1 + .1 * .2 in all."""
    draft, p = same_everywhere([0.6, 0.3, 0.1]), [0.5, 0.3, 0.2]
    assert first_token_law(LookAheadDrafter(draft, 0.2, 1), p) == pytest.approx([0.55, 0.33, 0.12], abs=1e-12)
    assert first_token_law(AdaptiveDrafter(draft, Threshold(confidence, 0.2), 1), p) == pytest.approx(p, abs=1e-12)


def test_a_scheduler_that_waits_for_what_it_drew_by_hand():
    """p = (.7, .3), q = (.5, .5): token 0 is verified, token 1 is not, and p draws instead. 0 comes out at .85."""
    class Waits(LookAheadDrafter):
        def propose(self, dice, room):
            chain = LMDrafter.propose(self, dice, room)
            self.proposed = chain.tokens if chain.tokens[:1] == (0,) else ()
            return TokenTree.chain(self.proposed, list(chain.draft_probs.values())[:len(self.proposed)])

    waits = Waits(same_everywhere([0.5, 0.5]), 0.0, 1)
    assert first_token_law(waits, [0.7, 0.3]) == pytest.approx([0.85, 0.15], abs=1e-12)


# --- caches, and the target as its own draft -------------------------------------------------------------------------

@every_rule
def test_the_target_as_its_own_draft_is_never_rejected(stopping):                                       # D1
    model = tiny_gpt(3, 2, context=40)
    run = speculate(model, AdaptiveDrafter(model, stopping, 4), [0, 1], max_new_tokens=30)
    assert all(r.accepted == r.proposed for r in run.trace.rounds)
    assert len({r.proposed for r in run.trace.rounds[:-1]}) > 1


@every_rule
@torch.inference_mode()
def test_after_every_round_the_cache_reads_like_a_fresh_one(stopping):
    drafter, dice = AdaptiveDrafter(tiny_gpt(3, 3, context=32), stopping, 4), SeededDice(5)
    run = Speculation(tiny_gpt(3, 4, context=32), drafter, [0, 1], max_new_tokens=24)
    while not run.stop_reason:
        run.round(dice)
        assert drafter.ids == run.ids
        assert_like_a_fresh_prefill(drafter.draft, drafter.cache, run.ids)


@every_rule
def test_two_generations_do_not_influence_each_other(stopping):
    drafter, target = AdaptiveDrafter(tiny_gpt(3, 3), stopping, 4), tiny_gpt(3, 4)
    first, second = (speculate(target, drafter, [0, 1], max_new_tokens=12) for _ in range(2))
    assert first.tokens == second.tokens
    assert [r.tokens for r in first.trace.rounds] == [r.tokens for r in second.trace.rounds]


def test_greedy_output_is_plain_output_and_greedy_drafts_stop_too():
    """At temperature 0 q is one-hot: a rule that asked q itself would never doubt."""
    target, draft = tiny_gpt(5, 2, context=60), tiny_gpt(5, 3, context=60)
    options = dict(max_new_tokens=50, sampling=Sampling(0.0))
    run = speculate(target, AdaptiveDrafter(draft, Threshold(confidence, 0.6), 6), [0, 1, 2], **options)
    assert run.tokens == generate(target, [0, 1, 2], **options).tokens
    assert any(r.proposed < 6 for r in run.trace.rounds[:-2])


# --- what the rules do -----------------------------------------------------------------------------------------------

SURE, TORN = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)


def test_estimates_by_hand():
    assert confidence(1, SURE) == pytest.approx(0.1)
    assert entropy_bound(0, torch.tensor([1.0, 0.0])) == 1.0
    assert entropy_bound(0, TORN) == entropy_bound(1, TORN) == pytest.approx(1 - math.sqrt(0.2 * math.log(2)))
    assert entropy_bound(0, torch.full((1000,), 0.001)) == 0.0
    assert features(torch.tensor([1]), SURE[None])[0].tolist() == pytest.approx(
        [0.1, math.log(0.1), 0.9, -0.9 * math.log(0.9) - 0.1 * math.log(0.1)])


def test_threshold_and_survival_by_hand():
    one, two = ([0], [SURE]), ([0, 0], [SURE, SURE])
    assert Threshold(confidence, 0.85).goes_on(*two) and not Threshold(confidence, 0.95).goes_on(*one)
    assert Survival(confidence, 0.85).goes_on(*one) and not Survival(confidence, 0.85).goes_on(*two)       # .81
    both = All(Threshold(confidence, 0.85), Survival(confidence, 0.85))
    assert both.goes_on(*one) and not both.goes_on(*two)
    assert all(rule.goes_on([], []) for rule in (Threshold(), Survival(), both))


def test_steered_follows_the_acceptance():
    rule = Steered(confidence, 0.4, goal=0.8, step=0.1, memory=0.0)
    rule.start()
    for accepted, wanted in [(4, 0.3), (4, 0.2), (0, 0.3), (2, 0.4)]:
        rule.learn(4, accepted)
        assert rule.least == pytest.approx(wanted)
    rule.learn(0, 0)
    assert rule.least == pytest.approx(0.4), "a round without a proposal says nothing"
    rule.learn(4, 4)
    rule.start()
    assert rule.least == 0.4, "a new generation starts anew"


def test_payoff_by_hand():
    """c = .2, and a verification of five tokens and more costs twice one of up to four."""
    rule = Payoff(0.2, lambda k: 1.0 if k <= 4 else 2.0)
    rule.start()                                                       # 1 token in 1 pass, and 1.5 of 2 accepted
    wants = lambda k: rule.goes_on([0] * k, [SURE] * k)                # the next one survives with .9^k * .75
    assert wants(0) and wants(2) and not wants(3) and wants(4)         # from the third on the next costs 1.2 more
    assert wants(12) and not wants(13)                                 # .212, .191
    rule.learn(4, 4)                                                   # 6 tokens in 3.8: .2 are now worth .316 tokens
    assert (rule.tokens, rule.spent) == (6.0, pytest.approx(3.8))
    assert wants(10) and not wants(11)                                 # .9^k * 5.5 / 6 = .320, .288
    rule.learn(4, 1)                                                   # two were judged: one taken, one not
    assert (rule.reached, rule.accepted) == (8.0, 6.5)


def test_payoff_looks_past_a_step_of_the_verify_curve():
    """Any verification of two tokens or more costs 1.9: one drafted token is not worth it (.75 < 1.1), two are (1.31)."""
    for ahead, wanted in [(1, False), (2, True)]:
        rule = Payoff(0.2, lambda k: 1.0 if k == 1 else 1.9, ahead=ahead)
        rule.start()
        assert rule.goes_on([], []) == wanted


def test_payoff_drafts_nothing_where_it_does_not_pay():                                                 # L10
    target, draft = TableLM(random_table(4, 0), 300), TableLM(random_table(4, 1), 300)
    run = speculate(target, AdaptiveDrafter(draft, Payoff(3.0, CURVE), 8), [0], max_new_tokens=50)
    assert sum(r.proposed for r in run.trace.rounds) == 0


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("cost", [0.05, 0.3])
def test_payoff_finds_the_best_length_where_that_is_the_same_everywhere(alpha, cost):
    """Every token is accepted with chance alpha, and the estimate says so: the best length is theory's.

    Rounds are judged by their expectation, so nothing is random: reached and accepted grow by what alpha gives.
    """
    rule, length = Payoff(cost, CURVE, lambda token, belief: alpha), None
    rule.start()
    for _ in range(400):
        length = next(k for k in range(65) if not rule.goes_on([0] * k, [SURE] * k))
        rule.learn(length, sum(alpha**k for k in range(1, length + 1)))
        rule.accepted = alpha * rule.reached                           # the mean acceptance, as after many rounds
    assert length == best_draft_length(alpha, cost, CURVE)


@pytest.mark.parametrize("make, message", [
    (lambda: Threshold(confidence, 1.5), r"least must be a probability in \[0, 1\], got 1.5"),
    (lambda: Survival(confidence, -0.1), r"least must be a probability in \[0, 1\], got -0.1"),
    (lambda: Payoff(-1.0, CURVE), "cost must be a number >= 0"),
    (lambda: Payoff(float("nan"), CURVE), "cost must be a number >= 0"),
    (lambda: AdaptiveDrafter(tiny_gpt(3), Threshold(), 0), "draft length must be a whole number >= 1, got 0")])
def test_bad_input_says_what_is_allowed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- the learned head ------------------------------------------------------------------------------------------------

def test_labels_are_the_exact_chances_of_acceptance():
    target, draft = tiny_gpt(5, 0), tiny_gpt(5, 1)
    window = torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(0))
    inputs, labels = examples(draft, target, window, Sampling(), seed=0)
    with torch.no_grad():
        q, p = draft(window).softmax(-1).flatten(0, 1), target(window).softmax(-1).flatten(0, 1)       # (24, V)
    chances = (p / q).clamp_max(1)                                                                     # (24, V)
    drawn = (q - inputs[:, :1]).abs().argmin(-1)                       # the token whose q is the first feature
    torch.testing.assert_close(labels.double(), chances.gather(-1, drawn[:, None])[:, 0], atol=1e-4, rtol=0)
    torch.testing.assert_close(inputs, features(drawn, q), atol=1e-6, rtol=0)


def test_a_trained_head_knows_more_than_a_constant_and_its_estimates_are_chances():
    """p is q sharpened, so that the draft is right where it is sure, and its doubtful tokens are rarely taken."""
    dice = torch.Generator().manual_seed(0)
    q = (2 * torch.randn(4000, 6, generator=dice)).softmax(-1)
    p = (q**3) / (q**3).sum(-1, keepdim=True)
    drawn = torch.multinomial(q, 1, generator=dice)                                                    # (N, 1)
    inputs, labels = features(drawn[:, 0], q), (p / q).gather(-1, drawn).clamp_max(1)[:, 0]
    before = torch.random.get_rng_state()
    head = fit_head(inputs[:2000], labels[:2000], steps=300, lr=0.02, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())
    estimates, seen = head.logits(inputs[2000:]).sigmoid(), labels[2000:]
    assert cross_entropy(estimates, seen) < 0.8 * cross_entropy(seen.mean().expand_as(seen), seen)
    for estimate, accepted, count in reliability(estimates, seen):
        assert abs(estimate - accepted) < 0.1 or count < 50
    token, belief = int(drawn[2000]), q[2000]
    assert head(token, belief) == pytest.approx(float(estimates[0]), abs=1e-6)


def test_reliability_by_hand():
    estimates, labels = torch.tensor([0.05, 0.12, 0.18, 1.0]), torch.tensor([0.0, 0.0, 0.4, 1.0])
    rows = reliability(estimates, labels)
    assert [count for *_, count in rows] == [1, 2, 1]
    assert rows[1][:2] == pytest.approx((0.15, 0.2)) and rows[2][:2] == pytest.approx((1.0, 1.0))


def test_a_head_is_trained_reported_on_saved_and_read_again(tmp_path):
    target, draft, lines = tiny_gpt(5, 0), tiny_gpt(5, 1), []
    windows = torch.randint(5, (4, 12), generator=torch.Generator().manual_seed(0))
    head = train_head(HeadRecipe(steps=20), draft, target, windows[:2], windows[2:], report=lines.append)
    assert lines[0].startswith("held-out: loss ") and lines[1].startswith("estimate -> accepted")
    head.save(tmp_path / "head.safetensors", {"recipe": "acceptance-head"})
    again = AcceptanceHead.load(tmp_path / "head.safetensors")
    assert again(1, SURE) == head(1, SURE) and 0 < head(1, SURE) < 1


def test_a_file_that_holds_no_head_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing.safetensors is missing"):
        AcceptanceHead.load(tmp_path / "nothing.safetensors")
    save_model(tmp_path / "model.safetensors", tiny_gpt(3), {})
    with pytest.raises(ValueError, match="model.safetensors holds no acceptance head: its weights are h.0.attn"):
        AcceptanceHead.load(tmp_path / "model.safetensors")


# --- the oracle ------------------------------------------------------------------------------------------------------

def test_the_oracle_by_hand_and_nothing_beats_it():
    target, draft = TableLM(random_table(4, 0), 300), TableLM(random_table(4, 1), 300)
    run = lambda drafter: speculate(target, drafter, [0], max_new_tokens=60, dice=SeededDice(1)).trace.rounds
    fixed = run(LMDrafter(draft, 5))
    spent = sum(0.2 * len(r.tokens) + CURVE(len(r.tokens) + 1) for r in fixed)
    best = sum(0.2 * r.accepted + CURVE(r.accepted + 1) for r in fixed)
    assert tokens_per_cost(fixed, 0.2, CURVE) == pytest.approx(60 / spent)
    assert oracle_tokens_per_cost(fixed, 0.2, CURVE) == pytest.approx(60 / best)
    for rounds in (fixed, run(AdaptiveDrafter(draft, STOPPING["confidence"], 5))):
        assert tokens_per_cost(rounds, 0.2, CURVE) < oracle_tokens_per_cost(rounds, 0.2, CURVE)
    sure = speculate(target, LMDrafter(target, 3), [0], max_new_tokens=20).trace.rounds
    assert tokens_per_cost(sure, 0.2) == pytest.approx(oracle_tokens_per_cost(sure, 0.2)) == pytest.approx(4 / 1.6)


def test_policies_are_compared_with_the_oracle():
    """Greedy, where all policies write one text: no length that is known beforehand does better than the oracle's."""
    target, draft = tiny_gpt(5, 2, context=60), tiny_gpt(5, 3, context=60)
    passes = Passes(20, 0.004, 0.0008, {1: 1.0, 2: 1.1, 4: 1.4})                       # c = .2
    rows = compare(target, draft, [[0, 1], [2, 3, 4]], passes, head=random_head(), sampling=Sampling(0.0),
                   max_new_tokens=16)
    names = [row["policy"] for row in rows]
    assert names[:2] == ["fixed 1", "fixed 2"] and names[-1] == "oracle" and len(set(names)) == len(names)
    assert set(stopping_rules(passes, random_head())) < set(names)
    assert all(0 < row["of_oracle"] <= 1 for row in rows) and rows[-1]["of_oracle"] == 1
    fixed = rows[names.index("fixed 2")]
    alone = [r for ids in ([0, 1], [2, 3, 4]) for r in speculate(
        target, LMDrafter(draft, 2), ids, max_new_tokens=16, sampling=Sampling(0.0)).trace.rounds]
    assert fixed["tokens_per_cost"] == pytest.approx(tokens_per_cost(alone, 0.2, CURVE))
