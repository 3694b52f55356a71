"""The pair that ships with minispec: a target, its draft, and the tokenizer they share.

A model is one safetensors file, in float16 (half the size; the values are read back into float32), with its GPTConfig
as JSON in the file's metadata: one file cannot lose its config. Beside it lies a card that says how it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn as nn
from tokenizers import Tokenizer

from .files import model_from, read_tokenizer, read_weights, save_json, save_weights
from .gpt import GPT, GPTConfig

ASSETS = Path(__file__).parent.parent / "assets"


def save_model(path: str | Path, model: GPT, card: dict) -> None:
    """Write the model to `path` as float16, and its card beside it: target.safetensors, target.card.json.

    Each file is written whole or not at all. Raises ValueError if a weight is NaN or too large for float16, or if the
    card can't be written as JSON, before anything is touched.
    """
    path = Path(path)
    weights = {name: weight.half() for name, weight in model.state_dict().items()}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ValueError(f"{path.name} not saved: {name} holds a number that is not finite in float16")
    try:
        json.dumps(card)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name} not saved: its card is not JSON: {error}") from None
    save_weights(path, weights, {"config": json.dumps(asdict(model.config))})
    save_json(path.with_suffix(".card.json"), card)


def load_model(path: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> GPT:
    """Read a model written by `save_model`, for inference (eval mode, no gradients).

    Raises ValueError, naming the file, if it is missing, truncated, foreign, of other shapes, or holds NaN.
    """
    path = Path(path)
    weights, metadata = read_weights(path)
    if "config" not in metadata:
        raise ValueError(f"{path.name} has no config in its metadata: it was not written by minispec")
    try:
        config = GPTConfig(**json.loads(metadata["config"]))
    except (TypeError, ValueError) as error:                       # unknown field, no mapping; bad value, bad JSON
        raise ValueError(f"{path.name} has a bad config in its metadata: {error}") from None
    return model_from(config, weights, path.name, dtype=dtype, device=device)


def load_part(path: str | Path, build: Callable[[dict], nn.Module], what: str, *, dtype: torch.dtype = torch.float32,
              device: torch.device | str = "cpu") -> nn.Module:
    """Read a module that is no GPT, written by `save_model`, for inference; build(its config as a dict) makes an empty
    one. Raises ValueError, naming the file and `what` it should hold, if it is missing, damaged or foreign."""
    path = Path(path)
    weights, metadata = read_weights(path)
    try:
        with torch.random.fork_rng(devices=[]):                    # building a module draws from the global dice
            module = build(json.loads(metadata["config"]))
        module.load_state_dict({name: weight.float() for name, weight in weights.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path.name} holds no {what}: {error}") from None
    return module.to(device, dtype).eval().requires_grad_(False)


def load_pair(folder: str | Path | None = None, *, device: torch.device | str = "cpu",
              dtype: torch.dtype = torch.float32) -> tuple[GPT, GPT, Tokenizer]:
    """-> (target, draft, tokenizer), from `folder` or, without one, the pair that ships with minispec.

    Raises ValueError if a file is missing or damaged, or if the three disagree on the vocabulary's size.
    """
    folder = ASSETS if folder is None else Path(folder)
    target = load_model(folder / "target.safetensors", dtype=dtype, device=device)
    draft = load_model(folder / "draft.safetensors", dtype=dtype, device=device)
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    sizes = {"target": target.config.vocab_size, "draft": draft.config.vocab_size,
             "tokenizer": tokenizer.get_vocab_size()}
    if len(set(sizes.values())) > 1:
        given = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"a pair must share one vocabulary, but the sizes differ: {given}")
    return target, draft, tokenizer
