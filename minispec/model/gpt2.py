"""Public GPT-2 weights in, Hugging Face folders out.

GPT has GPT-2's architecture and parameter names, so loading is renaming. Three things differ in the public files:
* a prefix `transformer.` on every name, in some files;
* layers written as `Conv1D`: their weight is (in, out), a Linear's is (out, in), so it is transposed;
* leftovers that are no weights: causal masks stored as `attn.bias`, and the tied head written a second time.

Left out on purpose: variants of GPT-2 that compute something else. Their config is refused, field by field.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .files import model_from, read_json, read_tokenizer, read_weights, save_atomic, save_json, save_weights
from .gpt import GPT, GPTConfig

END = "<|endoftext|>"
_CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
_MASKS = (".attn.bias", ".attn.masked_bias")                       # c_attn's own bias ends in `.c_attn.bias`


def load_gpt2(source: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> GPT:
    """Read GPT-2 weights from a local folder, or by their name on the Hugging Face hub ("distilgpt2").

    The folder holds config.json and model.safetensors, or shards with model.safetensors.index.json. Raises ValueError
    if it can't be had, or if something in it is missing, damaged, or not GPT-2's architecture.
    """
    folder = _folder(source, "config.json", "model*.safetensors", "model.safetensors.index.json")
    config = _config_from(read_json(folder / "config.json"))
    weights = {name.removeprefix("transformer."): weight for name, weight in _read_shards(folder).items()}
    weights = {name: weight.transpose(0, -1) if name.endswith(_CONV1D) else weight
               for name, weight in weights.items() if not name.endswith(_MASKS)}
    head = weights.pop("lm_head.weight", None)
    if head is not None and not torch.equal(head, weights.setdefault("wte.weight", head)):
        raise ValueError("lm_head.weight differs from wte.weight: only a tied output head is supported")
    return model_from(config, weights, "model.safetensors", dtype=dtype, device=device)


def load_gpt2_tokenizer(source: str | Path) -> Tokenizer:
    """Read tokenizer.json from a local folder or a hub name. Raises ValueError if it can't be had."""
    return read_tokenizer(_folder(source, "tokenizer.json") / "tokenizer.json")


def export_gpt2(model: GPT, tokenizer: Tokenizer, folder: str | Path, name: str = "minispec") -> None:
    """Write a folder that `transformers` and serving engines load as a GPT-2, in the model's own dtype.

    Each file is written whole or not at all. Raises ValueError if the tokenizer lacks the end token or has more
    entries than the model.
    """
    folder, config, end = Path(folder), model.config, tokenizer.token_to_id(END)
    if end is None:
        raise ValueError(f"the tokenizer has no {END} token, which marks the end of a text in GPT-2")
    if tokenizer.get_vocab_size() > config.vocab_size:
        raise ValueError(f"the tokenizer has {tokenizer.get_vocab_size()} entries, the model only {config.vocab_size}")
    weights = {f"transformer.{key}": weight.transpose(0, -1) if key.endswith(_CONV1D) else weight
               for key, weight in model.state_dict().items()}
    save_weights(folder / "model.safetensors", weights, {"format": "pt"})
    save_atomic(folder / "tokenizer.json", lambda part: tokenizer.save(str(part)))
    ends = {"bos_token_id": end, "eos_token_id": end}
    dtype = str(model.wte.weight.dtype).removeprefix("torch.")
    save_json(folder / "config.json", {"_name_or_path": name, **_config_to(config), **ends, "torch_dtype": dtype})
    save_json(folder / "generation_config.json", {**ends, "pad_token_id": end})
    save_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.context,
        "bos_token": END, "eos_token": END, "clean_up_tokenization_spaces": False})


def _folder(source: str | Path, *patterns: str) -> Path:
    """A local folder as it is; anything else is a hub name, of which the files matching `patterns` are fetched."""
    if Path(source).is_dir():
        return Path(source)
    try:
        from huggingface_hub import snapshot_download              # here, because only this path needs it
        return Path(snapshot_download(str(source), allow_patterns=list(patterns)))
    except Exception as error:                                     # no package, no network, no such name, no rights
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{str(source)!r} is no folder, and the Hugging Face hub gave nothing: {reason}") from None


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """All weights by name, from model.safetensors or from the shards that the index lists."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return read_weights(folder / "model.safetensors")[0]
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict):
        raise ValueError(f"{index.name} has no weight_map that says which file holds which weight")
    weights = {}
    for shard in sorted({str(file) for file in shards.values()}):
        weights |= read_weights(folder / shard)[0]
    return weights


# Fields of a GPT-2 config that change what is computed: the value that an absent field has, and all that GPT can do.
_SUPPORTED = {
    "model_type": (None, ["gpt2"]),
    "activation_function": ("gelu_new", ["gelu_new", "gelu_pytorch_tanh"]),          # two names of one function
    "layer_norm_epsilon": (1e-5, [1e-5]),
    "scale_attn_weights": (True, [True]),
    "scale_attn_by_inverse_layer_idx": (False, [False]),
    "reorder_and_upcast_attn": (False, [False]),
    "add_cross_attention": (False, [False]),
    "tie_word_embeddings": (True, [True]),
}

# Our name of each size -> GPT-2's name, and the value that an absent field has (GPT-2 small's).
_SIZES = {"vocab_size": ("vocab_size", 50257), "context": ("n_positions", 1024), "n_layer": ("n_layer", 12),
          "n_head": ("n_head", 12), "n_embd": ("n_embd", 768)}


def _config_from(fields: dict) -> GPTConfig:
    """A Hugging Face config -> GPTConfig. Raises ValueError naming the first field that GPT does not support."""
    for field, (default, allowed) in _SUPPORTED.items():
        _require(field, fields.get(field, default), allowed)
    try:
        config = GPTConfig(**{ours: fields.get(theirs, default) for ours, (theirs, default) in _SIZES.items()})
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from None
    _require("n_inner", fields.get("n_inner"), [None, 4 * config.n_embd])
    return config


def _require(field: str, value: object, allowed: list) -> None:
    if value not in allowed:
        raise ValueError(f"config.json: {field} is {value!r}, supported: {' or '.join(map(repr, allowed))}")


def _config_to(config: GPTConfig) -> dict:
    """GPTConfig -> the fields of a Hugging Face config."""
    return {"architectures": ["GPT2LMHeadModel"], "n_inner": None,
            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
            **{field: allowed[0] for field, (_, allowed) in _SUPPORTED.items()},
            **{theirs: getattr(config, ours) for ours, (theirs, _) in _SIZES.items()}}
