"""The GPT and its cache: every way of splitting, masking, rolling back and gathering equals one fresh pass (1e-10)."""

import pytest
import torch

from minispec.model.gpt import GPT, GPTConfig

TIGHT = dict(rtol=0, atol=1e-10)                                   # float64
TOKENS = [3, 1, 4, 1, 5, 2, 6, 5, 3, 7]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]

# The tree        rows see:   0  1  2  3  4      children of the last committed token: 0 and 1
#    0 ── 2                   1  0  0  0  0
#    0 ── 3                   0  1  0  0  0
#    1 ── 4                   1  0  1  0  0
#                             1  0  0  1  0
#                             0  1  0  0  1
TREE_MASK = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]).bool()
TREE_DEPTHS = torch.tensor([0, 0, 1, 1, 1])
TREE_TOKENS = [2, 7, 5, 0, 5]
TREE_PATHS = [[0], [1], [0, 2], [0, 3], [1, 4]]                    # from the top to each node


pytestmark = pytest.mark.usefixtures("no_gradients")


def random_model(seed: int = 0, device: str = "cpu") -> GPT:
    """Every parameter random, norms and biases too, and large enough that a wrong one shows in the logits."""
    model = GPT(GPTConfig(vocab_size=8, context=16, n_layer=2, n_head=2, n_embd=8)).double()
    dice = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return model.to(device).eval()


def row(tokens: list[int], device: str = "cpu") -> torch.Tensor:
    return torch.tensor([tokens], device=device)                   # (1, T)


def contents(cache) -> torch.Tensor:
    """All that the cache holds: (2, L, B, H, length, D)."""
    keys, values = ([rows[:, :, :cache.length] for rows in side] for side in (cache.keys, cache.values))
    return torch.stack([torch.stack(keys), torch.stack(values)])


# --- one pass or many --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("split", [[10], [1] * 10, [9, 1], [1, 9], [4, 6], [3, 1, 1, 5], [2, 3, 4, 1]])
def test_a_cached_pass_in_any_split_equals_one_uncached_pass(split, device):
    model, tokens = random_model(device=device), torch.tensor([TOKENS, TOKENS[::-1]], device=device)     # (2, T)
    cache = model.new_cache(batch=2)
    parts = [model(part, cache) for part in tokens.split(split, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), **TIGHT)
    assert cache.length == len(TOKENS)


def test_no_position_sees_a_later_token():
    model = random_model()
    changed = TOKENS[:6] + [0] + TOKENS[7:]
    before, after = model(row(TOKENS)), model(row(changed))
    torch.testing.assert_close(before[:, :6], after[:, :6], **TIGHT)
    assert (before[:, 6:] - after[:, 6:]).abs().amax(-1).min() > 1e-3                  # and every later one does


@pytest.mark.parametrize("past", [0, 4])
def test_the_three_parts_and_layer_slices_equal_the_whole_pass(past):
    model, whole, parts = random_model(), random_model().new_cache(), random_model().new_cache()
    if past:
        model(row(TOKENS[:past]), whole), model(row(TOKENS[:past]), parts)
    x = model.embed(row(TOKENS[past:]), torch.arange(past, len(TOKENS)))
    x = model.run_layers(x, 0, 1, cache=parts)
    assert parts.length == past                                    # run_layers writes, but does not advance
    x = model.run_layers(x, 1, cache=parts, at=past)
    parts.advance(len(TOKENS) - past)
    torch.testing.assert_close(model.unembed(x), model(row(TOKENS[past:]), whole), **TIGHT)
    torch.testing.assert_close(contents(parts), contents(whole), **TIGHT)


def test_the_head_is_the_token_embedding_and_is_counted_once():
    model, config = random_model(), random_model().config
    before = model(row([1, 2]))
    model.wte.weight[7] *= 2                                       # token 7 isn't in the input: only the head changes
    torch.testing.assert_close(model(row([1, 2]))[..., 7], before[..., 7] * 2, **TIGHT)
    C, V, L, M = config.n_embd, config.vocab_size, config.n_layer, config.context
    assert model.num_params() == V * C + M * C + L * (12 * C * C + 13 * C) + 2 * C


