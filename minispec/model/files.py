"""Files of weights: written whole or not at all, read with an error that says what is wrong.

Everything that leaves this project as a file goes through `save_atomic`: it is written beside the old one and renamed
over it, so an interrupted run or a full disk leaves the old file whole. Everything that comes in as weights goes
through `read_weights` and `model_from`, which name the file and the fault in one sentence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .gpt import GPT, GPTConfig


def save_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Call write(temporary path), then rename over `path`. On any error the old file stays and the temporary goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch()
        mode = part.stat().st_mode                               # an ordinary file's, by the user's umask
        write(part)
        part.chmod(mode)                                         # safetensors leaves a file that only its owner may read
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save_json(path: Path, value: dict) -> None:
    """Write `value` as indented JSON, atomically."""
    text = json.dumps(value, indent=2) + "\n"
    save_atomic(path, lambda part: part.write_text(text, encoding="utf-8"))


def save_weights(path: Path, weights: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, atomically. Raises OSError where the disk refuses, as any other write does."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    try:
        save_atomic(path, lambda part: save_file(weights, part, metadata))
    except SafetensorError as error:
        raise OSError(f"{path.name} could not be written: {error}") from None


def read_json(path: Path) -> dict:
    """Raises ValueError if the file is missing or holds no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name} is not a readable JSON file: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} must hold a JSON object, got a {type(value).__name__}")
    return value


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A safetensors file -> its tensors by name, and its metadata. Raises ValueError if it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path.name} is truncated, or no safetensors file: {error}") from None


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json. Raises ValueError if it is missing or holds no tokenizer."""
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:                                     # the library raises a bare Exception
        raise ValueError(f"{path.name} is not a tokenizer file: {error}") from None


class _NoInit(TorchFunctionMode):
    """Inside `with`, the functions of torch.nn.init do nothing: the values are about to be replaced anyway."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", None) != "torch.nn.init":
            return function(*args, **(kwargs or {}))


def model_from(config: GPTConfig, weights: dict[str, Tensor], source: str, *, dtype: torch.dtype = torch.float32,
               device: torch.device | str = "cpu") -> GPT:
    """Weights by parameter name -> a GPT for inference (eval mode, no gradients).

    Raises ValueError, with `source` as the file's name, unless names and shapes are exactly the model's and every
    number is finite in `dtype`.
    """
    with torch.device("meta"), _NoInit():                          # no memory, and no random number drawn
        model = GPT(config)
    expected = model.state_dict()
    if missing := expected.keys() - weights.keys():
        raise ValueError(f"{source} lacks {_some(missing)}: it is not this model's file, or not all of it")
    if foreign := weights.keys() - expected.keys():
        raise ValueError(f"{source} holds {_some(foreign)}, which this model does not have")
    for name, empty in expected.items():
        given = weights[name]
        if given.shape != empty.shape:
            raise ValueError(f"{source}: {name} has shape {tuple(given.shape)}, expected {tuple(empty.shape)}")
        if not given.is_floating_point():
            raise ValueError(f"{source}: {name} holds {given.dtype}, expected floating-point numbers")
        expected[name] = given.to(device, dtype).contiguous()
        if not expected[name].isfinite().all():
            raise ValueError(f"{source}: {name} holds NaN or infinite numbers (read as {dtype})")
    model.load_state_dict(expected, assign=True)
    return model.eval().requires_grad_(False)


def _some(names: set[str]) -> str:
    """The first name in alphabetical order, and how many more there are."""
    return min(names) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
