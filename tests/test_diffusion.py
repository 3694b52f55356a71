"""The block-diffusion drafter: what its rows see, one pass a proposal, a cache of context only, exact; its training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import TableLM, tiny_gpt

from minispec import GPT, GPTConfig, Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import law_error, output_law, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.decoding.dice import EnumeratingDice
from minispec.drafters import TableDrafter
from minispec.drafters.diffusion import DiffusionConfig, DiffusionDraft, DiffusionDrafter, load_diffusion_draft
from minispec.model import save_model
from minispec.model.listening import Listening
from minispec.training.diffusion import DIFFUSION, block_mask, diffusion_loss, draw_anchors

V = 3


pytestmark = pytest.mark.usefixtures("no_gradients")


def random_draft(layers: int = 2, seed: int = 0, width: int = 8, sources: tuple[int, ...] = (1, 2)) -> DiffusionDraft:
    """A float64 draft whose every parameter is random."""
    draft = DiffusionDraft(DiffusionConfig(width, 2, layers, sources)).double()
    dice = torch.Generator().manual_seed(seed)
    for name, weight in draft.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.data.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return draft


def heard(target: GPT, text) -> list[torch.Tensor]:
    """The residual streams of a pass over `text`, L of (1, T, C)."""
    streams = []
    target.hidden(torch.tensor([text]), streams=streams)
    return streams


def slow_logits(target: GPT, draft: DiffusionDraft, text, length: int) -> torch.Tensor:
    """The draft written out row by row and head by head: logits (length, V) of the tokens that follow `text`."""
    *before, last = text
    read = heard(target, before) if before else [torch.zeros(1, 0, 8).double()] * 2
    context = [draft.ln_context(draft.fuse(torch.cat([read[s - 1][0, i] for s in draft.config.sources])))
               for i in range(len(before))]
    rows = [(target.wte.weight[last] if k == 0 else draft.mask) + target.wpe.weight[len(before) + k]
            for k in range(length + 1)]
    for layer in draft.h:
        normed = [layer.ln_1(x) for x in rows]
        pairs = [layer.c_kv(c).chunk(2) for c in context + normed]
        keys, values = torch.stack([k for k, _ in pairs]), torch.stack([v for _, v in pairs])
        after = []
        for x, n in zip(rows, normed):
            heads = []
            for head in (slice(0, 4), slice(4, 8)):               # H = 2 heads of D = 4
                scores = keys[:, head] @ layer.c_q(n)[head] / 4 ** 0.5
                heads.append(scores.softmax(0) @ values[:, head])
            x = x + layer.c_proj(torch.cat(heads))
            after.append(x + layer.mlp(layer.ln_2(x)))
        rows = after
    return target.unembed(torch.stack(rows[1:]))


# --- drafting ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("vocabulary, prompt, sampling", [
    (2, (1, 0), Sampling(1.3)), (2, (1,), Sampling(1.3)), (V, (1, 0), Sampling(1.2, top_k=2))],
    ids=["all of p", "one token", "zeros"])
def test_the_loop_has_the_targets_law(layers, rule, vocabulary, prompt, sampling):
    target = Listening(tiny_gpt(vocabulary))
    loop = output_law_by_rounds(lambda: Speculation(
        target, DiffusionDrafter(target, random_draft(layers), 2), prompt, max_new_tokens=4, rule=rule,
        sampling=sampling))
    assert law_error(loop, sequential_law(target.model, prompt, 4, sampling=sampling)) <= 1e-12


@pytest.mark.parametrize("prompt", [[1, 0, 2], [1]], ids=["prompt", "one token"])
def test_q_is_the_slow_one_in_every_round_and_the_cache_holds_context_only(prompt):
    model, draft, dice, depths = tiny_gpt(V, context=32), random_draft(), SeededDice(5), set()
    target = Listening(model)
    target(torch.tensor([[2, 2, 2]]))                             # what was heard before must not matter
    run = Speculation(target, DiffusionDrafter(target, draft, 4), prompt, max_new_tokens=24)
    while not run.stop_reason:
        ids, r = list(run.ids), run.round(dice)
        slow = slow_logits(model, draft, ids, len(r.tokens)).softmax(-1) if r.tokens else []
        for k, q in enumerate(slow):                              # V is small: the trace holds all of q
            assert [r.draft_top[k - 1][x] for x in range(V)] == pytest.approx(q.tolist(), rel=0, abs=1e-10)
        cache, features = run.drafter.cache, draft.features(heard(model, run.ids[:-1]))
        assert cache.length == len(ids) - 1, "the context of every committed token but the last, and no row of a block"
        torch.testing.assert_close(run.drafter.heard, features[:, len(ids) - 1:], rtol=0, atol=1e-10)
        for layer, (keys, values) in enumerate(draft.context(features[:, :len(ids) - 1])):
            torch.testing.assert_close(cache.keys[layer][:, :, :len(ids) - 1], keys, rtol=0, atol=1e-10)
            torch.testing.assert_close(cache.values[layer][:, :, :len(ids) - 1], values, rtol=0, atol=1e-10)
        depths.add(len(r.path))
    assert len(depths) > 2, "short and long paths were both seen"


def test_one_draft_pass_a_round(monkeypatch):
    target, widths = Listening(tiny_gpt(V, context=64)), []
    monkeypatch.setattr(DiffusionDraft, "forward", lambda draft, x, *rest, _real=DiffusionDraft.forward:
                        (widths.append(x.shape[1]), _real(draft, x, *rest))[1])
    out = speculate(target, DiffusionDrafter(target, random_draft(), 5), [1, 0, 2], max_new_tokens=30)
    assert widths == [1 + len(r.tokens) for r in out.trace.rounds if r.tokens], "the anchor and the masks, nothing else"


def test_greedy_output_is_plain_decodings_and_the_context_is_its_end():
    target = Listening(tiny_gpt(V, context=24))
    plain = generate(target, [1, 0], max_new_tokens=50, sampling=Sampling(0))
    fast = speculate(target, DiffusionDrafter(target, random_draft(), 5), [1, 0], max_new_tokens=50,
                     sampling=Sampling(0))
    assert fast.tokens == plain.tokens and fast.stop_reason == "context" and len(fast.text_ids) == 24


def test_drafts_are_saved_and_loaded_and_misfits_are_refused(tmp_path):
    draft = random_draft().half().double()                        # float16 is what is stored
    save_model(tmp_path / "diffusion.safetensors", draft, {"steps": 1})
    before = torch.get_rng_state()
    loaded = load_diffusion_draft(tmp_path / "diffusion.safetensors", dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), before) and loaded.config == draft.config
    assert all(map(torch.equal, loaded.state_dict().values(), draft.state_dict().values()))
    save_model(tmp_path / "gpt.safetensors", tiny_gpt(3), {})
    with pytest.raises(ValueError, match="gpt.safetensors holds no diffusion draft"):
        load_diffusion_draft(tmp_path / "gpt.safetensors")
    target = Listening(tiny_gpt(3))
    with pytest.raises(ValueError, match="a draft of width 16 doesn't fit a target of width 8"):
        DiffusionDrafter(target, random_draft(width=16))
    with pytest.raises(ValueError, match=r"reads after layers \(1, 3\) doesn't fit a target of 2 layers"):
        DiffusionDrafter(target, random_draft(sources=(1, 3)))
    for length in (0, 2.5):
        with pytest.raises(ValueError, match="draft length must be a whole number >= 1"):
            DiffusionDrafter(target, draft, length)
    for config in ({"n_head": 5}, {"sources": ()}, {"sources": (0, 2)}):
        with pytest.raises(ValueError, match="n_embd=384 must be|sources must be"):
            DiffusionConfig(**config)


def test_the_default_fits_the_shipped_target():
    assert DiffusionConfig.fitting(GPTConfig()) == DiffusionConfig() == DiffusionConfig(384, 6, 1, (3, 6, 8))
    assert [DiffusionConfig.fitting(GPTConfig(n_layer=n)).sources for n in (1, 2, 3)] == [(1,), (1, 2), (1, 2, 3)]
    assert DiffusionDraft(DiffusionConfig()).num_params() == 2_217_984


# --- who sees what ----------------------------------------------------------------------------------------------------

def test_the_mask_of_two_small_blocks_by_hand():
    #                                                             text 0..4      block at 1  block at 2
    assert block_mask(torch.tensor([1, 2]), 2, 5).int().tolist() == [
        [1, 0, 0, 0, 0,   1, 1, 1,    0, 0, 0],
        [1, 0, 0, 0, 0,   1, 1, 1,    0, 0, 0],
        [1, 0, 0, 0, 0,   1, 1, 1,    0, 0, 0],
        [1, 1, 0, 0, 0,   0, 0, 0,    1, 1, 1],
        [1, 1, 0, 0, 0,   0, 0, 0,    1, 1, 1],
        [1, 1, 0, 0, 0,   0, 0, 0,    1, 1, 1]]


TEXT, ANCHORS, MASKS = [0, 1, 2, 1, 0, 2, 0, 1], torch.tensor([0, 2, 3, 5]), 2


def training_rows(target: GPT, draft: DiffusionDraft, text=TEXT) -> torch.Tensor:
    """Logits of all rows of the blocks at ANCHORS, (A, 1 + MASKS, V), as the training pass makes them."""
    positions = ANCHORS[:, None] + torch.arange(1 + MASKS)
    rows = draft(draft.block(target, torch.tensor([text])[:, ANCHORS], positions),
                 draft.context(draft.features(heard(target, text))), block_mask(ANCHORS, MASKS, len(text)))
    return target.unembed(rows)[0].unflatten(0, (len(ANCHORS), 1 + MASKS))


def test_a_row_of_the_training_pass_is_what_the_drafter_computes():
    target, draft = tiny_gpt(V), random_draft()
    for a, got in zip(ANCHORS.tolist(), training_rows(target, draft)):
        torch.testing.assert_close(got[1:], slow_logits(target, draft, TEXT[:a + 1], MASKS), rtol=0, atol=1e-10)


def test_a_block_is_reached_by_the_tokens_up_to_its_anchor_and_by_no_later_one():
    target, draft = tiny_gpt(V), random_draft()
    logits = training_rows(target, draft)
    for place in range(len(TEXT)):
        changed = [(x + (i == place)) % V for i, x in enumerate(TEXT)]
        moved = (training_rows(target, draft, changed) - logits).abs().amax(-1)              # (A, 1 + MASKS)
        reached = place <= ANCHORS
        assert (moved[reached] > 1e-9).all() and not moved[~reached].any()


def test_a_block_is_reached_by_the_context_before_its_anchor_and_by_its_own_rows_both_ways():
    target, draft = tiny_gpt(V), random_draft(layers=1)           # one layer: what reaches a row is what it attends to
    mask = block_mask(ANCHORS, MASKS, len(TEXT))
    features = draft.features(heard(target, TEXT))
    x = draft.block(target, torch.tensor([TEXT])[:, ANCHORS], ANCHORS[:, None] + torch.arange(1 + MASKS))
    before = draft(x, draft.context(features), mask)[0]           # (R, C)
    for other in range(mask.shape[1]):
        read, rows = features.clone(), x.clone()
        if other < len(TEXT):
            read[0, other] += torch.arange(16)
        else:
            rows[0, other - len(TEXT)] += torch.arange(8)
        moved = (draft(rows, draft.context(read), mask)[0] - before).abs().amax(-1)
        assert (moved[mask[:, other]] > 1e-9).all() and not moved[~mask[:, other]].any()


def test_the_place_of_a_later_mask_reaches_an_earlier_one():
    target, draft = tiny_gpt(V), random_draft()
    before = slow_logits(target, draft, [1, 0], 3)
    drafter = DiffusionDrafter(Listening(target), draft, 3)
    target.wpe.weight[4] += torch.arange(8)                       # the third mask of a block at position 1
    run = Speculation(drafter.target, drafter, (1, 0), max_new_tokens=8)
    first = run.round(SeededDice(0)).draft_top[-1]
    assert max(abs(first[x] - float(before[0].softmax(-1)[x])) for x in range(V)) > 1e-6


# --- training ---------------------------------------------------------------------------------------------------------

RECIPE = replace(DIFFUSION, length=3, anchors=0.5, decay=2.0, loss="kl")


def test_anchors_are_distinct_fit_into_the_text_and_follow_from_seed_and_progress():
    drawn = draw_anchors(64, 6, 0.25, np.random.default_rng(0))
    assert len(drawn) == 16 and (drawn.diff() > 0).all() and drawn.max() < 58
    assert torch.equal(drawn, draw_anchors(64, 6, 0.25, np.random.default_rng(0)))
    assert draw_anchors(9, 6, 1.0, np.random.default_rng(0)).tolist() == [0, 1, 2], "2 + 6 is the last token"
    with pytest.raises(ValueError, match="a block of an anchor and 6 masks does not fit a text of 6 tokens"):
        draw_anchors(6, 6, 0.25, np.random.default_rng(0))
    target, draft, text = tiny_gpt(V), random_draft(), torch.tensor([TEXT])
    now, again, later, other = (float(diffusion_loss(draft, target, text, replace(RECIPE, anchors=0.2, seed=seed), t))
                                for seed, t in ((0, 0.1), (0, 0.1), (0, 0.2), (1, 0.1)))
    assert now == again and now != later and now != other


def test_the_loss_compares_each_place_with_the_targets_law_there_and_weights_early_places_more():
    target, draft, total = tiny_gpt(V), random_draft(), 0.0
    texts = [TEXT, TEXT[::-1]]
    anchors = draw_anchors(8, 3, 0.5, np.random.default_rng([RECIPE.seed, round(0.3 * 1e9)])).tolist()
    weights = [np.exp(-(k - 1) / 2.0) for k in (1, 2, 3)]
    for text in texts:
        for a in anchors:
            laws = slow_logits(target, draft, text[:a + 1], 3).softmax(-1)
            for k, (q, weight) in enumerate(zip(laws, weights), start=1):
                p = target(torch.tensor([text[:a + k]]))[0, -1].softmax(-1)        # of token a + k, having read so far
                total += weight * float((p * (p / q).log()).sum())
    expected = total / (len(texts) * len(anchors) * sum(weights))
    assert float(diffusion_loss(draft, target, torch.tensor(texts), RECIPE, 0.3)) == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_annealed():
    target, draft, text = tiny_gpt(V), random_draft(), torch.tensor([TEXT])
    kl, tv, both = (float(diffusion_loss(draft, target, text, replace(RECIPE, loss=loss, anneal_until=0.8), 0.2))
                    for loss in ("kl", "tv", "kl-tv"))
    assert both == pytest.approx(0.75 * kl + 0.25 * tv, rel=1e-5)


@torch.enable_grad()
def test_every_weight_of_the_draft_learns_and_the_target_is_frozen():
    target, draft = tiny_gpt(V).requires_grad_(False), random_draft()
    diffusion_loss(draft, target, torch.tensor([TEXT]), RECIPE, 0.0).backward()
    assert all(weight.grad.abs().max() > 0 for weight in draft.parameters())
    assert all(weight.grad is None for weight in target.parameters())


@torch.enable_grad()
def test_a_text_learnt_by_heart_is_accepted_whole_block_after_whole_block():
    target = tiny_gpt(8, seed=16, context=24).float().requires_grad_(False)
    text = generate(target, [1], max_new_tokens=23, sampling=Sampling(0)).text_ids
    assert len(set(text)) > 5, "a lively one: no draft is right by repeating itself"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draft = DiffusionDraft(DiffusionConfig(8, 2, 1, (1, 2)))
    optimiser = torch.optim.Adam(draft.parameters(), lr=0.02)
    for step in range(150):
        optimiser.zero_grad()
        diffusion_loss(draft, target, torch.tensor([text]), replace(RECIPE, anchors=1.0), 0.0).backward()
        optimiser.step()
    target = Listening(target)
    out = speculate(target, DiffusionDrafter(target, draft, 3), text[:1], max_new_tokens=20, sampling=Sampling(0))
    assert [len(r.path) for r in out.trace.rounds] == [3] * 5


# --- what independent places cost -------------------------------------------------------------------------------------

class Apart(TableDrafter):
    """Knows the laws of both tokens of a pair, rows 1 and 4 of its table, but draws each whatever the other is."""

    def propose(self, dice, room):
        laws = [self.table[row, :4].clone() for row in (1, 4)][:room]
        return TokenTree.chain([dice.draw(q) for q in laws], laws)


def test_two_places_drawn_apart_lose_half_of_a_pair_and_no_exactness():
    pairs = torch.tensor([[0, 1, 0, 0], [.5, 0, .5, 0], [0, 0, 0, 1], [.5, 0, .5, 0]]).double()      # "ab" or "cd"
    both = torch.nn.functional.pad(torch.cat([pairs, torch.tensor([[0, .5, 0, .5]])]), (0, 1))       # row 4: "b" or "d"
    expected = {(*one, *two): 0.25 for one in ((0, 1), (2, 3)) for two in ((0, 1), (2, 3))}
    for drafter, chance_of_both in ((lambda: Apart(both), 0.5), (lambda: TableDrafter(pairs), 1.0)):
        law = output_law(lambda dice: speculate(TableLM(pairs), drafter(), [1], max_new_tokens=4, dice=dice))
        assert law_error(law, expected) <= 1e-12
        rounds = EnumeratingDice().branches(
            lambda dice: Speculation(TableLM(pairs), drafter(), [1]).round(dice))
        assert sum(chance * (len(r.path) == 2) for chance, r in rounds) == pytest.approx(chance_of_both, abs=1e-12)