# --- positions and masks -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("past", [0, 3])
def test_default_positions_and_mask_are_the_causal_ones_written_out(past):
    model, implicit, explicit = random_model(), random_model().new_cache(), random_model().new_cache()
    if past:
        model(row(TOKENS[:past]), implicit), model(row(TOKENS[:past]), explicit)
    count = len(TOKENS) - past
    given = model(row(TOKENS[past:]), explicit, positions=torch.arange(past, past + count),
                  mask=torch.ones(count, count).tril().bool())
    torch.testing.assert_close(model(row(TOKENS[past:]), implicit), given, **TIGHT)


def test_positions_say_where_a_token_stands():
    model = random_model()
    shifted = model(row([3, 1]), positions=torch.tensor([5, 6]))
    expected = model.unembed(model.run_layers(model.wte(row([3, 1])) + model.wpe.weight[5:7]))
    torch.testing.assert_close(shifted, expected, **TIGHT)
    assert (shifted - model(row([3, 1]))).abs().max() > 1e-3


def test_a_position_hidden_by_the_mask_might_as_well_not_be_there():
    model = random_model()
    cache, without = model.new_cache(), model.new_cache()
    model(row([3, 1, 4]), cache)
    model(row([3, 1]), without)                                    # the 4 at position 2 was never written
    positions, mask = torch.tensor([3, 4]), torch.tensor([[0, 1, 0], [0, 1, 1]]).bool()      # (2, 3): K reaches back
    hidden = model(row([5, 2]), cache, positions=positions, mask=mask)
    torch.testing.assert_close(hidden, model(row([5, 2]), without, positions=positions), **TIGHT)


@pytest.mark.parametrize("past", [0, 1, 4])
def test_every_tree_node_sees_the_committed_tokens_and_its_own_path_only(past):
    model = random_model()
    cache = model.new_cache()
    if past:
        model(row(TOKENS[:past]), cache)
    logits = model(row(TREE_TOKENS), cache, positions=past + TREE_DEPTHS, mask=TREE_MASK)          # (1, 5, V)
    for node, path in enumerate(TREE_PATHS):
        fresh = model(row(TOKENS[:past] + [TREE_TOKENS[i] for i in path]))[:, -1]
        torch.testing.assert_close(logits[:, node], fresh, **TIGHT)


@pytest.mark.parametrize("shape", [(1, 2), (3, 3), (2, 1), (2, 6)])
def test_a_mask_of_another_shape_is_refused(shape):
    model = random_model()
    cache = model.new_cache()
    model(row(TOKENS[:3]), cache)
    with pytest.raises(ValueError, match=r"mask must be \(2, K\) with 2 <= K <= 5"):
        model(row([1, 2]), cache, mask=torch.ones(shape).bool())


# --- limits ------------------------------------------------------------------------------------------------------------

def test_a_sequence_past_the_context_is_refused_and_the_cache_stays_as_it_was():
    model = random_model()
    cache = model.new_cache()
    assert model(row([1] * 16), cache).shape == (1, 16, 8)          # the context itself fits
    with pytest.raises(ValueError, match="17 positions do not fit the model's context of 16"):
        model(row([1]), cache)
    with pytest.raises(ValueError, match="17 positions"):
        model(row([1] * 17))
    assert cache.length == 16


def test_a_write_past_the_capacity_is_refused_and_the_cache_goes_on_working():
    model = random_model()
    cache = model.new_cache(capacity=4)
    model(row(TOKENS[:3]), cache)
    with pytest.raises(ValueError, match=r"cache full: positions 3\.\.4 do not fit a capacity of 4"):
        model(row(TOKENS[3:5]), cache)
    torch.testing.assert_close(model(row(TOKENS[3:4]), cache)[:, -1], model(row(TOKENS[:4]))[:, -1], **TIGHT)


@pytest.mark.parametrize("fields, message", [
    (dict(vocab_size=0), "vocab_size must be a whole number >= 1, got 0"),
    (dict(context=-1), "context must be a whole number >= 1, got -1"),
    (dict(n_layer=2.0), "n_layer must be a whole number >= 1, got 2.0"),
    (dict(n_layer=True), "n_layer must be a whole number >= 1, got True"),
    (dict(n_head=None), "n_head must be a whole number >= 1, got None"),
    (dict(n_embd="32"), "n_embd must be a whole number >= 1, got '32'"),
    (dict(n_embd=10, n_head=4), "n_embd=10 must be a multiple of n_head=4")])
