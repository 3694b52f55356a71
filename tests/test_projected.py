"""The projected KV cache: another model when it verifies, an exact draft when it drafts; and how far off it is."""

import pytest
import torch
import torch.nn.functional as F
from models import assert_like_a_fresh_prefill, tiny_gpt

from minispec import GPT, GPTConfig, Sampling, SeededDice, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law, total_variation
from minispec.decoding import Speculation, rules
from minispec.drafters import LMDrafter, TreeDrafter
from minispec.model.projected import LossyProjectedTarget, Projection, flat, projection_cost, sources
from minispec.training.projection import fit_projection, r_squared, tv_per_token


pytestmark = pytest.mark.usefixtures("no_gradients")


def narrow_gpt(V: int, seed: int = 1, context: int = 16, **sizes) -> GPT:
    """As tiny_gpt, of other sizes: one layer, 3 heads, 6 wide."""
    model = GPT(GPTConfig(**{"vocab_size": V, "context": context, "n_layer": 1, "n_head": 3, "n_embd": 6} | sizes))
    dice = torch.Generator().manual_seed(seed)
    for weight in model.double().parameters():
        weight.copy_(0.6 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return model.eval()


def text(V: int, count: int = 12, length: int = 12, seed: int = 3) -> torch.Tensor:
    return torch.randint(V, (count, length), generator=torch.Generator().manual_seed(seed))      # (B, T)


def lossy(V: int, draft: GPT | None = None, **kwargs) -> LossyProjectedTarget:
    target, draft = tiny_gpt(V, **kwargs), draft or narrow_gpt(V, **kwargs)
    return LossyProjectedTarget(target, draft, fit_projection(draft, target, text(V)))


# --- two ways to use it -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
def test_as_the_verifier_it_gives_its_own_law_and_not_the_targets(rule):
    model = lossy(2)
    loop = output_law_by_rounds(lambda: Speculation(
        model, LMDrafter(model.draft, 2), (1, 0), max_new_tokens=4, rule=rule))
    assert law_error(loop, sequential_law(model, (1, 0), 4)) <= 1e-12, "exact, for the wrong model"
    assert law_error(loop, sequential_law(model.target, (1, 0), 4)) > 0.01


@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
def test_as_the_draft_it_leaves_the_targets_law_alone(rule):
    model = lossy(2)
    loop = output_law_by_rounds(lambda: Speculation(
        model.target, LMDrafter(model, 2), (1, 0), max_new_tokens=4, rule=rule))
    assert law_error(loop, sequential_law(model.target, (1, 0), 4)) <= 1e-12


# --- the model --------------------------------------------------------------------------------------------------------

def test_keys_and_values_are_the_draft_layers_mapped_and_everything_else_is_the_targets():
    model, tokens = lossy(5, draft=narrow_gpt(5, n_layer=2)), text(5, 1, 9)
    cache, own, drafted = model.new_cache(), model.target.new_cache(), model.draft.new_cache()
    logits = model(tokens, cache)
    model.draft(tokens, drafted)
    x = model.target.embed(tokens, torch.arange(9))
    causal = torch.ones(9, 9).tril().bool()
    for layer, block in enumerate(model.target.h):                # written out with single heads
        rows = flat(drafted.keys[layer][:, :, :9], drafted.values[layer][:, :, :9])
        guessed = rows @ model.projection.weight[layer].T + model.projection.bias[layer]             # (1, 9, 2 C)
        queries, out = block.attn.c_attn(block.ln_1(x))[..., :8], []
        for head in (slice(0, 4), slice(4, 8)):
            k, v = guessed[..., :8][..., head], guessed[..., 8:][..., head]
            scores = (queries[..., head] @ k.mT / 2).masked_fill(~causal, -torch.inf)
            out.append(scores.softmax(-1) @ v)
        stored = flat(cache.keys[2 + layer], cache.values[2 + layer])[:, :9]
        torch.testing.assert_close(stored, guessed, rtol=0, atol=1e-12)
        x = x + block.attn.c_proj(torch.cat(out, -1))
        x = x + block.mlp(block.ln_2(x))
    torch.testing.assert_close(logits, model.target.unembed(x), rtol=0, atol=1e-10)


def test_the_targets_own_key_and_value_weights_are_never_read():
    model, tokens = lossy(5), text(5, 2, 9)
    before = model(tokens)
    for block in model.target.h:
        block.attn.c_attn.weight[8:] = torch.nan
        block.attn.c_attn.bias[8:] = torch.nan
    assert torch.equal(model(tokens), before)


def test_a_layer_is_guessed_from_the_one_at_the_same_share_of_the_depth():
    sizes = lambda layers: GPTConfig(n_layer=layers)
    assert sources(sizes(2), sizes(8)) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sources(sizes(3), sizes(4)) == [0, 0, 1, 2] and sources(sizes(4), sizes(2)) == [0, 2]


def test_passes_with_a_cache_agree_with_one_pass_and_stop_at_the_context():
    model, tokens = lossy(5), text(5, 2, 16)
    cache = model.new_cache(batch=2)
    parts = [model(part, cache) for part in tokens.split([7, 1, 1, 7], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="17 positions do not fit the model's context of 16"):
        model(tokens[:, :1], cache)


def test_both_caches_follow_every_outcome_of_a_tree():
    model = lossy(5, draft=narrow_gpt(5, context=40, n_layer=2), context=40)       # two: one tells nothing of its mask
    drafter, dice, paths = TreeDrafter(model.draft, (3, 1, 1)), SeededDice(0), []
    run = Speculation(model, drafter, [1, 2, 3], max_new_tokens=34, rule=rules.Recursive(), sampling=Sampling(3.0))
    while not run.stop_reason:
        paths.append(run.round(dice).path)
        assert_like_a_fresh_prefill(model, run.cache, run.ids)    # the draft's layers and the target's
        assert len(run.cache.keys) == 4
    assert any(path and path[0] > 0 for path in paths), "a path was gathered to the front"


def test_greedy_output_is_the_lossy_models_own():
    model = lossy(6, context=40)
    fast = speculate(model, LMDrafter(model.draft, 4), [1, 2], max_new_tokens=30, sampling=Sampling(0))
    assert fast.tokens == generate(model, [1, 2], max_new_tokens=30, sampling=Sampling(0)).tokens


def test_it_may_be_its_own_draft_and_is_then_always_accepted():
    model = lossy(4, context=32)
    out = speculate(model, LMDrafter(model, 3), [1, 2], max_new_tokens=24, dice=SeededDice(2))
    assert all(len(r.path) == len(r.tokens) for r in out.trace.rounds)


# --- the fit and its meters -------------------------------------------------------------------------------------------

def test_fitted_to_itself_the_target_comes_back():
    target = tiny_gpt(5)
    projection = fit_projection(target, target, text(5), ridge=1e-10)
    held_out = text(5, seed=4)
    assert (r_squared(projection, target, target, held_out) - 1).abs().max() < 1e-8
    model = LossyProjectedTarget(target, target, projection)
    torch.testing.assert_close(model(held_out).softmax(-1), target(held_out).softmax(-1), rtol=0, atol=1e-6)
    assert tv_per_token(target, model, held_out) < 1e-6


def test_the_maps_are_where_the_penalised_error_has_no_slope():
    draft, target, windows, ridge = narrow_gpt(5), tiny_gpt(5), text(5), 0.01
    projection = fit_projection(draft, target, windows, ridge)
    caches = {model: model.new_cache(12, batch=12) for model in (draft, target)}
    for model, cache in caches.items():
        model(windows, cache)
    x = flat(caches[draft].keys[0], caches[draft].values[0]).flatten(0, 1)                           # (N, 2 C_d)
    for layer in range(2):
        y = flat(caches[target].keys[layer], caches[target].values[layer]).flatten(0, 1)             # (N, 2 C)
        weight, bias = (part[layer].clone().requires_grad_() for part in (projection.weight, projection.bias))
        with torch.enable_grad():
            penalty = ridge * x.square().sum(0).mean() * weight.square().sum()
            ((x @ weight.T + bias - y).square().sum() + penalty).backward()
        assert float(weight.grad.abs().max()) < 1e-8 and float(bias.grad.abs().max()) < 1e-8
        guess = x @ weight.T + bias
        for side, columns in enumerate((slice(0, 8), slice(8, 16))):                                 # R^2 as defined
            missed, spread = (y - guess)[:, columns].square().sum(), (y - y.mean(0))[:, columns].square().sum()
            got = r_squared(projection, draft, target, windows)[layer, side]
            assert float(got) == pytest.approx(float(1 - missed / spread), abs=1e-10)
            assert 0 < float(got) < 1


def test_single_precision_models_are_fitted_in_double_and_get_maps_of_their_own():
    draft, target, windows = narrow_gpt(5), tiny_gpt(5), text(5)
    wanted = fit_projection(draft, target, windows)
    got = fit_projection(draft.float(), target.float(), windows)
    assert got.weight.dtype == got.bias.dtype == torch.float32
    for layer in (0, 1):                                          # guesses agree; of weights there are many as good
        guesses = [F.linear(flat_rows(draft, windows), maps.weight[layer].float(), maps.bias[layer].float())
                   for maps in (wanted, got)]
        torch.testing.assert_close(*guesses, rtol=0, atol=2e-4)


def flat_rows(model: GPT, windows: torch.Tensor) -> torch.Tensor:
    """Keys and values of the first layer, (B, T, 2 C)."""
    cache = model.new_cache(windows.shape[1], batch=len(windows))
    model(windows, cache)
    return flat(cache.keys[0], cache.values[0])


def test_the_meter_is_the_mean_distance_over_all_positions_of_all_windows():
    model, windows = lossy(4), text(4, 3, 6)
    apart = [float((model(window[None, :t])[0, -1].softmax(-1) - model.target(window[None, :t])[0, -1].softmax(-1))
                   .abs().sum() / 2) for window in windows for t in range(1, 7)]
    assert tv_per_token(model.target, model, windows) == pytest.approx(sum(apart) / 18, abs=1e-6)


def test_the_law_of_n_tokens_drifts_by_at_most_the_sum_of_the_tokens_distances():
    model, n = lossy(2), 5
    own = sequential_law(model.target, (1,), n)
    drift = total_variation(sequential_law(model, (1,), n), own)
    meters = {out: tv_per_token(model.target, model, torch.tensor([(1, *out[:-1])])) for out in own}
    expected = sum(own[out] * meters[out] for out in own)         # of the mean distance at the n places, under p
    first = tv_per_token(model.target, model, torch.tensor([[1]]))
    assert first - 1e-6 <= drift <= n * expected + 1e-6
    assert 0.01 < drift


def test_what_it_could_save_is_a_sixth_and_what_it_adds_is_more():
    draft, target = GPTConfig(n_layer=2, n_head=4, n_embd=256), GPTConfig()
    layer, saved, added = projection_cost(draft, target)
    block = GPT(GPTConfig(vocab_size=8, context=8, n_layer=1)).h[0]
    assert layer == sum(weight.numel() for weight in block.parameters() if weight.ndim == 2)
    assert saved * 6 == layer and saved == block.attn.c_attn.weight[384:].numel()
    assert added == Projection(torch.zeros(1, 768, 512), torch.zeros(1, 768), 6).weight.numel() > saved


def test_misfits_are_refused():
    target, draft = tiny_gpt(3), narrow_gpt(3)
    projection = fit_projection(draft, target, text(3))
    with pytest.raises(ValueError, match="a draft of 4 tokens and a context of 16 can't stand in for a target of 3"):
        LossyProjectedTarget(target, narrow_gpt(4), projection)
    with pytest.raises(ValueError, match="a context of 8 can't stand in"):
        LossyProjectedTarget(target, narrow_gpt(3, context=8), projection)
    with pytest.raises(ValueError, match=r"weight is \(2, 16, 12\), this pair needs \(2, 16, 16\)"):
        LossyProjectedTarget(target, tiny_gpt(3), projection)
