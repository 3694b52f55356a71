"""A draft that spells: its windows say what the target's say, in bytes."""

import numpy as np
import pytest
import torch
from models import tiny_gpt

from minispec import GPTConfig
from minispec.model import load_pair
from minispec.training.data import Mixture
from minispec.training.distill import Distillation
from minispec.training.spelled import BYTE, Spelled, byte_words, train_byte
from minispec.training.tokenizer import END, byte_tokenizer
from minispec.training.train import Schedule


@pytest.fixture(scope="module")
def tokenizer():
    return load_pair()[2]


@pytest.fixture
def mixture(tokenizer):
    ids = tokenizer.encode("def é(x):\n    return x  # ∑ of one\n").ids + [tokenizer.token_to_id(END)]
    return Mixture({"code": np.array(ids * 40, dtype=np.uint16)}, {"code": 1.0})


def test_a_byte_tokenizer_is_256_bytes_and_the_special_tokens():
    assert byte_tokenizer().get_vocab_size() == BYTE.config.vocab_size
    assert byte_tokenizer().decode(byte_tokenizer().encode("é ∑\t").ids) == "é ∑\t"


def test_windows_say_what_the_targets_windows_say(mixture, tokenizer):
    words = byte_words(tokenizer)
    windows, spelled = mixture.batch(3, 5, 6, 30), Spelled(mixture, words).batch(3, 5, 6, 30)
    assert spelled.shape == (6, 31) and spelled.max() < 260
    for window, row in zip(windows.tolist(), spelled.tolist()):
        said = b"".join(words.draft[token] for token in row)
        assert words.text(window).startswith(said), "the same text from its start, as far as 31 bytes reach"


def test_the_end_of_a_document_is_one_token_not_its_name_in_letters(mixture, tokenizer):
    end = byte_tokenizer().token_to_id(END)
    assert (Spelled(mixture, byte_words(tokenizer)).batch(0, 0, 4, 100) == end).any(1).all()


def test_the_draft_learns_to_spell(mixture, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("MINISPEC_CACHE", str(tmp_path))
    monkeypatch.setattr("minispec.training.spelled.training_data", lambda *_: mixture)
    config = GPTConfig(260, 64, n_layer=1, n_head=2, n_embd=32)
    recipe = Distillation("byte", config, {"code": 1.0}, Schedule(60, 512, 64, 64, learning_rate=3e-3, warmup=1))
    lines = []
    with torch.random.fork_rng(devices=[]):
        draft = train_byte(recipe, tiny_gpt(5), tokenizer, lines.append)
    window = Spelled(mixture, byte_words(tokenizer)).batch(9, 9, 4, 60)
    with torch.no_grad():
        right = (draft(window[:, :-1]).argmax(-1) == window[:, 1:]).float().mean()
    assert right > 0.3, f"of 260 tokens, after {lines[-1]}"
