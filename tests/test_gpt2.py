"""GPT-2 weights in and out, against `transformers` on small random models: no network, no downloaded data."""

import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"                                 # before anything imports huggingface_hub

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from minispec.model.gpt import GPT, GPTConfig
from minispec.model.gpt2 import END, export_gpt2, load_gpt2, load_gpt2_tokenizer
from minispec.training.tokenizer import train_tokenizer

hub = pytest.importorskip("huggingface_hub")
hf = pytest.importorskip("transformers")

CLOSE = dict(rtol=0, atol=1e-5)                                    # float32
SHAPES = [dict(vocab_size=64, n_positions=32, n_layer=2, n_head=4, n_embd=32),
          dict(vocab_size=50, n_positions=20, n_layer=3, n_head=1, n_embd=24),
          dict(vocab_size=97, n_positions=24, n_layer=1, n_head=6, n_embd=48, n_inner=192,
               activation_function="gelu_pytorch_tanh")]


pytestmark = pytest.mark.usefixtures("no_gradients")


def shake(model: torch.nn.Module, seed: int = 0):
    """Every parameter random, biases and norms too, so that each one shows in the logits."""
    dice = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.copy_(centre + 0.1 * torch.randn(weight.shape, generator=dice))
    return model.eval()


def hf_model(seed: int = 0, **shape):
    return shake(hf.GPT2LMHeadModel(hf.GPT2Config(**shape or SHAPES[0])), seed)


def our_model(seed: int = 0, **sizes) -> GPT:
    return shake(GPT(GPTConfig(**{**dict(vocab_size=64, context=48, n_layer=2, n_head=2, n_embd=32), **sizes})), seed)


def tokenizer_of(size: int) -> Tokenizer:
    """Words w0, w1, ... and the end token as the last id."""
    words = {f"w{i}": i for i in range(size - 1)} | {END: size - 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([END])
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    hf_model().save_pretrained(tmp_path)
    return tmp_path


def tokens_for(vocab_size: int, shape=(2, 20)) -> torch.Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(1))


def change_weights(folder, add=(), drop=()):
    weights = load_file(folder / "model.safetensors")
    save_file({name: w for name, w in weights.items() if name not in drop} | dict(add), folder / "model.safetensors")


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# --- in ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed, shape", list(enumerate(SHAPES)))
def test_logits_agree_with_transformers_cached_and_uncached(tmp_path, seed, shape):
    theirs = hf_model(seed, **shape)
    theirs.save_pretrained(tmp_path)
    ours, tokens = load_gpt2(tmp_path), tokens_for(shape["vocab_size"])
    expected = theirs(tokens).logits
    torch.testing.assert_close(ours(tokens), expected, **CLOSE)
    for split in ([1] * 20, [7, 1, 12]):
        cache = ours.new_cache(batch=2)
        parts = [ours(part, cache) for part in tokens.split(split, dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), expected, **CLOSE)


