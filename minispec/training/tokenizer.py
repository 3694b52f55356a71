"""Byte-level BPE with 2,048 entries (the `tokenizers` library): small, so the output head stays a small part of the model.

Every byte string can be encoded, and decode(encode(text)) == text. The split pattern suits Python: a line break and
the indentation after it are one piece, and a dot, an underscore or a space sticks to the word that follows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END, MASK, SLOT_START, SLOT_END = SPECIALS = ("<|endoftext|>", "<|mask|>", "<|slot_start|>", "<|slot_end|>")
_PATTERN = r"\n[\n ]*|[ ._]?\p{L}+|\d{1,3}| ?[^\s\p{L}\d]+|\s+"


def train_tokenizer(texts: Iterable[str], vocab_size: int = 2048) -> Tokenizer:
    """Learn the merges from `texts`. Ids 0..3 are the special tokens, in the order of SPECIALS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(SPECIALS), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """The special tokens and the 256 bytes, no merge: the vocabulary of a draft that spells."""
    return train_tokenizer([], vocab_size=len(SPECIALS) + 256)
