"""The feature drafter: exact, only true features in its cache, one pass a token; and training that drafts ahead as it
will."""

import pytest
import torch
from models import tiny_gpt

from minispec import Sampling, SeededDice, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, Verdict, rules
from minispec.drafters.feature import FeatureConfig, FeatureDraft, FeatureDrafter, load_feature_draft
from minispec.model import save_model
from minispec.model.listening import Listening
from minispec.training.feature import FEATURE, draft_ahead, feature_loss

TEXT = [0, 1, 2, 1, 0, 2, 0, 1]


pytestmark = pytest.mark.usefixtures("no_gradients")


def random_draft(width: int = 8, seed: int = 0) -> FeatureDraft:
    draft, dice = FeatureDraft(FeatureConfig(2, width)).double(), torch.Generator().manual_seed(seed)
    for name, weight in draft.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return draft.eval()


def embed(model, ids) -> torch.Tensor:
    return model.embed(torch.tensor([ids]), torch.arange(len(ids)))                   # (1, T, C)


def slow_laws(model, draft, ids, drafted, temperature=1.0) -> list[torch.Tensor]:
    """q of each drafted token and of one more, (V,), by a whole pass over all rows for each: true features of all
    committed tokens but the last, then guesses."""
    features, laws = model.hidden(torch.tensor([ids]))[:, :-1], []                    # (1, T, C)
    for k in range(len(drafted) + 1):
        known = [*ids, *drafted[:k]]
        guess = draft(embed(model, known)[:, 1:], features)[:, -1:]
        features = torch.cat([features, guess], dim=1)
        laws.append((model.unembed(guess)[0, 0] / temperature).softmax(-1))
    return laws


class Scripted:
    """Dice that draw a given text, whatever the law, and keep the laws."""

    def __init__(self, text):
        self.text, self.laws = list(text), []

    def draw(self, q):
        self.laws.append(q)
        return self.text.pop(0)


# --- drafting ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("sampling", [Sampling(1.2), Sampling(1.0, top_k=1)], ids=["all of p", "zeros"])
@pytest.mark.parametrize("prompt", [(1, 0), (1,)], ids=["two tokens", "one token"])
def test_the_loop_has_the_targets_law(rule, sampling, prompt):
    target, draft = Listening(tiny_gpt(2)), random_draft()
    loop = output_law_by_rounds(lambda: Speculation(
        target, FeatureDrafter(target, draft, 2), prompt, max_new_tokens=4, rule=rule, sampling=sampling))
    assert law_error(loop, sequential_law(target.model, prompt, 4, sampling=sampling)) <= 1e-12


def test_greedy_output_is_plain_decodings():
    target = Listening(tiny_gpt(6, context=40))
    plain = generate(target, [1, 2], max_new_tokens=30, sampling=Sampling(0))
    fast = speculate(target, FeatureDrafter(target, random_draft(), 4), [1, 2], max_new_tokens=30, sampling=Sampling(0))
    assert fast.tokens == plain.tokens


@pytest.mark.parametrize("prompt, own, temperature", [([1, 0, 2], None, 1.3), ([1], Sampling(0.7), 0.7)],
                         ids=["three tokens", "one token, own sampling"])
def test_q_is_what_a_slow_recomputation_gives_and_the_cache_holds_true_features_only(prompt, own, temperature):
    model, draft = tiny_gpt(3, context=48), random_draft()
    target, dice, depths = Listening(model), SeededDice(1), set()
    run = Speculation(target, FeatureDrafter(target, draft, 3, own), prompt, max_new_tokens=44, sampling=Sampling(1.3))
    while not run.stop_reason:
        ids, before, r = list(run.ids), run.drafter.cache.length, run.round(dice)
        for k, wanted in enumerate(slow_laws(model, draft, ids, r.tokens[:-1], temperature) if r.tokens else []):
            assert [r.draft_top[k - 1][x] for x in range(3)] == pytest.approx(wanted.tolist(), rel=0, abs=1e-10)
        cache, fresh = run.drafter.cache, draft.new_cache(48)
        assert cache.length == run.drafter.cache_length() == (len(ids) - 1 if r.tokens else before)
        assert run.drafter.lag == len(run.ids) - 1 - cache.length
        if cache.length:
            rows = torch.tensor([run.ids])
            draft(embed(model, run.ids)[:, 1:cache.length + 1], model.hidden(rows)[:, :cache.length], fresh)
        for mine, wanted in zip(cache.keys + cache.values, fresh.keys + fresh.values):
            torch.testing.assert_close(mine[:, :, :cache.length], wanted[:, :, :cache.length], rtol=0, atol=1e-10)
        depths.add(len(r.path))
    assert depths == {0, 1, 2, 3}, "a rejection of each place and a full acceptance were seen"


