"""Fixtures of the commands' tests: a tiny random pair on disk, and a way to run a command in this process."""

import pytest
import torch
from browser import Browser

from minispec import GPT, GPTConfig
from minispec.bench import workloads
from minispec.cli import main
from minispec.model import save_model
from minispec.training.tokenizer import train_tokenizer


def small_gpt(seed, vocab):
    torch.manual_seed(seed)
    return GPT(GPTConfig(vocab_size=vocab, context=512, n_layer=1, n_head=2, n_embd=16))


@pytest.fixture
def no_gradients():
    """Tests of decoding build no graphs: pytestmark = pytest.mark.usefixtures("no_gradients")."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A pair on disk: random weights, and a tokenizer for the shipped prompts."""
    path = tmp_path_factory.mktemp("pair")
    tokenizer = train_tokenizer([p.text for kind in workloads.KINDS for p in workloads.prompts(kind)], vocab_size=600)
    save_model(path / "target.safetensors", small_gpt(0, 600), {})
    save_model(path / "draft.safetensors", small_gpt(1, 600), {})
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def run(capsys):
    """run("demo", ...) -> (status, stdout, stderr)."""
    def call(*words):
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()
    return call


@pytest.fixture
def quick_passes(monkeypatch):
    """bench measures two passes only."""
    from minispec.cli import bench

    measure = bench.measure_passes
    monkeypatch.setattr(bench, "measure_passes", lambda target, draft: measure(target, draft, widths=(3,), repeats=1))


@pytest.fixture
def browser(tmp_path):
    """A headless Chromium with an empty page; see browser.py."""
    with Browser(tmp_path / "profile") as opened:
        yield opened
