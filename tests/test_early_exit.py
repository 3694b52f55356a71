"""Drafting in the target's own layers and cache: the same streams, logits and cache, the same law, no row run twice;
and the co-training that makes a model exit early well."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import assert_like_a_fresh_prefill, row, tiny_gpt

from minispec import GPT, GPTConfig, Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.decoding.tree import WITHOUT_REPLACEMENT
from minispec.drafters import FallbackDrafter, NgramDrafter, TreeDrafter
from minispec.drafters.early_exit import EarlyExitDrafter
from minispec.model import save_model
from minispec.model.shared_backbone import SharedBackbone
from minispec.training import early_exit
from minispec.training.data import Mixture
from minispec.training.early_exit import (EARLY_EXIT, CoTrainConfig, CoTraining, LowRank, co_train, co_training_loss,
                                          dropped_layers, exit_acceptance, load_co_trained, merged)
from minispec.training.train import Schedule


pytestmark = pytest.mark.usefixtures("no_gradients")


@torch.no_grad()
def deep_gpt(V: int = 3, seed: int = 0, context: int = 16, layers: int = 3) -> GPT:
    """As tiny_gpt, with more layers: float64, every parameter random."""
    with torch.random.fork_rng():
        model = GPT(GPTConfig(vocab_size=V, context=context, n_layer=layers, n_head=2, n_embd=8)).double()
    dice = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return model.eval()


def exit_stream(model: GPT, ids, exit: int) -> torch.Tensor:
    """The residual stream at the exit in one whole pass, (1, T, C)."""
    model.hidden(row(ids), streams=(streams := []))
    return streams[exit - 1]


def close(a, b) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-10)


def chain_pass(backbone, cache, tokens):
    """The verification pass of a chain, as the loop makes it -> (1, T, V)."""
    tree = TokenTree.chain(tokens[1:])
    return backbone(row(tokens), cache, positions=tree.depths() + cache.length, mask=tree.mask())


def prefilled(target, ids):
    cache = target.new_cache()
    target(row(ids), cache)
    return cache


# --- the law ----------------------------------------------------------------------------------------------------------

class Continuing(Speculation):
    """A run that the enumeration copies: the copied drafter is given the copied cache, as they share one in the loop.
    It sees to it that rounds do go on from what was drafted."""

    def round(self, dice):
        self.drafter.cache = self.cache
        r = super().round(dice)
        assert set(r.layer_tokens) == {len(r.tokens) + 1}
        return r


@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("layers, exit", [(2, 1), (3, 1), (3, 2)])
def test_the_loop_has_the_targets_law(layers, exit, rule):
    model, sampling = deep_gpt(2, layers=layers), Sampling(1.3)
    target = SharedBackbone(model, exit)
    loop = output_law_by_rounds(lambda: Continuing(
        target, EarlyExitDrafter(target, 2), (1, 0), max_new_tokens=4, rule=rule, sampling=sampling))
    assert law_error(loop, sequential_law(model, (1, 0), 4, sampling=sampling)) <= 1e-12


def test_the_loop_has_the_targets_law_with_zeros_a_stop_and_another_sampling_of_the_draft():
    model, sampling = deep_gpt(3, 1), Sampling(1.0, top_k=2)
    target = SharedBackbone(model, 1)
    loop = output_law_by_rounds(lambda: Continuing(
        target, EarlyExitDrafter(target, 3, Sampling(0.7)), (1, 0), max_new_tokens=4, sampling=sampling,
        stop_tokens=(2,)))
    assert law_error(loop, sequential_law(model, (1, 0), 4, sampling=sampling, stop_tokens=(2,))) <= 1e-12


def test_the_loop_has_the_targets_law_with_trees_of_another_draft():
    model, draft = deep_gpt(2), tiny_gpt(2, 1)
    loop = output_law_by_rounds(lambda: Speculation(
        SharedBackbone(model, 1), TreeDrafter(draft, (2, 1), origin=WITHOUT_REPLACEMENT), (1, 0), max_new_tokens=4,
        rule=rules.Recursive()))
    assert law_error(loop, sequential_law(model, (1, 0), 4)) <= 1e-12


@pytest.mark.parametrize("exit", [1, 2, 3])
def test_greedy_output_is_plain_decodings(exit):
    model = deep_gpt(6, context=40, layers=4)
    target = SharedBackbone(model, exit)
    plain = generate(model, [1, 2], max_new_tokens=30, sampling=Sampling(0))
    for drafter in (EarlyExitDrafter(target, 4), FallbackDrafter(NgramDrafter(3), EarlyExitDrafter(target, 2))):
        fast = speculate(target, drafter, [1, 2], max_new_tokens=30, sampling=Sampling(0),
                         rule=rules.ByOrigin(rules.Token(), rules.Match()))
        assert fast.tokens == plain.tokens
    assert generate(target, [1, 2], max_new_tokens=30, sampling=Sampling(0)).tokens == plain.tokens


# --- streams, logits, caches ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("exit", [1, 2])
def test_drafted_streams_and_the_passes_logits_and_cache_are_a_whole_passes(exit):
    model, ids = deep_gpt(5), [1, 4, 0, 2, 3, 1]
    target = SharedBackbone(model, exit)
    cache = prefilled(target, ids[:2])
    target.begin(cache)
    drafted = torch.stack([target.draft(token) for token in ids[2:5]])               # (3, V)
    stream = exit_stream(model, ids, exit)
    assert close(torch.cat(target.drafted.streams, dim=1), stream[:, 2:5])
    assert close(drafted, model.unembed(stream)[0, 2:5]) and cache.length == 2
    assert close(chain_pass(target, cache, ids[2:]), model(row(ids))[:, 2:]) and cache.length == 6
    assert_like_a_fresh_prefill(model, cache, [*ids, 0])


def test_every_round_p_q_and_the_cache_are_a_fresh_passes():
    model = deep_gpt(5, context=40)
    target = SharedBackbone(model, 1)
    run = Speculation(target, EarlyExitDrafter(target, 3), [1, 0], max_new_tokens=30)
    dice, lengths = SeededDice(3), set()
    while not run.stop_reason:
        ids, r = list(run.ids), run.round(dice)
        read = ids + r.tokens
        p = model(row(read))[0, len(ids) - 1:].softmax(-1)
        q = model.unembed(exit_stream(model, read, 1))[0, len(ids) - 1:].softmax(-1)
        table = lambda tops: torch.tensor([[top[x] for x in range(5)] for top in tops], dtype=torch.float64).view(-1, 5)
        assert close(table(r.target_top), p) and close(table(r.draft_top.values()), q[:-1])
        assert_like_a_fresh_prefill(model, run.cache, run.ids)
        assert r.draft_cache == (None, None, None)
        lengths.add(len(r.path))
    assert lengths == {0, 1, 2, 3}


# --- nothing stale ----------------------------------------------------------------------------------------------------

PREFIX, CHAIN = [1, 4, 0, 2], [3, 1, 4, 0]                         # all of CHAIN but its last token is drafted
TREE = TokenTree((1, 4, 0), (-1, -1, 1))                          # its tokens, two of them as siblings
CHAIN_MASK = TokenTree.chain(CHAIN[1:]).mask()


def drafted(prefix=PREFIX, exit=1):
    target = SharedBackbone(deep_gpt(5), exit)
    cache = prefilled(target, prefix)
    target.begin(cache)
    for token in CHAIN[:-1]:
        target.draft(token)
    return target, cache


def other_position(target, cache):                                # the same cache, one row shorter
    cache.rollback(3)
    return cache, PREFIX[:3]


def other_prefix(target, cache):                                  # the same cache and length, after other tokens
    cache.rollback(2)
    target(row([3, 3]), cache)
    return cache, [1, 4, 3, 3]


def verified_before(target, cache):                               # the round before, rolled back, then other tokens
    chain_pass(target, cache, CHAIN)
    cache.rollback(3)
    target(row([3]), cache)
    return cache, [1, 4, 0, 3]


def other_cache(target, cache):                                   # another generation, just as long
    return prefilled(target.model, [0, 0, 0, 0]), [0, 0, 0, 0]


def drafted_again(target, cache):                                 # a proposal that nobody verified, then another round
    cache.rollback(3)
    target.begin(cache)
    ids = [*PREFIX[:3], CHAIN[0]]
    assert close(target.draft(CHAIN[0]), target.model.unembed(exit_stream(target.model, ids, target.exit))[0, -1])
    return cache, PREFIX[:3]


def nothing(target, cache):
    return cache, PREFIX


@pytest.mark.parametrize("tokens", [CHAIN, [3, 0, 4, 0], [0, 1, 4, 0], CHAIN[:2], CHAIN[:3], [*CHAIN, 2]],
                         ids=["same", "second differs", "first differs", "shorter", "as drafted", "longer"])
@pytest.mark.parametrize("meanwhile", [nothing, other_position, other_prefix, verified_before, other_cache,
                                       drafted_again])
@pytest.mark.parametrize("exit", [1, 2])
def test_any_pass_after_drafting_is_an_ordinary_pass(meanwhile, tokens, exit):
    target, cache = drafted(exit=exit)
    cache, prefix = meanwhile(target, cache)
    logits = chain_pass(target, cache, tokens)
    assert close(logits, target.model(row(prefix + tokens))[:, len(prefix):])
    assert cache.length == len(prefix + tokens)
    assert_like_a_fresh_prefill(target.model, cache, [*prefix, *tokens, 0])


def tree_pass(model, cache):                                      # its first two rows are a chain
    return model(row(CHAIN), cache, positions=TREE.depths() + cache.length, mask=TREE.mask())


def siblings_in_chain_positions(model, cache):                    # positions alone would pass for a chain
    return model(row(CHAIN), cache, positions=torch.arange(4) + cache.length, mask=TREE.mask())


def chain_mask_in_sibling_positions(model, cache):                # the mask alone would
    return model(row(CHAIN), cache, positions=TREE.depths() + cache.length, mask=CHAIN_MASK)


def blind_to_part_of_the_prefix(model, cache):
    mask = torch.ones(4, 8).tril(4).bool()                        # (T, K) over all of the prefix
    mask[:, 1] = False
    return model(row(CHAIN), cache, positions=torch.arange(4) + cache.length, mask=mask)


def the_drafted_positions_one_slot_earlier(model, cache):
    cache.rollback(3)
    return model(row(CHAIN), cache, positions=torch.arange(4, 8), mask=CHAIN_MASK)


def without_mask_or_positions(model, cache):
    return model(row(CHAIN), cache)


@pytest.mark.parametrize("make", [tree_pass, siblings_in_chain_positions, chain_mask_in_sibling_positions,
                                  blind_to_part_of_the_prefix, the_drafted_positions_one_slot_earlier,
                                  without_mask_or_positions])
def test_passes_of_another_shape_too(make):
    target, cache = drafted()
    own = prefilled(target.model, PREFIX)
    assert close(make(target, cache), make(target.model, own))
    assert cache.length == own.length
    for mine, ordinary in zip(cache.keys + cache.values, own.keys + own.values):
        assert close(mine[:, :, :cache.length], ordinary[:, :, :cache.length])
    assert torch.equal(target(row(CHAIN)), target.model(row(CHAIN))), "without a cache"


def test_two_generations_of_one_backbone_do_not_meet():
    target = SharedBackbone(deep_gpt(5, context=40), 1)
    start = lambda prompt: Speculation(target, EarlyExitDrafter(target, 3), prompt, max_new_tokens=20)
    alone, dice = start([1, 2]), SeededDice(0)
    while not alone.stop_reason:
        alone.round(dice)
    first, second, dice, other = start([1, 2]), start([3, 0]), SeededDice(0), SeededDice(1)
    while not first.stop_reason:
        assert set(first.round(dice).layer_tokens) <= {1, 2, 3, 4}
        if not second.stop_reason:
            second.round(other)
    assert first.ids == alone.ids


# --- the counter ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("length", [1, 2, 5])
def test_every_layer_processes_a_rounds_rows_once(length):
    target, kinds = SharedBackbone(deep_gpt(4, context=96), 2), set()
    run = speculate(target, EarlyExitDrafter(target, length), [1, 0, 2], max_new_tokens=90, dice=SeededDice(1),
                    sampling=Sampling(2.0))
    for r in run.trace.rounds:
        assert r.layer_tokens == [len(r.tokens) + 1] * 3
        kinds.add("cut by the room" if len(r.tokens) < length else "all" if r.bonus else "rejected")
    assert kinds == {"cut by the room", "all", "rejected"}


def test_the_rows_are_those_that_the_layers_really_get():
    model = deep_gpt(4, context=32)
    target, seen = SharedBackbone(model, 1), [0, 0, 0]
    run = Speculation(target, EarlyExitDrafter(target, 3), [1, 0, 2], max_new_tokens=20)
    for layer, block in enumerate(model.h):
        block.register_forward_pre_hook(
            lambda _, inputs, layer=layer: seen.__setitem__(layer, seen[layer] + inputs[0].shape[1]))
    while not run.stop_reason:
        seen[:] = [0, 0, 0]
        assert run.round(SeededDice(0)).layer_tokens == seen
    assert target.take_layer_tokens() == [0, 0, 0]
    target(row([1, 2]))
    assert target.take_layer_tokens() == [2, 2, 2] and target.take_layer_tokens() == [0, 0, 0]


def test_with_another_draft_the_counter_shows_the_targets_rows_alone():
    target = SharedBackbone(deep_gpt(4), 1)
    run = speculate(target, TreeDrafter(tiny_gpt(4, 1), (2, 1)), [1, 0], max_new_tokens=8, rule=rules.Recursive())
    assert all(r.layer_tokens == [len(r.tokens) + 1] * 3 for r in run.trace.rounds)


# --- what is refused --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("exit", [0, 3, -1, 1.0, True])
def test_an_exit_outside_the_model_is_refused(exit):
    with pytest.raises(ValueError, match=f"exit must be a whole number from 1 to 2, got {exit}"):
        SharedBackbone(deep_gpt(), exit)


def test_a_length_below_one_and_another_target_are_refused():
    target = SharedBackbone(deep_gpt(), 1)
    with pytest.raises(ValueError, match="draft length must be a whole number >= 1, got 0"):
        EarlyExitDrafter(target, 0)
    for _ in range(2):                                            # before any generation of the backbone, and after one
        with pytest.raises(ValueError, match="its backbone must be the target"):
            speculate(target.model, EarlyExitDrafter(target), [1, 0, 2])
        speculate(target, EarlyExitDrafter(target), [1], max_new_tokens=3)


# --- co-training ------------------------------------------------------------------------------------------------------

RECIPE = CoTraining("tiny", {"text": 1.0}, Schedule(steps=30, batch_tokens=64, length=16, short_length=16, warmup=1,
                                                    learning_rate=0.02), exit=1, rank_below=4, rank_above=2, drop=0.5)


def recipe(exit_weight: float, drop: float) -> CoTraining:
    return replace(RECIPE, exit_weight=exit_weight, drop=drop)


def updates(model: GPT, seed: int = 0, zero: bool = False) -> LowRank:
    low_rank = LowRank(CoTrainConfig(1, 4, 2, model.config.n_layer, 8)).double()
    dice = torch.Generator().manual_seed(seed)
    for p in low_rank.parameters():
        p.copy_(0.3 * torch.randn(p.shape, generator=dice, dtype=torch.float64).half())      # float16 is what is stored
    if zero:
        for update in (u for layer in low_rank.h for u in layer):
            update.B.zero_()
    return low_rank


def by_hand(model: GPT, low_rank: LowRank) -> GPT:
    """The merged model, matrix by matrix."""
    changed = deep_gpt(model.config.vocab_size, layers=model.config.n_layer)
    changed.load_state_dict(model.state_dict())
    for block, (qkv, out, up, down) in zip(changed.h, low_rank.h):
        for linear, update in ((block.attn.c_attn, qkv), (block.attn.c_proj, out), (block.mlp.c_fc, up),
                               (block.mlp.c_proj, down)):
            linear.weight += update.B @ update.A
    return changed


def test_new_updates_change_nothing_and_merging_leaves_the_target_alone():
    model = deep_gpt(5)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.random.fork_rng():
        fresh = LowRank(CoTrainConfig(1, 4, 2, 3, 8)).double()
    same, other = merged(model, fresh), merged(model, updates(model))
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) and torch.equal(same.state_dict()[name], weight), name
        assert torch.equal(other.state_dict()[name], weight) == (not name.endswith(
            ("c_attn.weight", "c_proj.weight", "c_fc.weight"))), name
    assert close(other(row([1, 2, 3])), by_hand(model, updates(model))(row([1, 2, 3])))
    assert not other.training and not any(p.requires_grad for p in other.parameters())


def test_ranks_and_size():
    low_rank = LowRank(CoTrainConfig(EARLY_EXIT.exit, EARLY_EXIT.rank_below, EARLY_EXIT.rank_above, 8, 384))
    ranks = [{u.A.shape[0] for u in layer} | {u.B.shape[1] for u in layer} for layer in low_rank.h]
    assert ranks == [{64}] * 2 + [{8}] * 6
    assert low_rank.num_params() == 16 * 384 * (2 * 64 + 6 * 8)               # 2.2 MB in float16
    assert all(0.7 < update.A.norm(dim=1).mean() < 1.3 for layer in low_rank.h for update in layer)


def test_the_loss_by_hand():
    model, low_rank, text = deep_gpt(5), updates(deep_gpt(5)), [0, 1, 2, 3, 4, 1, 0]
    whole, nats, gaps = by_hand(model, low_rank), [], []
    for i in range(6):
        p = whole(row(text[:i + 1]))[0, -1].softmax(-1)
        q = whole.unembed(exit_stream(whole, text[:i + 1], 1))[0, -1].softmax(-1)
        nats.append(-float(p[text[i + 1]].log()))
        gaps.append(float((p * (p / q).log()).sum()))
    loss = co_training_loss(low_rank, model, row(text), recipe(0.7, 0), 0.0)
    assert float(loss) == pytest.approx(np.mean(nats) + 0.7 * np.mean(gaps), rel=1e-5)


def test_a_dropped_layer_is_not_there():
    model, low_rank, text = deep_gpt(5), updates(deep_gpt(5)), row([0, 1, 2, 3, 4, 1, 0])
    certain = recipe(1.0, 1.0)                                                         # the last layer's chance is 1
    progress = next(step / 99 for step in range(99) if dropped_layers(certain, 3, step / 99) == {2})
    shorter = deep_gpt(5, layers=2)
    shorter.load_state_dict({name: weight for name, weight in by_hand(model, low_rank).state_dict().items()
                             if not name.startswith("h.2")})
    wanted = co_training_loss(updates(shorter, zero=True), shorter, text, recipe(1.0, 0), 0)
    assert float(co_training_loss(low_rank, model, text, certain, progress)) == pytest.approx(float(wanted), rel=1e-6)


def test_layers_are_dropped_above_the_exit_the_later_the_likelier_and_always_alike():
    draws = [dropped_layers(EARLY_EXIT, 8, step / 1500) for step in range(1500)]
    share = np.array([np.mean([layer in dropped for dropped in draws]) for layer in range(8)])
    wanted = [0, 0, *(0.1 * (2 ** (layer / 7) - 1) for layer in range(2, 8))]
    assert not share[:2].any()
    assert np.abs(share - wanted).max() < 5 * (0.1 * 0.9 / 1500) ** 0.5                # five standard deviations
    state = torch.random.get_rng_state()
    assert draws == [dropped_layers(EARLY_EXIT, 8, step / 1500) for step in range(1500)]
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_exit_learns_from_the_last_layer_and_not_the_other_way_round():
    """Whether the exit's loss counts or not, layers above the exit get the same gradient."""
    model, low_rank = deep_gpt(5), updates(deep_gpt(5))

    def gradient(weight: float) -> list[torch.Tensor]:
        low_rank.zero_grad()
        with torch.enable_grad():
            co_training_loss(low_rank, model, row([0, 1, 2, 3, 4]), recipe(weight, 0), 0).backward()
        return [torch.cat([p.grad.flatten() for p in layer.parameters()]) for layer in low_rank.h]

    without, with_it = gradient(0.0), gradient(1.0)
    assert not torch.allclose(without[0], with_it[0]) and without[0].abs().max() > 0
    assert all(torch.equal(a, b) and a.abs().max() > 0 for a, b in zip(without[1:], with_it[1:]))