def test_a_pass_is_causal_and_may_come_in_parts():
    model, draft = tiny_gpt(3), random_draft()
    embedded, features, cache = embed(model, TEXT), model.hidden(torch.tensor([TEXT])), draft.new_cache(8)
    whole = draft(embedded, features)                                                 # (1, T, C)
    parts = [draft(embedded[:, i:j], features[:, i:j], cache) for i, j in ((0, 3), (3, 4), (4, 8))]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-10)
    for t in range(len(TEXT)):
        prefix = draft(embedded[:, :t + 1], features[:, :t + 1])
        torch.testing.assert_close(prefix[:, t], whole[:, t], rtol=0, atol=1e-10)


def test_a_guess_depends_on_the_token_drafted_before_it():
    target, laws = Listening(tiny_gpt(3)), []
    for first in (0, 1):
        drafter, dice = FeatureDrafter(target, random_draft(), 2), Scripted([first, 0])
        target(torch.tensor([[1, 0]]))
        drafter.start([1, 0, 2], Sampling())
        drafter.propose(dice, 2)
        laws.append(dice.laws)
    assert torch.equal(laws[0][0], laws[1][0]) and not torch.allclose(laws[0][1], laws[1][1], atol=1e-3)


def test_one_pass_a_drafted_token_and_the_first_reads_what_became_true(monkeypatch):
    fed = []
    monkeypatch.setattr(FeatureDraft, "forward", lambda draft, embedded, *a, _real=FeatureDraft.forward, **k:
                        (fed.append(embedded.shape[1]), _real(draft, embedded, *a, **k))[1])
    target, dice, due = Listening(tiny_gpt(3, context=64)), SeededDice(0), 1
    run = Speculation(target, FeatureDrafter(target, random_draft(), 4), [1, 0, 2, 1], max_new_tokens=30)
    accepted = set()
    assert fed == [2], "the prompt but for its last row"
    while not run.stop_reason:
        fed.clear()
        r = run.round(dice)
        assert fed == ([due] + [1] * (len(r.tokens) - 1) if r.tokens else [])
        assert r.draft_cache == (r.context - 1 - due, r.context - 2 + len(r.tokens), r.context - 1) or not r.tokens
        due = len(r.path) + 1
        accepted.add(due)
    assert len(accepted) > 2


def test_after_a_prompt_of_one_token_it_starts_with_the_second_round():
    target = Listening(tiny_gpt(4, context=32))
    speculate(target, FeatureDrafter(target, random_draft()), [1, 2], max_new_tokens=5)       # leaves features behind
    out = speculate(target, FeatureDrafter(target, random_draft()), [1], max_new_tokens=20, dice=SeededDice(2))
    assert out.trace.rounds[0].tokens == [] and out.trace.rounds[1].tokens


def test_features_heard_in_rounds_without_a_proposal_are_read_later():
    target = Listening(tiny_gpt(3))
    drafter, cache, dice = FeatureDrafter(target, random_draft(), 1), target.new_cache(), Scripted([2])
    target(torch.tensor([[1]]), cache)
    drafter.start([1, 0], Sampling())
    for last, token in ((0, 2), (2, 1)):
        assert len(drafter.propose(dice, 0)) == 0
        target(torch.tensor([[last]]), cache)
        drafter.commit(Verdict([], token, bonus=True))
    drafter.propose(dice, 1)
    wanted = slow_laws(target.model, drafter.draft, [1, 0, 2, 1], [])
    torch.testing.assert_close(dice.laws, wanted, rtol=0, atol=1e-10)


def test_it_stops_at_the_context_and_after_a_stop_token():
    target = Listening(tiny_gpt(3, context=12))
    out = speculate(target, FeatureDrafter(target, random_draft(), 5), [1, 0], max_new_tokens=50)
    assert out.stop_reason == "context" and len(out.text_ids) == 12
    plain = generate(target, [1, 0], stop_tokens=[2], dice=SeededDice(3), sampling=Sampling(0))
    fast = speculate(target, FeatureDrafter(target, random_draft(), 5), [1, 0], stop_tokens=[2], sampling=Sampling(0))
    assert fast.tokens == plain.tokens and fast.stop_reason == plain.stop_reason


def test_a_draft_is_saved_and_loaded_and_misfits_are_refused(tmp_path):
    draft = random_draft().half().double()                        # float16 is what is stored
    save_model(tmp_path / "feature.safetensors", draft, {"steps": 1})
    loaded = load_feature_draft(tmp_path / "feature.safetensors", dtype=torch.float64)
    assert loaded.config == draft.config
    assert all(map(torch.equal, draft.parameters(), loaded.parameters()))
    save_model(tmp_path / "gpt.safetensors", tiny_gpt(3), {})
    with pytest.raises(ValueError, match="gpt.safetensors holds no feature draft"):
        load_feature_draft(tmp_path / "gpt.safetensors")
    target = Listening(tiny_gpt(3))
    with pytest.raises(ValueError, match="a feature draft of width 16 doesn't fit a target of width 8"):
        FeatureDrafter(target, random_draft(width=16))
    for length in (0, 1.5):
        with pytest.raises(ValueError, match="draft length must be a whole number >= 1"):
            FeatureDrafter(target, draft, length)


# --- training ---------------------------------------------------------------------------------------------------------

