"""train, distill and export: what they write, and that two runs never share a checkpoint. With recipes of a second."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from minispec import GPT, GPTConfig, load_pair, speculate
from minispec.bench import workloads
from minispec.cli import distill, parser, train
from minispec.drafters import AcceptanceHead
from minispec.drafters.block import BlockDrafter
from minispec.drafters.heads import HeadsDrafter, load_heads
from minispec.model import load_gpt2, load_model, pair, save_model
from minispec.model.listening import Listening
from minispec.training.block import BlockDistillation
from minispec.training.data import Mixture, token_array
from minispec.training.distill import Distillation
from minispec.training.early_exit import CoTraining, load_co_trained
from minispec.training.heads import HeadsDistillation
from minispec.training.own_text import add_text
from minispec.training.recipes import Recipe
from minispec.training.train import Schedule


@pytest.fixture
def workshop(tmp_path, folder, monkeypatch):
    """A cache and recipes of its own, the tiny pair as the shipped one, and a text long enough to train on."""
    monkeypatch.setenv("MINISPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pair, "ASSETS", folder)
    config, schedule = GPTConfig(600, 256, 1, 2, 16), Schedule(1, batch_tokens=64, length=32, short_length=16, warmup=1)
    monkeypatch.setattr(train, "RECIPES", {"target": Recipe("target", config, {"code": 1.0}, schedule)})
    monkeypatch.setattr("minispec.training.distill.DRAFT", Distillation(
        "draft", config, {"code": 1.0, "samples": 0.0}, schedule))
    monkeypatch.setitem(train.RECIPES, "block", BlockDistillation(
        "block", config, {"samples": 1.0}, schedule, sample_tokens=1, depths=3))
    monkeypatch.setitem(train.RECIPES, "heads", HeadsDistillation(
        "heads", config, {"samples": 1.0}, schedule, loss="kl", sample_tokens=1, heads=2))
    monkeypatch.setitem(train.RECIPES, "byte", Distillation(
        "byte", replace(config, vocab_size=260), {"samples": 1.0}, schedule, loss="cross-entropy", sample_tokens=1))
    (tmp_path / "novel.txt").write_text("".join(p.text for kind in workloads.KINDS for p in workloads.prompts(kind)))
    return tmp_path


def test_train_and_distill_on_own_text_make_a_pair_that_speculates(run, workshop, folder, monkeypatch):
    tokenizer, mine = load_pair(folder)[2], workshop / "mine"
    kind = add_text(tokenizer, workshop / "novel.txt")
    monkeypatch.delattr("minispec.training.data.corpus.documents")       # no other text is looked at, not even to validate
    status, out, err = run("train", "--text", workshop / "novel.txt", "--steps", 2, "--output", mine, "--json")
    card = json.loads(out)
    assert status == 0 and card["steps"] == 2 and card["data"] == {kind: 1.0} and "step 2/2" in err
    assert card["tokens_read"] == 128 and card["minutes"] >= 0 and 5 < card["held_out_nats_per_token"][kind] < 8
    status, out, _ = run("distill", "--target", mine / "target.safetensors", "--text", workshop / "novel.txt",
                         "--loss", "kl", "--output", mine, "--json")
    assert status == 0 and 0 < json.loads(out)["held_out_mean_acceptance"][kind] < 1
    assert sorted(file.name for file in mine.iterdir()) == [
        "draft.card.json", "draft.safetensors", "target.card.json", "target.safetensors", "tokenizer.json"]
    assert run("generate", "--pair", mine, "--max-new-tokens", 4, "--prompt", "def f(x):")[0] == 0


@pytest.fixture
def samples(monkeypatch):
    """What a target would have written."""
    monkeypatch.setattr("minispec.training.distill.sample_pool",
                        lambda *_: np.random.default_rng(0).integers(0, 500, 4096).astype(np.uint16))


def test_a_block_draft_is_trained_from_a_pair_and_proposes_in_the_loop(run, workshop, folder, samples):
    status, out, _ = run("train", "--recipe", "block", "--output", workshop / "mine", "--json")
    card = json.loads(out)
    assert status == 0 and (card["recipe"], card["depths"]) == ("block", 3)
    target, draft, _ = load_pair(folder)
    block = load_model(workshop / "mine" / "block.safetensors")
    assert block.config.vocab_size == target.config.vocab_size + 1
    assert len(speculate(target, BlockDrafter(block, 3), [1, 2], max_new_tokens=8).tokens) == 8


def test_heads_are_trained_from_a_pair_and_propose_in_the_loop(run, workshop, folder, samples):
    status, out, _ = run("train", "--recipe", "heads", "--pair", folder, "--output", workshop / "mine", "--json")
    assert status == 0 and json.loads(out)["architecture"] == {"heads": 2, "n_embd": 16}
    heads, target = load_heads(workshop / "mine" / "heads.safetensors"), Listening(load_pair(folder)[0])
    assert all(head.weight.any() for head in heads.h), "they learned something"
    assert len(speculate(target, HeadsDrafter(target, heads), [1, 2], max_new_tokens=8).tokens) == 8


def test_a_byte_draft_is_trained_from_a_pair_and_its_card_says_on_what(run, workshop, samples):
    status, out, _ = run("train", "--recipe", "byte", "--output", workshop / "mine", "--json")
    card = json.loads(out)
    assert status == 0 and (card["recipe"], card["data"], card["loss"]) == ("byte", {"samples": 1.0}, "cross-entropy")
    assert load_model(workshop / "mine" / "byte.safetensors").config.vocab_size == 260


def test_an_acceptance_head_is_trained_from_a_pair(run, workshop, monkeypatch):
    text = np.random.default_rng(0).integers(0, 500, 4096).astype(np.uint16)
    monkeypatch.setattr("minispec.training.acceptance_head.mixture", lambda *_: Mixture({"code": text}, {"code": 1.0}))
    status, out, err = run("train", "--recipe", "acceptance-head", "--steps", 3, "--output", workshop / "mine", "--json")
    card = json.loads(out)
    assert status == 0 and (card["steps"], card["temperature"]) == (3, 1.0) and "estimate -> accepted" in err
    assert AcceptanceHead.load(card["file"])(1, torch.full((5,), 0.2)) < 1


def test_a_rung_of_the_ladder_is_written_under_its_own_name(run, workshop, monkeypatch):
    small = workshop / "mine" / "draft-20.safetensors"
    monkeypatch.setattr("minispec.training.distill.LADDER", (
        replace(distill.distill.DRAFT, name="draft-20", weights={"code": 1.0, "samples": 0.0}),))
    status, out, _ = run("distill", "--recipe", "draft-20", "--output", workshop / "mine", "--json", "--text",
                         workshop / "novel.txt")
    assert status == 0 and json.loads(out)["file"] == str(small) and small.exists()


def test_recipes_that_start_from_a_pair_take_no_text(run, workshop):
    status, _, err = run("train", "--recipe", "heads", "--text", workshop / "novel.txt", "--output", workshop / "mine")
    assert status == 2 and "--text is for the target" in err


def test_training_can_start_from_given_weights(run, workshop):
    first, more = workshop / "first", workshop / "more"
    own_text = ["--text", workshop / "novel.txt", "--json"]
    losses = []
    for options in (["--steps", 250, "--output", first], ["--output", more], ["--output", more, "--start",
                                                                             first / "target.safetensors"]):
        status, out, _ = run("train", *own_text, *options)
        losses.append(*json.loads(out)["held_out_nats_per_token"].values())
        assert status == 0
    assert losses[2] < losses[1] - 0.5, "one step from scratch, and one step on"
    status, _, err = run("train", *own_text, "--output", more, "--start", pair.ASSETS / "target.safetensors")
    assert status == 2 and "cannot start from a model with" in err


def test_own_text_is_stored_where_recipes_look_and_its_end_is_kept_for_validation(workshop, folder):
    tokenizer, text = load_pair(folder)[2], (workshop / "novel.txt").read_text()
    kind = add_text(tokenizer, workshop / "novel.txt")
    parts = [token_array(tokenizer, kind, split).tolist() for split in ("train", "validation")]
    assert parts[0] + parts[1] == tokenizer.encode(text).ids + [tokenizer.token_to_id("<|endoftext|>")]
    assert len(parts[0]) > 3 * len(parts[1]) > 3000


def test_an_interrupted_training_says_how_to_go_on_and_writes_nothing(run, workshop, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.recipes, "train", interrupted)
    status, out, err = run("train", "--output", workshop / "mine")
    assert (status, out) == (130, "")
    assert err == "minispec: interrupted: the same command goes on from the last checkpoint\n"
    assert not (workshop / "mine").exists()


def test_runs_that_differ_have_checkpoints_of_their_own(workshop, folder):
    """A new target, in the place of the shipped one too, must not find the checkpoint of the old one's draft."""
    first, second = folder / "target.safetensors", folder / "draft.safetensors"
    names = []
    for options, target in (([], first), (["--seed", "3"], first), (["--loss", "tv"], first), ([], second),
                            (["--target", str(first)], first)):
        args = parser().parse_args(["distill", "--output", "x", *options])
        names.append(distill.run_name(train.adapt(distill.distill.DRAFT, args), args, target))
    assert len(set(names)) == 4 and names[0] == names[4], "the same target by another way is the same run"


