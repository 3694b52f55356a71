"""The reader's own text as one more kind of document: recipes train on it, and distil on it, as on any other kind."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenizers import Tokenizer

from .data import array_path, encode_documents, save_array

LEAST = 4096                 # tokens: there must be windows to choose from, and some text to validate on


def add_text(tokenizer: Tokenizer, path: str | Path) -> str:
    """Store a text file's tokens where data.token_array looks for them -> the name of its kind, "text-" and a hash.

    The last twentieth is kept for validation. Raises ValueError if the file is no UTF-8 text, or too short.
    """
    data = Path(path).read_bytes()
    try:
        array = encode_documents(tokenizer, [data.decode("utf-8")])                    # (N,)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if len(array) < LEAST:
        raise ValueError(f"{path} has {len(array):,} tokens: training needs {LEAST:,} or more")
    kind, cut = f"text-{hashlib.sha256(data).hexdigest()[:12]}", len(array) * 19 // 20
    validation = max(len(array) - cut, LEAST // 4)
    save_array(array_path(tokenizer, kind, "train"), array[:-validation])
    save_array(array_path(tokenizer, kind, "validation"), array[-validation:])
    return kind