def test_a_training_row_predicts_what_the_drafter_would():
    model, draft = tiny_gpt(3), random_draft()
    target, T, steps = Listening(model), len(TEXT), 4
    ahead = draft_ahead(draft, embed(model, TEXT), model.hidden(torch.tensor([TEXT])), steps)
    assert [guesses.shape[1] for guesses in ahead] == [T - 1 - k for k in range(steps)]
    for a in range(T - 1):                                        # x_{a+1} is the last committed token
        dice, drafter = Scripted([*TEXT[a + 2:], *[0] * steps]), FeatureDrafter(target, draft, steps)
        target(torch.tensor([TEXT[:a + 1]]))
        drafter.start(TEXT[:a + 2], Sampling())
        drafter.propose(dice, min(steps, T - 1 - a))
        for k, q in enumerate(dice.laws):
            torch.testing.assert_close(model.unembed(ahead[k][0, a]).softmax(-1), q, rtol=0, atol=1e-10)


def test_a_training_row_sees_the_text_up_to_its_token_and_the_features_up_to_its_anchor():
    model, draft, T, steps = tiny_gpt(3), random_draft(), len(TEXT), 3
    embedded, features = embed(model, TEXT), model.hidden(torch.tensor([TEXT]))
    before, nudge = draft_ahead(draft, embedded, features, steps), torch.linspace(0.1, 1.0, 8, dtype=torch.float64) ** 2
    for place in range(T):
        spot = torch.zeros(T, 1, dtype=torch.float64)
        spot[place] = 1
        token_moved = draft_ahead(draft, embedded + spot * nudge, features, steps)
        feature_moved = draft_ahead(draft, embedded, features + spot * nudge, steps)
        for k in range(steps):
            for a in range(T - 1 - k):
                sees_token, sees_feature = 1 <= place <= a + k + 1, place <= a
                assert torch.equal(token_moved[k][0, a], before[k][0, a]) != sees_token
                assert torch.equal(feature_moved[k][0, a], before[k][0, a]) != sees_feature


def test_the_loss_of_depth_k_compares_the_guess_with_the_targets_law_k_places_on():
    model, draft, T = tiny_gpt(3), random_draft(), len(TEXT)
    total, weights = 0.0, [FEATURE.weight ** k for k in range(FEATURE.steps_ahead)]
    for k, weight in enumerate(weights):
        gaps = []
        for a in range(T - 1 - k):
            p = model(torch.tensor([TEXT[:a + k + 2]]))[0, -1].softmax(-1)             # of the token after x_{a+k+1}
            q = slow_laws(model, draft, TEXT[:a + 2], TEXT[a + 2:a + k + 2])[k]
            gaps.append(float((p * (p / q).log()).sum()))
        total += weight * sum(gaps) / len(gaps)
    loss = feature_loss(draft, model, torch.tensor([TEXT]), FEATURE, 0.0)
    assert float(loss) == pytest.approx(total / sum(weights), rel=1e-5)


def test_the_gradient_of_each_depth_is_that_of_finite_differences():
    model, draft, steps = tiny_gpt(3), random_draft(), 3
    embedded, features = embed(model, TEXT), model.hidden(torch.tensor([TEXT]))
    score = lambda k: draft_ahead(draft, embedded, features, steps)[k].sin().sum()
    dice = torch.Generator().manual_seed(0)
    along = [torch.randn(weight.shape, generator=dice, dtype=torch.float64) for weight in draft.parameters()]

    def moved(size: float, k: int) -> float:
        for weight, direction in zip(draft.parameters(), along):
            weight.add_(size * direction)
        value = float(score(k))
        for weight, direction in zip(draft.parameters(), along):
            weight.sub_(size * direction)
        return value

    for k in range(steps):
        with torch.enable_grad():
            gradients = torch.autograd.grad(score(k), list(draft.parameters()))
        assert all(gradient.abs().max() > 1e-6 for gradient in gradients[:2]), "fc"
        assert all(gradient.abs().max() > 1e-6 for gradient in gradients if gradient.ndim == 2), "and the layer"
        slope = sum(float((gradient * direction).sum()) for gradient, direction in zip(gradients, along))
        assert slope == pytest.approx((moved(1e-6, k) - moved(-1e-6, k)) / 2e-6, rel=1e-5)


def test_it_learns_a_short_text_by_heart_at_every_depth():
    model, draft = tiny_gpt(5), random_draft()
    text = generate(model, [1, 2], max_new_tokens=12, dice=SeededDice(0)).text_ids
    optimiser = torch.optim.Adam(draft.parameters(), lr=3e-2)
    with torch.enable_grad():
        for _ in range(80):
            optimiser.zero_grad()
            feature_loss(draft, model, torch.tensor([text]), FEATURE, 0.0).backward()
            optimiser.step()
    for k in range(3):
        q = torch.stack([slow_laws(model, draft, text[:a + 2], text[a + 2:a + k + 2])[k] for a in range(12 - k)])
        p = model(torch.tensor([text]))[0, k + 1:-1].softmax(-1)
        assert float(torch.minimum(p, q).sum(-1).mean()) > 0.95
