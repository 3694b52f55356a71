"""Weight files: written whole or not at all, and every fault found on reading is named in one sentence."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

import minispec
from minispec.model import pair
from minispec.model.files import save_atomic
from minispec.model.gpt import GPT, GPTConfig
from minispec.model.pair import load_model, load_pair, save_model

CONFIG = GPTConfig(vocab_size=64, context=16, n_layer=2, n_head=2, n_embd=32)
CARD = {"data": "a poem", "seed": 0, "steps": 3}


def halved(model: GPT) -> GPT:
    """The same model with values that float16 holds exactly."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half())
    return model.eval()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "target.safetensors"
    save_model(path, GPT(CONFIG), CARD)
    return path


def rewrite(path, weights=(), config=None, drop=()):
    """Change the file at `path`: other weights, another config in the metadata (None: the old one)."""
    tensors = {name: tensor for name, tensor in load_file(path).items() if name not in drop} | dict(weights)
    save_file(tensors, path, {"config": json.dumps(asdict(CONFIG)) if config is None else config})


def tokenizer_of(size: int) -> Tokenizer:
    return Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))


def save_pair(folder, target=64, draft=64, tokenizer=64):
    """A folder with a pair of these vocabulary sizes."""
    for name, size in (("target", target), ("draft", draft)):
        save_model(folder / f"{name}.safetensors", GPT(GPTConfig(size, 16, 1, 2, 8)), CARD)
    tokenizer_of(tokenizer).save(str(folder / "tokenizer.json"))


# --- reading back ------------------------------------------------------------------------------------------------------

def test_a_saved_model_comes_back_with_its_config_and_the_same_logits(tmp_path):
    model, tokens = halved(GPT(CONFIG)), torch.arange(10).view(2, 5)
    save_model(tmp_path / "m.safetensors", model, CARD)
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.config == CONFIG
    assert torch.equal(loaded(tokens), model(tokens))


def test_a_loaded_model_is_ready_for_inference(saved):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        model = load_model(saved, dtype=dtype)
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())
        assert {(weight.dtype, weight.device.type) for weight in model.parameters()} == {(dtype, "cpu")}


def test_weights_are_stored_in_float16_and_the_card_lies_beside_them(saved):
    assert {tensor.dtype for tensor in load_file(saved).values()} == {torch.float16}
    assert json.loads((saved.parent / "target.card.json").read_text()) == CARD
    assert sorted(path.name for path in saved.parent.iterdir()) == ["target.card.json", "target.safetensors"]


def test_others_may_read_a_saved_model_as_any_new_file(saved):
    (saved.parent / "new").touch()
    assert saved.stat().st_mode == (saved.parent / "new").stat().st_mode


def test_loading_draws_no_random_number(saved):
    state = torch.get_rng_state()
    load_model(saved)
    assert torch.equal(torch.get_rng_state(), state)


def test_loading_initialises_nothing(saved, monkeypatch):
    def initialised(*args, **kwargs):
        raise AssertionError("a random tensor was filled only to be replaced")
    monkeypatch.setattr(torch.Tensor, "normal_", initialised)
    monkeypatch.setattr(torch.Tensor, "uniform_", initialised)
    load_model(saved)


# --- bad files ---------------------------------------------------------------------------------------------------------

