"""Methods that need more models: offered where the models are, timed and predicted by their own passes."""

import json

import pytest
import torch
from models import tiny_gpt

from minispec import SeededDice, speculate
from minispec.bench import more, suite
from minispec.drafters import BlockDrafter
from minispec.drafters.block import with_mask_token
from minispec.drafters.heads import Heads, HeadsConfig
from minispec.model import load_pair, save_model


@pytest.fixture
def rich(tmp_path, folder):
    """The tiny pair, with a block draft and heads beside it."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    save_model(tmp_path / "block.safetensors", with_mask_token(load_pair(folder)[1]), {})
    save_model(tmp_path / "heads.safetensors", Heads(HeadsConfig(2, 16)), {})
    return tmp_path


def test_a_method_is_offered_where_its_model_lies(folder, rich):
    assert more.available(folder) == ["int8-draft-5", "int8-target-3"]
    assert more.available(rich) == list(more.MORE)


def test_bench_runs_them_all_beside_the_others(run, rich, quick_passes, monkeypatch):
    measure = more.measure_passes
    monkeypatch.setattr(more, "measure_passes", lambda *models: measure(*models, widths=(4,), repeats=1))
    names = ["chain-2", *more.MORE]
    status, out, err = run("bench", "--pair", rich, "--prompts", 1, "--max-new-tokens", 8, "--temperatures", 0,
                           "--json", "--methods", *names)
    assert (status, err) == (0, "")
    rows = {r["method"]: r for r in json.loads(out)["rows"]}
    assert list(rows) == ["plain", *names]
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
