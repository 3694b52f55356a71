"""Methods that need more models: offered where the models are, timed and predicted by their own passes."""

import json

import pytest
import torch
from models import tiny_gpt

from minispec import GPT, GPTConfig, SeededDice, speculate
from minispec.bench import more, prices, suite
from minispec.drafters import AcceptanceHead, BlockDrafter
from minispec.drafters.block import with_mask_token
from minispec.drafters.diffusion import DiffusionConfig, DiffusionDraft
from minispec.drafters.feature import FeatureConfig, FeatureDraft
from minispec.drafters.glide import GlideConfig, GlideDraft
from minispec.drafters.heads import Heads, HeadsConfig
from minispec.model import load_pair, save_model
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