def refused(path, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_model(path)
    assert path.name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    refused(saved, "target.safetensors is truncated, or no safetensors file")


def test_a_file_of_another_kind_is_refused(saved):
    torch.save({"a": torch.ones(3)}, saved)
    refused(saved, "is truncated, or no safetensors file")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    refused(tmp_path / "none.safetensors", "none.safetensors is missing")
    refused(tmp_path, "is truncated, or no safetensors file")


def test_a_file_without_our_config_is_refused(saved):
    save_file(load_file(saved), saved, {"format": "pt"})
    refused(saved, "has no config in its metadata: it was not written by minispec")
    save_file(load_file(saved), saved)
    refused(saved, "has no config in its metadata")


@pytest.mark.parametrize("config, message", [
    ("{", "Expecting property name"),
    ("[1, 2]", "bad config"),
    ("null", "bad config"),
    ('{"layers": 2}', "layers"),
    ('{"n_layer": 0}', "n_layer must be a whole number >= 1, got 0"),
    ('{"n_embd": 10, "n_head": 4}', "n_embd=10 must be a multiple of n_head=4")])
def test_a_bad_config_is_refused_with_its_fault(saved, config, message):
    rewrite(saved, config=config)
    refused(saved, f"has a bad config in its metadata: .*{message}" if message != "bad config" else message)


def test_missing_and_foreign_weights_are_named(saved):
    rewrite(saved, drop=["h.1.ln_2.bias", "wpe.weight"])
    refused(saved, "lacks h.1.ln_2.bias and 1 more")
    rewrite(saved, weights={name: torch.zeros(32) for name in ("h.1.ln_2.bias", "wpe.weight", "rotary.weight")})
    refused(saved, "holds rotary.weight, which this model does not have")


def test_a_config_of_other_shapes_than_the_weights_is_refused(saved):
    rewrite(saved, config=json.dumps(asdict(CONFIG) | {"n_layer": 1}))
    refused(saved, "holds h.1.attn.c_attn.bias and 11 more, which this model does not have")
    rewrite(saved, config=json.dumps(asdict(CONFIG) | {"context": 8}))
    refused(saved, r"wpe.weight has shape \(16, 32\), expected \(8, 32\)")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_refused(saved, value):
    bias = torch.zeros(32)
    bias[7] = value
    rewrite(saved, weights={"ln_f.bias": bias})
    refused(saved, r"ln_f.bias holds NaN or infinite numbers \(read as torch.float32\)")


def test_a_weight_too_large_for_the_dtype_asked_for_is_refused(saved):
    rewrite(saved, weights={"ln_f.bias": torch.full((32,), 1e6)})
    assert load_model(saved).ln_f.bias[0] == 1e6
    with pytest.raises(ValueError, match=r"ln_f.bias holds NaN or infinite numbers \(read as torch.float16\)"):
        load_model(saved, dtype=torch.float16)


def test_whole_numbers_are_no_weights(saved):
    rewrite(saved, weights={"ln_f.bias": torch.zeros(32, dtype=torch.int8)})
    refused(saved, "ln_f.bias holds torch.int8, expected floating-point numbers")


# --- saves that fail ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, RuntimeError])
def test_an_interrupted_save_keeps_the_old_file_and_leaves_no_other(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def half(part):
        part.write_text("ne")
        raise error
    with pytest.raises(error):
        save_atomic(path, half)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def test_a_process_that_dies_in_a_save_leaves_the_old_file(saved):
    before = saved.read_bytes()
    script = ("import os, sys; from pathlib import Path; from minispec.model.files import save_atomic\n"
              "save_atomic(Path(sys.argv[1]), lambda part: (part.write_bytes(b'half'), os._exit(9)))")
    root = Path(minispec.__file__).parents[1]                      # so that it runs uninstalled, from anywhere
    assert subprocess.run([sys.executable, "-c", script, str(saved)], cwd=root).returncode == 9
    assert saved.read_bytes() == before
    load_model(saved)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_an_os_error_and_the_old_model_stays(saved):
    """A limit on the size of files makes the real write fail half way, as a full disk does."""
    import resource
    before = {path.name: path.read_bytes() for path in saved.parent.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="target.safetensors could not be written: .*File too large"):
            save_model(saved, GPT(CONFIG), {"another": "card"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in saved.parent.iterdir()} == before


def test_a_model_or_card_that_cannot_be_saved_is_refused_before_anything_is_written(saved):
    before = {path.name: path.read_bytes() for path in saved.parent.iterdir()}
    model = GPT(CONFIG)
    with pytest.raises(ValueError, match="target.safetensors not saved: its card is not JSON"):
        save_model(saved, model, {"model": model})
    with torch.no_grad():
        model.wpe.weight[3, 3] = 1e5                               # float16 ends at 65504
    with pytest.raises(ValueError, match="not saved: wpe.weight holds a number that is not finite in float16"):
        save_model(saved, model, CARD)
    assert {path.name: path.read_bytes() for path in saved.parent.iterdir()} == before


# --- the pair ----------------------------------------------------------------------------------------------------------

def test_a_pair_comes_back_as_target_draft_tokenizer(tmp_path):
    save_pair(tmp_path)
    target, draft, tokenizer = load_pair(tmp_path, dtype=torch.float64)
    for name, model in (("target", target), ("draft", draft)):
        one = load_model(tmp_path / f"{name}.safetensors", dtype=torch.float64)
        assert torch.equal(model(torch.tensor([[1, 2, 3]])), one(torch.tensor([[1, 2, 3]])))
    assert tokenizer.token_to_id("w63") == 63


def test_without_a_folder_the_shipped_pair_is_meant(tmp_path, monkeypatch):
    assert pair.ASSETS == Path(minispec.__file__).parent / "assets"
    save_pair(tmp_path)
    monkeypatch.setattr(pair, "ASSETS", tmp_path)
    assert [model.config.vocab_size for model in load_pair()[:2]] == [64, 64]


@pytest.mark.parametrize("odd", ["target", "draft", "tokenizer"])
def test_a_pair_of_different_vocabularies_is_refused_with_all_three_sizes(tmp_path, odd):
    save_pair(tmp_path, **{odd: 60})
    sizes = ", ".join(f"{name} {60 if name == odd else 64}" for name in ("target", "draft", "tokenizer"))
    with pytest.raises(ValueError, match=f"must share one vocabulary, but the sizes differ: {sizes}"):
        load_pair(tmp_path)


@pytest.mark.parametrize("name", ["target.safetensors", "draft.safetensors", "tokenizer.json"])
def test_a_pair_with_a_missing_or_damaged_file_names_it(tmp_path, name):
    save_pair(tmp_path)
    (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=f"{name} is (truncated, or no safetensors|not a tokenizer) file"):
        load_pair(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        load_pair(tmp_path)
