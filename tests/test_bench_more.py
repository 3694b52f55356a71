"""Methods that need more models: offered where the models are, timed and predicted by their own passes."""

import json

import pytest
import torch
from models import tiny_gpt

from minispec import GPT, GPTConfig, SeededDice, speculate
from minispec.bench import more, prices, suite
from minispec.decoding import Speculation
from minispec.drafters import AcceptanceHead, BlockDrafter
from minispec.drafters.block import with_mask_token
from minispec.drafters.diffusion import DiffusionConfig, DiffusionDraft
from minispec.drafters.feature import FeatureConfig, FeatureDraft
from minispec.drafters.glide import GlideConfig, GlideDraft
from minispec.drafters.heads import Heads, HeadsConfig
from minispec.model import load_pair, save_model
from minispec.model.listening import Listening
from minispec.model.shared_backbone import SharedBackbone
from minispec.training.early_exit import CoTrainConfig, LowRank


@pytest.fixture
def rich(tmp_path, folder):
    """The tiny pair, with a block draft and heads beside it."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    draft = load_pair(folder)[1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        target = GPT(GPTConfig(draft.config.vocab_size, 256, n_layer=2, n_head=2, n_embd=16))    # a layer to exit from
        width, heads, layers = 16, 2, 2
        models = {"target": target, "block": with_mask_token(draft), "heads": Heads(HeadsConfig(2, width)),
                  "feature": FeatureDraft(FeatureConfig(heads, width)),
                  "diffusion": DiffusionDraft(DiffusionConfig.fitting(target.config)),
                  "glide": GlideDraft(GlideConfig(draft.config.vocab_size, 256, 1, 2, 16, target_heads=heads,
                                                  target_head_dim=width // heads)),
                  "glide-control": GlideDraft(GlideConfig(draft.config.vocab_size, 256, 1, 2, 16, reads_target=False)),
                  "early-exit": LowRank(CoTrainConfig(1, 2, 1, layers, width)),
                  "byte": GPT(GPTConfig(260, 512, 1, 2, 16)), "draft-5": draft, "draft-10": draft, "draft-20": draft}
    for name, model in models.items():
        save_model(tmp_path / f"{name}.safetensors", model, {})
    AcceptanceHead().save(tmp_path / "acceptance-head.safetensors", {})
    return tmp_path


def test_a_method_is_offered_where_its_model_lies(folder, rich):
    assert more.available(folder) == ["payoff-8", "int8-draft-5", "int8-target-3"]
    assert more.available(rich) == list(more.MORE)


def test_bench_runs_them_all_beside_the_others(run, rich, quick_passes, monkeypatch):
    measure = more.measure_passes
    for module in (more, prices):
        monkeypatch.setattr(module, "measure_passes", lambda *a, **k: measure(*a, **k, widths=(4,), repeats=1))
    names = ["chain-2", *more.MORE]
    status, out, err = run("bench", "--pair", rich, "--prompts", 1, "--max-new-tokens", 8, "--temperatures", 0,
                           "--json", "--methods", *names)
    assert (status, err) == (0, "")
    rows = {r["method"]: r for r in json.loads(out)["rows"]}
    assert list(rows) == ["plain", *names]
    greedy = {json.dumps(r["tokens_per_pass"]) for r in rows.values()}
    assert len(greedy) > 1 and all(r["draft_passes_per_round"] >= 0 for r in rows.values())
    assert all(r["efficiency"] == pytest.approx(r["ratio_to_plain"] / r["predicted_speedup"]) for r in rows.values())


def test_a_method_without_its_model_is_refused(run, folder):
    status, _, err = run("bench", "--pair", folder, "--methods", "heads-tree")
    assert status == 2 and "unknown method 'heads-tree'" in err


def test_the_one_pass_of_a_block_is_told_from_the_trace(monkeypatch):
    target, block, fed, told = tiny_gpt(3, context=64), tiny_gpt(4, 1, context=64), [], []
    method = suite.Method(lambda _: BlockDrafter(block, 4), None, 4, feeds=suite.one_pass)
    hidden = type(block).hidden

    def watched(model, tokens, *rest, **more):
        fed.extend([tokens.shape[1]] if model is block else [])
        return hidden(model, tokens, *rest, **more)

    monkeypatch.setattr(type(block), "hidden", watched)
    with torch.no_grad():
        speculate(target, BlockDrafter(block, 4), [1, 2, 0], max_new_tokens=30, dice=SeededDice(0),
                  on_round=lambda r: told.extend(method.draft_passes(r)))
    assert told == fed[1:], "the first is the prefill"


# --- what a round is priced at ----------------------------------------------------------------------------------------

def first_layer(drafter) -> torch.nn.Module:
    """Of the model that it drafts with: all rows of a pass go through it once."""
    model = drafter.backbone.model if hasattr(drafter, "backbone") else drafter.draft
    for wrapper in ("draft", "model"):                            # a Reader's, a Restricted's
        model = getattr(model, wrapper, model)
    return model.h[0]


@pytest.mark.parametrize("name", [
    "parallel-4", "diffusion-4", "feature-3", "glide-5", "early-exit-3", "draft-5", "tree-dynamic", "tree-match",
    "byte-shared", "byte-text"])
@torch.no_grad()
def test_the_passes_told_from_the_trace_are_those_that_the_draft_made(name, rich, monkeypatch):
    for module in (more, prices):
        monkeypatch.setattr(module, "measure_passes", lambda *a, **k: None)
    target, draft, tokenizer = load_pair(rich)
    shop, fed, counted = more.Workshop(Listening(target), draft, tokenizer, rich), [], 0
    method = more.build(name, shop) if name in more.MORE else suite.METHODS[name]
    drafter = method.drafter(draft)
    first_layer(drafter).register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0].shape[1]))
    made = []                                                     # in the latest proposal, not in what came after it

    def watched(dice, room, propose=drafter.propose):
        fed.clear()
        tree = propose(dice, room)
        made[:] = fed
        return tree

    drafter.propose = watched
    run, dice = Speculation(method.target or shop.target, drafter, tokenizer.encode("def f(x):").ids,
                            max_new_tokens=40, rule=method.rule), SeededDice(0)
    while not run.stop_reason:
        r = run.round(dice)
        assert method.draft_passes(r) == (made if r.tokens else [])
        counted += bool(r.tokens)
    assert counted > 3


@pytest.fixture
def attended(monkeypatch):
    """(queries, keys) of every attention, in order."""
    calls, attend = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, **more: (
        calls.append((q.shape[2], k.shape[2])), attend(q, k, v, **more))[1])
    return calls


def rows_of_head(target: GPT) -> list[int]:
    """How many rows each call of the target's head gets."""
    rows: list[int] = []
    target.ln_f.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape[-2]))
    return rows