def test_co_training_raises_the_exits_acceptance(tmp_path, monkeypatch):
    data = Mixture({"text": np.random.default_rng(0).integers(0, 5, 400).astype(np.uint16)}, {"text": 1.0})
    monkeypatch.setattr(early_exit, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(early_exit, "mixture", lambda *_: data)
    monkeypatch.setattr(early_exit, "fast_dtype", lambda _: None)
    model, lines, state = deep_gpt(5).float(), [], torch.random.get_rng_state()
    with torch.enable_grad():
        low_rank = co_train(RECIPE, model, None, lines.append)
    assert torch.equal(state, torch.random.get_rng_state())
    before, after = (exit_acceptance(m, 1, data, length=16) for m in (model, merged(model, low_rank)))
    assert after > before + 0.1
    assert lines[0].startswith("before: validation loss of the last layer") and lines[-1].startswith("after: ")


def test_acceptance_of_the_exit_by_hand():
    model, text = deep_gpt(5), np.array([0, 1, 2, 3, 4] * 5, dtype=np.uint16)
    data, total = Mixture({"text": text}, {"text": 1.0}), []
    for window in data.batch(10_000, 0, 2, 8)[:, :-1]:
        for i in range(8):
            p = model(window[None, :i + 1])[0, -1].softmax(-1)
            q = model.unembed(exit_stream(model, window[:i + 1].tolist(), 2))[0, -1].softmax(-1)
            total.append(float(torch.minimum(p, q).sum()))
    assert exit_acceptance(model, 2, data, batches=1, size=2, length=8) == pytest.approx(np.mean(total), rel=1e-5)


def test_updates_are_saved_and_loaded_and_misfits_are_refused(tmp_path):
    model, path = deep_gpt(5), tmp_path / "early-exit.safetensors"
    save_model(path, updates(model), {"steps": 1})
    loaded, exit = load_co_trained(path, model)
    assert exit == 1 and loaded.wte.weight.dtype == torch.float64
    assert torch.allclose(loaded(row([1, 2, 3])), by_hand(model, updates(model))(row([1, 2, 3])), atol=1e-5)
    with pytest.raises(ValueError, match="the updates are for 3 layers of width 8, the target has 2 of width 8"):
        load_co_trained(path, tiny_gpt(5))
    save_model(tmp_path / "gpt.safetensors", model, {})
    with pytest.raises(ValueError, match="gpt.safetensors holds no co-trained updates"):
        load_co_trained(tmp_path / "gpt.safetensors", model)
    with pytest.raises(ValueError, match="exit=3 must be below n_layer=3"):
        CoTrainConfig(3, 4, 2, 3, 8)
    with pytest.raises(ValueError, match="rank_below must be a whole number >= 1, got 0"):
        CoTrainConfig(1, 0, 2, 3, 8)
