"""The block drafter: one pass a proposal, only committed tokens in its cache, exact; and the mask it is trained by."""

import numpy as np
import pytest
import torch
from models import row, tiny_gpt

from minispec import GPT, Sampling, SeededDice, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.drafters.block import BlockDrafter, with_mask_token
from minispec.training.block import BLOCK, Packing, block_loss, pack

V, MASK = 3, 3


pytestmark = pytest.mark.usefixtures("no_gradients")


def block_gpt(seed: int = 1, context: int = 16) -> GPT:
    return tiny_gpt(V + 1, seed, context)


# --- drafting ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("sampling", [Sampling(1.2), Sampling(1.0, top_k=2)], ids=["all of p", "zeros"])
def test_the_loop_has_the_targets_law(rule, sampling):
    target = Memoised(tiny_gpt(V))
    loop = output_law_by_rounds(lambda: Speculation(
        target, BlockDrafter(block_gpt(), 2), (1, 0), max_new_tokens=4, rule=rule, sampling=sampling))
    assert law_error(loop, sequential_law(target.model, (1, 0), 4, sampling=sampling)) <= 1e-12


def test_q_is_what_a_fresh_pass_over_text_and_masks_gives_and_the_cache_holds_committed_tokens_only():
    draft = block_gpt(context=32)
    run = Speculation(tiny_gpt(V, context=32), BlockDrafter(draft, 4), [1, 0, 2], max_new_tokens=24)
    dice, depths = SeededDice(5), set()
    while not run.stop_reason:
        ids, r = list(run.ids), run.round(dice)
        fresh = draft(row(ids + [MASK] * (len(r.tokens) - 1)))[0, len(ids) - 1:, :V].softmax(-1)
        for k in range(len(r.tokens)):                            # V is small: the trace holds all of q
            assert [r.draft_top[k - 1][x] for x in range(V)] == pytest.approx(fresh[k].tolist(), rel=0, abs=1e-10)
        cache, prefill = run.drafter.cache, draft.new_cache()
        draft(row(run.ids[:cache.length]), prefill)
        for mine, wanted in zip(cache.keys + cache.values, prefill.keys + prefill.values):
            torch.testing.assert_close(mine[:, :, :cache.length], wanted[:, :, :cache.length], rtol=0, atol=1e-10)
        depths.add(len(r.path))
    assert len(depths) > 2, "short and long paths were both seen"


def test_one_draft_pass_a_round(monkeypatch):
    draft, passes = block_gpt(context=64), []
    monkeypatch.setattr(GPT, "forward", lambda model, *a, _real=GPT.forward, **k:
                        (passes.append(model is draft), _real(model, *a, **k))[1])
    out = speculate(tiny_gpt(V, context=64), BlockDrafter(draft, 5), [1, 0, 2], max_new_tokens=30, dice=SeededDice(0))
    drafted = sum(bool(r.tokens) for r in out.trace.rounds)
    assert sum(passes) == drafted + 1, "and one for the prompt"


def test_a_block_of_one_that_is_the_target_is_always_accepted():
    target = tiny_gpt(V, context=32)
    out = speculate(target, BlockDrafter(with_mask_token(target), 1), [1, 0], max_new_tokens=20, dice=SeededDice(1))
    assert all(len(r.path) == len(r.tokens) for r in out.trace.rounds)


def test_it_stops_at_the_context_and_at_the_room():
    out = speculate(tiny_gpt(V, context=12), BlockDrafter(block_gpt(context=12), 5), [1, 0], max_new_tokens=50)
    assert out.stop_reason == "context" and len(out.text_ids) == 12
    short = speculate(tiny_gpt(V, context=16), BlockDrafter(block_gpt(context=8), 5), [1, 0], max_new_tokens=14)
    assert len(short.tokens) == 14, "past the draft's context the target goes on alone"


# --- training ---------------------------------------------------------------------------------------------------------

def test_the_mask_of_a_small_packing_by_hand():
    packing = Packing(torch.tensor([0, 1, 2, 0, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 2]))
    assert packing.positions.tolist() == [0, 1, 2, 1, 2, 2]
    assert packing.mask.int().tolist() == [[1, 0, 0, 0, 0, 0],    # the text is causal and sees no mask
                                           [1, 1, 0, 0, 0, 0],
                                           [1, 1, 1, 0, 0, 0],
                                           [1, 0, 0, 1, 0, 0],    # (0, 1): the text up to its anchor, and itself
                                           [1, 1, 0, 0, 1, 0],
                                           [1, 0, 0, 1, 0, 1]]    # (0, 2): its own block's first mask too


@pytest.mark.parametrize("seed", range(5))
def test_packings_are_nested_inside_the_text_and_within_their_budget(seed):
    packing = pack(64, 6, np.random.default_rng(seed))
    anchors = [set(packing.anchor[packing.depth == k].tolist()) for k in range(6)]
    assert anchors[0] == set(range(64))
    for k in range(1, 6):
        assert anchors[k] <= anchors[k - 1], "a block with a hole"
        assert max(a + k for a in anchors[k]) < 64
        assert len(anchors[k]) <= round(64 * max(0.7 ** k, 0.2))
    assert len(packing.anchor) < 64 / (1 - 0.7) * 1.05


def test_nothing_a_row_may_not_attend_to_changes_its_logits():
    draft, packing = block_gpt(context=16), pack(6, 3, np.random.default_rng(0), keep=1.0)
    rows = torch.cat([torch.tensor([0, 1, 2, 1, 0, 2]), torch.full((len(packing.anchor) - 6,), MASK)])[None]
    logits = draft(rows, positions=packing.positions, mask=packing.mask)[0]
    for other in range(len(packing.anchor)):
        changed = rows.clone()
        changed[0, other] = (rows[0, other] + 1) % (V + 1)
        moved = (draft(changed, positions=packing.positions, mask=packing.mask)[0] != logits).any(-1)
        assert not (moved & ~packing.mask[:, other]).any(), "a row was reached that may not be"
        assert moved[packing.mask[:, other]].all(), "a row was not reached that should be"


def test_a_row_of_the_training_pass_predicts_what_the_drafter_would():
    draft, packing = block_gpt(context=16), pack(6, 3, np.random.default_rng(0), keep=1.0)
    text = [0, 1, 2, 1, 0, 2]
    rows = torch.cat([torch.tensor(text), torch.full((len(packing.anchor) - 6,), MASK)])[None]
    logits = draft(rows, positions=packing.positions, mask=packing.mask)[0]
    for a, k, got in zip(packing.anchor.tolist(), packing.depth.tolist(), logits):
        torch.testing.assert_close(got, draft(row(text[:a + 1] + [MASK] * k))[0, -1], rtol=0, atol=1e-10)


def test_the_loss_compares_each_row_with_the_targets_law_of_the_token_it_stands_for():
    target, block, text = tiny_gpt(V, 0, context=16), block_gpt(context=16), [0, 1, 2, 1, 0, 2, 0, 1]
    packing = pack(8, BLOCK.depths, np.random.default_rng([BLOCK.seed, 0]))
    gaps = []
    for a, k in zip(packing.anchor.tolist(), packing.depth.tolist()):
        p = target(row(text[:a + k + 1]))[0, -1].softmax(-1)      # of token a + k + 1, by a target that has read so far
        q = block(row(text[:a + 1] + [MASK] * k))[0, -1, :V].softmax(-1)
        gaps.append(float((p * (p / q).log()).sum()))
    assert float(block_loss(block, target, row(text), BLOCK, 0.0)) == pytest.approx(np.mean(gaps), rel=1e-5)