def test_a_bad_config_is_refused_with_what_is_allowed(fields, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**fields)


# --- rollback, keep ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [0, 1, 5, 8])
def test_rollback_then_other_tokens_equals_a_fresh_cache(length, device):
    model = random_model(device=device)
    cache, fresh = model.new_cache(), model.new_cache()
    model(row(TOKENS[:8], device), cache)
    cache.rollback(length)
    other = TOKENS[:length] + [0, 6, 2]
    logits = model(row([0, 6, 2], device), cache)
    torch.testing.assert_close(logits, model(row(other, device), fresh)[:, -3:], **TIGHT)
    torch.testing.assert_close(contents(cache), contents(fresh), **TIGHT)


@pytest.mark.parametrize("length", [-1, 4])
def test_rollback_goes_back_only(length):
    cache = random_model().new_cache()
    cache.advance(3)
    with pytest.raises(ValueError, match=f"cannot roll back to length {length}: the cache holds 3 positions"):
        cache.rollback(length)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("new", [[5], [5, 2, 6]])
def test_a_stale_slot_is_never_attended(poison, new):
    model = random_model()
    cache = model.new_cache()
    model(row(TOKENS[:8]), cache)
    cache.rollback(4)
    for rows in (*cache.keys, *cache.values):
        rows[:, :, cache.length:] = poison
    logits = model(row(new), cache)
    torch.testing.assert_close(logits, model(row(TOKENS[:4] + new))[:, 4:], **TIGHT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("path", [[], *TREE_PATHS])
def test_keep_leaves_a_path_as_if_only_it_had_been_written(path, device):
    model = random_model(device=device)
    cache, fresh = model.new_cache(), model.new_cache()
    model(row(TOKENS[:4], device), cache)
    model(row(TREE_TOKENS, device), cache, positions=4 + TREE_DEPTHS.to(device), mask=TREE_MASK.to(device))
    cache.keep(4, path)
    kept = TOKENS[:4] + [TREE_TOKENS[i] for i in path]
    model(row(kept, device), fresh)
    assert cache.length == len(kept)
    torch.testing.assert_close(contents(cache), contents(fresh), **TIGHT)
    torch.testing.assert_close(model(row([6], device), cache), model(row([6], device), fresh), **TIGHT)


def test_keep_gathers_rows_even_where_source_and_destination_overlap():
    cache = random_model().new_cache()
    cache.advance(8)
    for rows in (*cache.keys, *cache.values):
        rows[:] = torch.arange(16).view(1, 1, 16, 1)               # every slot holds its own index
    cache.keep(2, [1, 2, 3, 5])
    assert contents(cache)[0, 0, 0, 0, :, 0].tolist() == [0, 1, 3, 4, 5, 7]
    assert contents(cache)[1, 1, 0, 1, :, 3].tolist() == [0, 1, 3, 4, 5, 7]


@pytest.mark.parametrize("path", [[2], [0, 2], [-1], [1, 0], [0, 0]])
def test_keep_refuses_a_path_outside_its_rows_or_out_of_order(path):
    cache = random_model().new_cache()
    cache.advance(5)
    with pytest.raises(ValueError, match="must increase and stay within the 2 rows from 3 on"):
        cache.keep(3, path)
    assert cache.length == 5


def test_nothing_is_reallocated_during_a_generation():
    model = random_model()
    cache = model.new_cache()
    addresses = [rows.data_ptr() for rows in (*cache.keys, *cache.values)]
    model(row(TOKENS[:4]), cache)
    model(row([1]), cache)
    model(row(TREE_TOKENS), cache, positions=5 + TREE_DEPTHS, mask=TREE_MASK)
    cache.keep(5, [1, 4])
    cache.rollback(3)
    model(row([2, 6]), cache)
    assert [rows.data_ptr() for rows in (*cache.keys, *cache.values)] == addresses


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_new_cache_has_the_models_dtype_and_the_capacity_asked_for(dtype):
    model = random_model().to(dtype)
    assert model.new_cache().keys[1].shape == (1, 2, 16, 4)        # (B, H, M, D): M is the context
    assert model.new_cache(capacity=5, batch=3).values[0].shape == (3, 2, 5, 4)
    assert {rows.dtype for rows in model.new_cache().keys} == {dtype}
