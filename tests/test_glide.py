"""A draft that reads the target's cache: what each row may see, in training and in use; the loop stays exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import assert_like_a_fresh_prefill, row, tiny_gpt

from minispec import GPT, GPTConfig, Sampling, SeededDice, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.drafters.glide import CrossAttention, GlideConfig, GlideDraft, GlideDrafter, load_glide_draft
from minispec.model import save_model
from minispec.model.listening import Listening
from minispec.training import glide as training
from minispec.training.data import Mixture
from minispec.training.glide import CONTROL, GLIDE, block_views, distill_glide, glide_loss
from minispec.training.train import Schedule

SIZES = dict(n_layer=2, n_head=2, n_embd=8, target_heads=2, target_head_dim=4)


pytestmark = pytest.mark.usefixtures("no_gradients")


def glide(V: int, seed: int = 1, context: int = 16, **sizes) -> GlideDraft:
    """Every parameter random, as in tiny_gpt."""
    draft = GlideDraft(GlideConfig(V, context, **SIZES | sizes)).double()
    dice = torch.Generator().manual_seed(seed)
    for name, weight in draft.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return draft.eval()


def read(target: GPT, ids):
    """The target's cache after reading `ids`."""
    cache = target.new_cache(len(ids))
    target(row(ids), cache)
    return cache


class Says(SeededDice):
    """Draws a given text, token by token; accepts everything."""

    def __init__(self, text):
        super().__init__(0)
        self.text, self.laws = list(text), []

    def draw(self, probs):
        self.laws.append(probs)
        return self.text.pop(0)


# --- drafting ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("prompt, sampling", [((1, 0), Sampling(1.3)), ((1,), Sampling(1.3))], ids=["two", "one"])
def test_the_loop_has_the_targets_law(rule, prompt, sampling):
    target, draft = Listening(tiny_gpt(2)), glide(2)
    loop = output_law_by_rounds(lambda: Speculation(
        target, GlideDrafter(target, draft, 2), prompt, max_new_tokens=5, rule=rule, sampling=sampling))
    assert law_error(loop, sequential_law(target.model, prompt, 5, sampling=sampling)) <= 1e-12


def test_greedy_output_is_plain_decodings():
    target = Listening(tiny_gpt(6, context=40))
    drafter = GlideDrafter(target, glide(6, context=40), 4)
    fast = speculate(target, drafter, [1, 2], max_new_tokens=30, sampling=Sampling(0))
    assert fast.tokens == generate(target, [1, 2], max_new_tokens=30, sampling=Sampling(0)).tokens


@pytest.mark.parametrize("prompt", [[1, 0, 2], [1]], ids=["three", "one"])
def test_q_is_what_the_rounds_so_far_say_it_is_and_both_caches_follow(prompt):
    model, draft = tiny_gpt(3, context=48), glide(3, context=48)
    target = Listening(model)
    speculate(target, GlideDrafter(target, draft, 2), [2, 2, 2, 2], max_new_tokens=3)     # leaves another text behind
    drafter, dice = GlideDrafter(target, draft, 2, Sampling(4.0)), SeededDice(5)
    run = Speculation(target, drafter, prompt, max_new_tokens=40, sampling=Sampling(4.0))
    views, lags = list(range(len(prompt) - 1)), set()             # of each row in the draft's cache
    while not run.stop_reason:
        ids, base = list(run.ids), len(run.ids) - 1               # the target has read all but the last of them
        lags.add(run.drafter.lag)
        r = run.round(dice)
        tokens = ids + list(r.tokens)
        for k in range(len(r.tokens)):
            for place in range(len(views), base + k + 1):
                views.append(min(place, base))
            fresh = recompute(draft, model, tokens[:base + k + 1], views, temperature=4.0)
            assert [r.draft_top[k - 1][x] for x in range(3)] == pytest.approx(fresh.tolist(), rel=0, abs=1e-10)
        views = views[:min(len(views), base + 1 + len(r.path))]
        assert run.drafter.cache_length() == len(views)
        assert_like_a_fresh_prefill(model, run.cache, run.ids)
    assert lags == {0, 1}, "rejections and full acceptances were both seen"


def recompute(draft, model, ids, views, temperature=1.0):
    """The law after `ids`, in one pass: no draft cache, and a target that has read the text itself."""
    return draft(row(ids), target_cache=read(model, ids), views=torch.tensor(views))[0, -1].div(temperature).softmax(-1)


def test_without_reading_it_is_an_ordinary_draft():
    target, draft = Listening(tiny_gpt(3)), glide(3, reads_target=False)
    assert not any("cross" in name for name, _ in draft.named_parameters())
    assert torch.equal(draft(row([0, 1, 2]), target_cache=read(target.model, [0, 1, 2])), draft(row([0, 1, 2])))
    plain = GPT(GPTConfig(3, 16, 2, 2, 8)).double()
    plain.load_state_dict(draft.state_dict())
    torch.testing.assert_close(draft(row([0, 1, 2])), plain(row([0, 1, 2])), rtol=0, atol=1e-12)
    assert len(speculate(target, GlideDrafter(target, draft, 3), [1, 0], max_new_tokens=9).tokens) == 9