def test_a_text_too_short_to_train_on_is_refused(run, workshop):
    (workshop / "haiku.txt").write_text("an old silent pond")
    status, _, err = run("train", "--text", workshop / "haiku.txt", "--output", workshop / "mine")
    assert status == 2 and "training needs 4,096 or more" in err


def test_export_writes_two_folders_that_load_as_gpt2(run, folder, tmp_path):
    status, out, _ = run("export", "--pair", folder, "--output", tmp_path / "exported")
    assert status == 0 and out.count("wrote") == 2
    for role, model in zip(("target", "draft"), load_pair(folder)):
        assert torch.equal(load_gpt2(tmp_path / "exported" / role).wte.weight, model.wte.weight)


def test_the_card_of_a_co_trained_model_says_what_it_gave_and_took(run, workshop, folder, monkeypatch):
    text = np.random.default_rng(0).integers(0, 500, 4096).astype(np.uint16)
    data = Mixture({"code": text}, {"code": 1.0})
    monkeypatch.setattr("minispec.training.early_exit.mixture", lambda *_: data)
    monkeypatch.setattr("minispec.training.early_exit.held_out", lambda *_: {"code": data})
    two_layers = workshop / "two"
    two_layers.mkdir()
    for file in folder.iterdir():
        (two_layers / file.name).write_bytes(file.read_bytes())
    with torch.random.fork_rng():
        save_model(two_layers / "target.safetensors", GPT(replace(load_pair(folder)[0].config, n_layer=2)), {})
    monkeypatch.setitem(train.RECIPES, "early-exit", CoTraining(
        "early-exit", {"code": 1.0}, Schedule(3, batch_tokens=64, length=32, short_length=16, warmup=1), exit=1))
    status, out, _ = run("train", "--recipe", "early-exit", "--pair", two_layers, "--output", workshop / "mine", "--json")
    card = json.loads(out)
    assert status == 0 and (card["exit"], card["rank_below"]) == (1, 64)
    for figure in ("held_out_nats_per_token", "held_out_exit_acceptance"):
        assert set(card[figure]) == {"before", "after"} and set(card[figure]["after"]) == {"code"}
    assert 5 < card["held_out_nats_per_token"]["before"]["code"] < 8 and card["held_out_exit_acceptance"]["after"]["code"] < 1
    target = load_pair(two_layers)[0]
    model, exit = load_co_trained(card["file"], target)
    assert exit == 1 and not torch.equal(model.h[0].mlp.c_fc.weight, target.h[0].mlp.c_fc.weight)