C, WIDTH = 9, 4                                                    # context and width of the passes below


@pytest.mark.parametrize("price, draft, attention, head", [
    (prices.of_feature, lambda: FeatureDraft(FeatureConfig(2, 8)), [(WIDTH, C + WIDTH)], [1]),
    (prices.of_diffusion, lambda: DiffusionDraft(DiffusionConfig(8, 2, 1, (1, 2))), [(WIDTH, C + WIDTH)], [WIDTH - 1]),
    (prices.of_glide, lambda: GlideDraft(GlideConfig(3, 32, 1, 2, 8, target_heads=2, target_head_dim=4)),
     [(WIDTH, C + WIDTH), (WIDTH, C)], [])], ids=["feature", "diffusion", "glide"])
@torch.no_grad()
def test_a_priced_pass_attends_to_what_a_drafters_would_and_leaves_nothing(price, draft, attention, head, attended):
    with torch.random.fork_rng(devices=[]):
        target, draft = Listening(tiny_gpt(3, context=32).float()), draft()
    new, contexts = rows_of_head(target.model), []
    if isinstance(draft, DiffusionDraft):                         # of a round: what two committed tokens bring
        draft.ln_context.register_forward_pre_hook(lambda _, inputs: contexts.append(inputs[0].shape[1]))
    run = price(target, draft)(WIDTH, C)
    for _ in range(2):
        attended.clear(), new.clear(), contexts.clear()
        run()
        assert (attended, new) == (attention, head) and contexts in ([], [2])
    assert bool(contexts) == isinstance(draft, DiffusionDraft)


@torch.no_grad()
def test_an_exits_passes_are_priced_as_a_round_makes_them(attended, monkeypatch):
    model = tiny_gpt(3, context=32)
    backbone = SharedBackbone(model, 1)
    monkeypatch.setattr(prices, "measure_passes", lambda target, draft, target_pass: (draft, target_pass))
    draft, verify = prices.of_early_exit(backbone)
    rounds = {draft: [(1, C + 1)], verify: [(1, C + WIDTH), (WIDTH, C + WIDTH)]}               # a layer on each side
    for make, width in ((draft, 1), (verify, WIDTH)):
        run = make(width, C)
        for _ in range(2):
            attended.clear()
            run()
            assert attended == rounds[make]
    run = verify(1, C)
    attended.clear()
    run()
    assert attended == [(1, C + 1)] * 2, "the unit: nothing was drafted"