def test_it_stops_at_the_context_and_at_the_room():
    target = Listening(tiny_gpt(3, context=12))
    out = speculate(target, GlideDrafter(target, glide(3, context=12)), [1, 0], max_new_tokens=50)
    assert out.stop_reason == "context" and len(out.text_ids) == 12
    short = speculate(target, GlideDrafter(target, glide(3, context=6)), [1, 0], max_new_tokens=9)
    assert len(short.tokens) == 9, "past the draft's context the target goes on alone"


# --- what a row sees --------------------------------------------------------------------------------------------------

def test_cross_attention_by_hand_and_nothing_from_nothing():
    draft = glide(3)
    cross, dice = draft.h[0].cross, torch.Generator().manual_seed(0)
    x, keys, values = (torch.randn(shape, generator=dice, dtype=torch.float64)
                       for shape in ((1, 3, 8), (1, 2, 5, 4), (1, 2, 5, 4)))
    out = cross(x, keys, values, torch.tensor([0, 2, 5]))[0]
    assert torch.equal(out[0], torch.zeros(8, dtype=torch.float64))
    for place, view in ((1, 2), (2, 5)):
        query, heads = cross.q_proj(x)[0, place], []
        for head in (0, 1):
            weights = (keys[0, head, :view] @ query[4 * head:4 * head + 4] / 2).softmax(-1)          # (view,)
            heads.append(weights @ values[0, head, :view])
        torch.testing.assert_close(out[place], cross.o_proj(torch.cat(heads)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_row_is_reached_by_the_target_positions_it_may_see_and_by_no_other(layers):
    target, draft, ids = tiny_gpt(3), glide(3, n_layer=layers), [0, 1, 2, 1, 0, 2, 0]
    views, cache = block_views(7, 3, 1), read(target, ids)
    logits = draft(row(ids), target_cache=cache, views=views)[0]
    for side in (cache.keys, cache.values):
        for place in range(7):
            for layer in range(2):
                kept = side[layer][:, :, place].clone()
                side[layer][:, :, place] += torch.randn(kept.shape, generator=torch.Generator().manual_seed(place))
                moved = (draft(row(ids), target_cache=cache, views=views)[0] != logits).any(-1)
                side[layer][:, :, place] = kept
                reached = place < views                           # with two layers, rows hear of it from older rows too
                assert torch.equal(moved, reached if layer >= 2 - layers else torch.zeros(7).bool())


def test_slots_past_the_targets_length_are_never_read():
    target, draft = tiny_gpt(3), glide(3)
    cache = target.new_cache()
    target(row([0, 1, 2, 1]), cache)
    before = draft(row([0, 1, 2, 1, 0, 2]), target_cache=cache)
    for rows in cache.keys + cache.values:
        rows[:, :, 4:] = torch.nan
    assert torch.equal(draft(row([0, 1, 2, 1, 0, 2]), target_cache=cache), before)


# --- training ---------------------------------------------------------------------------------------------------------

def test_blocks_by_hand():
    assert block_views(7, 3, 0).tolist() == [0, 0, 0, 3, 3, 3, 6]
    assert block_views(7, 3, 1).tolist() == [0, 0, 2, 2, 2, 5, 5]
    assert block_views(5, 1, 0).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("start", [0, 1, 4])
def test_the_rows_of_a_training_block_are_the_rows_of_a_round(start):
    """With one layer a row's own view is all that counts: keys of older rows do not depend on theirs."""
    model, draft, text = tiny_gpt(3), glide(3, n_layer=1), [0, 1, 2, 1, 0, 2, 0, 1, 1, 2]
    views = block_views(10, 5, (-start) % 5)
    trained = draft(row(text), target_cache=read(model, text), views=views)[0].softmax(-1)           # (10, V)
    target, dice = Listening(model), Says(text[start + 1:])
    run = Speculation(target, GlideDrafter(target, draft, 5), text[:start + 1], max_new_tokens=10)
    with torch.inference_mode():
        run.drafter.propose(dice, room=5)
    torch.testing.assert_close(torch.stack(dice.laws), trained[start:start + 5], rtol=0, atol=1e-10)


def test_the_loss_compares_each_row_with_the_targets_law_and_hides_what_is_not_there_yet():
    target, draft, text = tiny_gpt(3), glide(3), torch.tensor([[0, 1, 2, 1, 0, 2, 0, 1], [2, 2, 0, 1, 1, 0, 1, 2]])
    offsets = set()
    for progress in (0.0, 0.2, 0.6):
        offset = int(np.random.default_rng([GLIDE.seed, round(progress * 1e9)]).integers(5))
        offsets.add(offset)
        starts, gaps = [b for b in range(8) if (b + offset) % 5 == 0], []
        views = [max([b for b in starts if b <= t], default=0) for t in range(8)]
        for ids in text.tolist():
            for t in range(8):
                p = target(row(ids[:t + 1]))[0, -1].softmax(-1)
                q = recompute(draft, target, ids[:t + 1], views[:t + 1])
                mix = progress / GLIDE.anneal_until
                gaps.append((1 - mix) * float((p * (p / q).log()).sum()) + mix * float((p - q).abs().sum() / 2))
        assert float(glide_loss(draft, target, text, GLIDE, progress)) == pytest.approx(np.mean(gaps), rel=1e-5)
    assert len(offsets) > 1


def test_the_loss_teaches_the_draft_and_leaves_the_target_alone():
    target, draft = tiny_gpt(3), glide(3).requires_grad_(True)
    with torch.enable_grad():
        glide_loss(draft, target, row([0, 1, 2, 1, 0, 2, 0, 1]), GLIDE, 0.5).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in draft.h.parameters())
    assert all(weight.grad is None for weight in target.parameters())


def test_the_loss_runs_in_mixed_precision():
    target, draft, text = tiny_gpt(3).float(), glide(3).float().requires_grad_(True), row([0, 1, 2, 1, 0, 2, 0, 1])
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
        loss = glide_loss(draft, target, text, GLIDE, 0.5)
        loss.backward()
    assert float(loss.detach()) == pytest.approx(float(glide_loss(draft, target, text, GLIDE, 0.5)), rel=0.1)


def test_a_recipe_makes_the_same_draft_twice_which_learns_and_misfits_are_refused_first(tmp_path, monkeypatch):
    data, lines = Mixture({"text": np.array([0, 1, 2, 1] * 60, dtype=np.uint16)}, {"text": 1.0}), []
    monkeypatch.setattr(training, "training_data", lambda *_: data)
    monkeypatch.setattr(training, "fast_dtype", lambda _: None)
    target = tiny_gpt(3).float()
    recipe = replace(GLIDE, config=GlideConfig(3, 16, **SIZES), schedule=Schedule(20, 64, 16, 16, warmup=1))
    drafts = []
    for folder in ("a", "b"):                                     # each without the other's checkpoint
        monkeypatch.setattr(training, "cache_dir", lambda: tmp_path / folder)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.rand(len(drafts))                               # wherever the global dice stand
            drafts.append(distill_glide(recipe, target, None, lines.append))
    assert all(map(torch.equal, drafts[0].parameters(), drafts[1].parameters()))
    inputs = data.batch(1, 1, 4, 16)[:, :-1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(GLIDE.seed)
        untrained = GlideDraft(recipe.config)
    assert glide_loss(drafts[0], target, inputs, GLIDE, 0.0) < 0.9 * glide_loss(untrained, target, inputs, GLIDE, 0.0)
    with pytest.raises(ValueError, match="the target has 2 layers with 2 heads of 4"):
        distill_glide(replace(recipe, config=GlideConfig(3, 16, **SIZES | {"target_heads": 1})), target, None)


# --- files and misfits ------------------------------------------------------------------------------------------------

def test_the_recipes_draft_and_its_control_have_about_a_million_parameters():
    with torch.random.fork_rng(devices=[]):
        sizes = [GlideDraft(recipe.config).num_params() for recipe in (GLIDE, CONTROL)]
    assert 1.0e6 < sizes[0] < sizes[1] < 1.05 * sizes[0], "the control is not the smaller one"
    assert GLIDE.config.reads_target and not CONTROL.config.reads_target
    assert replace(CONTROL, name=GLIDE.name, config=GLIDE.config) == GLIDE, "and is trained alike"


def test_it_is_saved_and_loaded_and_misfits_are_refused(tmp_path):
    draft = glide(3).half().double()                              # float16 is what is stored
    save_model(tmp_path / "glide.safetensors", draft, {"steps": 1})
    loaded = load_glide_draft(tmp_path / "glide.safetensors", dtype=torch.float64)
    assert loaded.config == draft.config
    assert all(torch.equal(a, b) for a, b in zip(draft.parameters(), loaded.parameters(), strict=True))
    save_model(tmp_path / "gpt.safetensors", tiny_gpt(3), {})
    with pytest.raises(ValueError, match="gpt.safetensors holds no draft that reads its target"):
        load_glide_draft(tmp_path / "gpt.safetensors")
    target = Listening(tiny_gpt(3))                               # 2 layers with 2 heads of 4
    for other in (dict(target_heads=1), dict(target_head_dim=8), dict(n_layer=3)):
        with pytest.raises(ValueError, match="the target has 2 layers with 2 heads of 4"):
            GlideDrafter(target, glide(3, **other))
    with pytest.raises(ValueError, match="draft length must be a whole number >= 1"):
        GlideDrafter(target, draft, 0)
    with pytest.raises(ValueError, match="n_embd=10 must be a multiple of n_head=3"):
        replace(GlideConfig(), n_embd=10)