def test_a_sharded_folder_is_the_same_model(tmp_path, folder):
    hf_model().save_pretrained(tmp_path / "shards", max_shard_size="30KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    tokens = tokens_for(64)
    assert torch.equal(load_gpt2(tmp_path / "shards")(tokens), load_gpt2(folder)(tokens))


def test_a_missing_shard_or_a_bad_index_is_refused(tmp_path):
    hf_model().save_pretrained(tmp_path, max_shard_size="30KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=f"{shard.name} is missing"):
        load_gpt2(tmp_path)
    for text, message in (("{", "is not a readable JSON file"), ("{}", "has no weight_map")):
        (tmp_path / "model.safetensors.index.json").write_text(text)
        with pytest.raises(ValueError, match=f"model.safetensors.index.json {message}"):
            load_gpt2(tmp_path)


def test_names_without_the_prefix_old_masks_and_a_tied_head_are_accepted(folder):
    before = load_gpt2(folder)(tokens_for(64))
    weights = {name.removeprefix("transformer."): w for name, w in load_file(folder / "model.safetensors").items()}
    masks = {f"h.{layer}.attn.{name}": value for layer in range(2) for name, value in
             (("bias", torch.ones(1, 1, 32, 32).tril()), ("masked_bias", torch.tensor(-1e4)))}
    save_file(weights | masks | {"lm_head.weight": weights["wte.weight"].clone()}, folder / "model.safetensors")
    assert torch.equal(load_gpt2(folder)(tokens_for(64)), before)
    save_file({"lm_head.weight" if name == "wte.weight" else name: w for name, w in weights.items()},
              folder / "model.safetensors")                        # a tied pair may be stored under either name
    assert torch.equal(load_gpt2(folder)(tokens_for(64)), before)


def test_an_untied_head_is_refused(folder):
    change_weights(folder, add={"lm_head.weight": torch.zeros(64, 32)})
    with pytest.raises(ValueError, match="lm_head.weight differs from wte.weight: only a tied output head"):
        load_gpt2(folder)


@pytest.mark.parametrize("add, drop, message", [
    ({}, ["transformer.h.1.mlp.c_fc.bias"], "model.safetensors lacks h.1.mlp.c_fc.bias"),
    ({}, ["transformer.wte.weight"], "lacks wte.weight"),
    ({"transformer.h.2.ln_1.bias": torch.zeros(32)}, [], "holds h.2.ln_1.bias, which this model does not have"),
    ({"transformer.h.0.mlp.c_fc.weight": torch.zeros(128, 32)}, [],
     r"h.0.mlp.c_fc.weight has shape \(32, 128\), expected \(128, 32\)"),
    ({"transformer.h.0.attn.c_proj.weight": torch.zeros(())}, [], r"c_proj.weight has shape \(\)"),
    ({"transformer.ln_f.bias": torch.full((32,), torch.nan)}, [], "ln_f.bias holds NaN or infinite numbers")])
def test_weights_that_are_missing_foreign_misshapen_or_nan_are_named(folder, add, drop, message):
    change_weights(folder, add, drop)
    with pytest.raises(ValueError, match=message):
        load_gpt2(folder)


@pytest.mark.parametrize("field, value, supported", [
    ("model_type", "llama", "'gpt2'"),
    ("model_type", None, "'gpt2'"),
    ("activation_function", "relu", "'gelu_new' or 'gelu_pytorch_tanh'"),
    ("activation_function", "gelu", "'gelu_new' or 'gelu_pytorch_tanh'"),
    ("layer_norm_epsilon", 1e-6, "1e-05"),
    ("scale_attn_weights", False, "True"),
    ("scale_attn_by_inverse_layer_idx", True, "False"),
    ("reorder_and_upcast_attn", True, "False"),
    ("add_cross_attention", True, "False"),
    ("tie_word_embeddings", False, "True"),
    ("n_inner", 64, "None or 128")])
def test_a_config_that_computes_something_else_is_refused_with_what_is_supported(folder, field, value, supported):
    change_config(folder, **{field: value})
    with pytest.raises(ValueError, match=f"config.json: {field} is {value!r}, supported: {supported}"):
        load_gpt2(folder)


@pytest.mark.parametrize("field, message", [
    ("vocab_size", "vocab_size must be a whole number >= 1, got None"),
    ("n_positions", "context must be a whole number >= 1, got None"),
    ("n_embd", "n_embd must be a whole number >= 1, got None")])
def test_a_size_that_is_no_number_is_refused(folder, field, message):
    change_config(folder, **{field: None})
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        load_gpt2(folder)


def test_a_size_left_out_of_the_config_is_gpt2_smalls(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["vocab_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"wte.weight has shape \(64, 32\), expected \(50257, 32\)"):
        load_gpt2(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        load_gpt2(folder)


# --- from the hub ------------------------------------------------------------------------------------------------------

def test_a_source_that_is_no_folder_is_fetched_by_name(folder, monkeypatch):
    calls = []

    def snapshot_download(name, allow_patterns):
        calls.append((name, allow_patterns))
        return str(folder)
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    tokenizer_of(64).save(str(folder / "tokenizer.json"))
    assert torch.equal(load_gpt2("someone/small")(tokens_for(64)), load_gpt2(folder)(tokens_for(64)))
    assert load_gpt2_tokenizer("someone/small").token_to_id(END) == 63
    assert calls == [
        ("someone/small", ["config.json", "model*.safetensors", "model.safetensors.index.json"]),
        ("someone/small", ["tokenizer.json"])]


@pytest.mark.parametrize("source", ["nobody/has-this-model", "./no/such/folder"])
def test_a_name_that_cannot_be_had_is_refused_in_one_sentence(source, tmp_path, monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for load in (load_gpt2, load_gpt2_tokenizer):
        with pytest.raises(ValueError, match=f"'{source}' is no folder, and the Hugging Face hub gave nothing") as caught:
            load(source)
        assert "\n" not in str(caught.value)


def test_without_huggingface_hub_a_name_is_refused_and_a_folder_still_loads(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)      # import raises ImportError
    with pytest.raises(ValueError, match="the Hugging Face hub gave nothing: .*huggingface_hub"):
        load_gpt2("distilgpt2")
    load_gpt2(folder)


# --- out ---------------------------------------------------------------------------------------------------------------

def test_export_then_load_gives_the_same_logits_bit_for_bit(tmp_path):
    model, tokens = our_model(), tokens_for(64)
    export_gpt2(model, tokenizer_of(64), tmp_path)
    loaded = load_gpt2(tmp_path)
    assert loaded.config == model.config
    assert torch.equal(loaded(tokens), model(tokens))
    assert all(weight.is_contiguous() for weight in loaded.parameters())          # the transposed ones too


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_exported_folder_is_a_gpt2_in_transformers(tmp_path, dtype):
    model, tokens = our_model().to(dtype), tokens_for(64)
    export_gpt2(model, tokenizer_of(64), tmp_path, name="tiny")
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (type(theirs).__name__, theirs.dtype) == ("GPT2LMHeadModel", dtype)
    assert theirs.generation_config.eos_token_id == theirs.generation_config.pad_token_id == 63
    torch.testing.assert_close(theirs.float()(tokens).logits, model.float()(tokens), **CLOSE)
    assert json.loads((tmp_path / "config.json").read_text())["_name_or_path"] == "tiny"


def test_an_exported_tokenizer_splits_as_ours_does(tmp_path):
    texts = ["def add_all(items):\n    return sum(item.price for item in items)\n", "x = 12345  # naïve π ≈ 3.14159\n\n\n"]
    ours = train_tokenizer(texts * 3, vocab_size=300)
    export_gpt2(our_model(vocab_size=300), ours, tmp_path)
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text in [*texts, f"a{END}  b", "\t\r\n \u3000 'll don't 1,000"]:
        assert theirs(text)["input_ids"] == ours.encode(text).ids == load_gpt2_tokenizer(tmp_path).encode(text).ids
        assert theirs.decode(ours.encode(text).ids, skip_special_tokens=False) == text
    assert (theirs.eos_token, theirs.eos_token_id) == (END, ours.token_to_id(END))
    assert theirs.model_max_length == 48


def greedy(model: GPT, prompt: list[int], count: int) -> list[int]:
    """Plain greedy decoding, written out; stops after the end token."""
    tokens, cache = list(prompt), model.new_cache()
    logits = model(torch.tensor([prompt]), cache)
    while len(tokens) < len(prompt) + count and (token := int(logits[0, -1].argmax())) != 63:
        tokens.append(token)
        logits = model(torch.tensor([[token]]), cache)
    return tokens


@pytest.mark.parametrize("seed", range(4))
def test_an_exported_pair_decodes_in_transformers_with_assistant_model_as_ours_does_greedily(tmp_path, seed):
    target, draft = our_model(seed), our_model(seed, n_layer=1)
    for name, model in (("target", target), ("draft", draft)):
        export_gpt2(model, tokenizer_of(64), tmp_path / name)
    theirs, assistant = (hf.AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("target", "draft"))
    prompt = tokens_for(63, (1, 5))
    expected = greedy(target, prompt[0].tolist(), 30)
    assert len(expected) > 10
    out = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), assistant_model=assistant,
                          do_sample=False, max_new_tokens=30)[0].tolist()
    assert [token for token in out if token != 63] == expected


def test_a_tokenizer_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="the tokenizer has no <|endoftext|> token"):
        export_gpt2(our_model(), Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), tmp_path / "a")
    with pytest.raises(ValueError, match="the tokenizer has 65 entries, the model only 64"):
        export_gpt2(our_model(), tokenizer_of(65), tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_an_interrupted_export_leaves_every_file_old_or_new(folder, monkeypatch):
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    tokenizer = tokenizer_of(64)
    monkeypatch.setattr("minispec.model.files.save_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        export_gpt2(our_model(), tokenizer, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == old
