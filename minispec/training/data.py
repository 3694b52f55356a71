"""Token arrays on disk, and batches from them.

Each (kind, split) of the corpus becomes one flat array of token ids, documents joined by the end token, stored once in
the cache folder. A batch is a set of random windows; which ones is a pure function of (seed, step), so a run that was
interrupted goes on with exactly the batches it would have seen.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import corpus
from .tokenizer import END


def cache_dir() -> Path:
    """Where tokenised data and checkpoints live: $MINISPEC_CACHE, or minispec under the user's cache folder."""
    base = os.environ.get("MINISPEC_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "minispec"
    return Path(base)


def encode_documents(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Texts -> one flat (N,) uint16 array, the end token after each document."""
    end = tokenizer.token_to_id(END)
    ids = []
    for encoding in tokenizer.encode_batch_fast(texts):
        ids += [*encoding.ids, end]
    return np.array(ids, dtype=np.uint16)


def array_path(tokenizer: Tokenizer, kind: str, split: str) -> Path:
    """Where the tokens of one kind and split are kept: another tokenizer has another folder."""
    key = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:12]
    return cache_dir() / f"tokens-{key}" / f"{kind}-{split}.npy"


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array whole or not at all: readers never see half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.npy")
    np.save(part, array)
    os.replace(part, path)


def token_array(tokenizer: Tokenizer, kind: str, split: str) -> np.ndarray:
    """The tokens of one kind and split, (N,) uint16, from the cache folder or made now (a minute or two)."""
    path = array_path(tokenizer, kind, split)
    if not path.exists():
        save_array(path, encode_documents(tokenizer, [d.text for d in corpus.documents(kind, split)]))
    return np.load(path, mmap_mode="r")


class Mixture:
    """Random windows from several token arrays, in given proportions."""

    def __init__(self, arrays: dict[str, np.ndarray], weights: dict[str, float]):
        self.names = [name for name in weights if weights[name] > 0]
        self.arrays = [arrays[name] for name in self.names]
        self.weights = np.array([weights[name] for name in self.names], dtype=float)
        self.weights /= self.weights.sum()

    def batch(self, seed: int, step: int, size: int, length: int) -> Tensor:
        """-> (size, length + 1) int64: inputs are [:, :-1], labels [:, 1:]. The same (seed, step) gives the same batch."""
        rng = np.random.default_rng([seed, step])
        rows = []
        for which in rng.choice(len(self.arrays), size=size, p=self.weights):
            array = self.arrays[which]
            start = rng.integers(0, len(array) - length - 1)
            rows.append(array[start:start + length + 1].astype(np.int64))
        return torch.from_numpy(np.stack(rows))
