"""Bad input, interruptions and readers that go away: one line, the right status, and never half a file."""

import io

import pytest
import torch
from conftest import small_gpt

from minispec import load_pair
from minispec.cli import generate
from minispec.model import export_gpt2, files

TEXT = "def f(x):\n    return x"


# --- bad input: status 2 and one line ---------------------------------------------------------------------------------

@pytest.fixture
def odd_files(tmp_path, folder):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "half").mkdir()
    for name in ("draft.safetensors", "tokenizer.json"):
        (tmp_path / "half" / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "half" / "target.safetensors").write_bytes((folder / "target.safetensors").read_bytes()[:1000])
    (tmp_path / "long").write_text("x = 1\n" * 600)
    target, _, tokenizer = load_pair(folder)
    export_gpt2(target, tokenizer, tmp_path / "big")
    export_gpt2(small_gpt(0, 700), tokenizer, tmp_path / "other")
    return tmp_path


@pytest.mark.parametrize("words, said", [
    ("", "the following arguments are required: COMMAND"),
    ("frobnicate", "invalid choice: 'frobnicate'"),
    ("demo --frobnicate", "unrecognized arguments: --frobnicate"),
    ("demo --temperature warm", "invalid float value: 'warm'"),
    ("demo --device tpu", "invalid choice: 'tpu'"),
    ("demo --pair nowhere", "target.safetensors is missing"),
    ("demo --pair half", "target.safetensors is truncated"),
    ("demo --pair PAIR --example 13", "has 1 to 12 prompts, 13 were asked for"),
    ("demo --pair PAIR --example 0", "has 1 to 12 prompts, 0 were asked for"),
    ("demo --pair PAIR --length 0", "draft length must be a whole number >= 1, got 0"),
    ("demo --pair PAIR --max-new-tokens 0", "max_new_tokens must be a whole number >= 1, got 0"),
    ("demo --pair PAIR --temperature -1", "temperature must be a finite number >= 0, got -1.0"),
    ("demo --pair PAIR --temperature nan", "temperature must be a finite number >= 0, got nan"),
    ("demo --pair PAIR --top-p 0", "top_p must be in (0, 1], got 0.0"),
    ("demo --pair PAIR --top-k 0", "top_k must be a whole number >= 1, or None, got 0"),
    ("demo --prompt a --example 2", "not allowed with argument"),
    ("generate --pair PAIR --prompt=", "the prompt is empty"),
    ("generate --pair PAIR --file long", "at most 511 fit a context of 512"),
    ("generate --pair PAIR --file nowhere", "nowhere: No such file or directory"),
    ("generate --pair PAIR --file bytes", "bytes is not UTF-8 text"),
    ("generate --pair PAIR --prompt a --trace half", "half is a folder: name a file"),
    ("generate --prompt a --draft-model other", "--draft-model goes with --model"),
    ("generate --prompt a --model big", "--model needs --draft-model"),
    ("generate --prompt a --model big --pair PAIR", "--pair and --model exclude each other"),
    ("generate --prompt a --model big --draft-model other", "must share one vocabulary"),
    ("bench --pair PAIR --methods magic", "unknown method 'magic': choose from chain-1"),
    ("bench --pair PAIR --workloads poems", "unknown workload 'poems'"),
    ("bench --pair PAIR --prompts 99", "has 1 to 12 prompts, 99 were asked for"),
    ("bench --pair PAIR --temperatures -1", "temperature must be a finite number >= 0"),
    ("bench --pair PAIR --output half", "half is a folder: name a file"),
    ("train", "the following arguments are required: --output"),
    ("train --output bytes", "bytes is a file: name a folder"),
    ("train --output new --steps 0", "--steps must be a whole number >= 1, got 0"),
    ("distill --output new --loss hinge", "invalid choice: 'hinge'"),
    ("distill --output new --target nowhere", "nowhere is missing"),
    ("export --pair nowhere --output new", "target.safetensors is missing"),
])
def test_bad_input_ends_in_one_line_that_says_what_was_given_and_what_is_allowed(
        run, folder, odd_files, monkeypatch, words, said):
    monkeypatch.chdir(odd_files)
    status, out, err = run(*(str(folder) if word == "PAIR" else word for word in words.split()))
    assert status == 2
    assert err.startswith("minispec: ") and err.count("\n") == 1 and "Traceback" not in err
    assert said in err
    assert out == "" and not (odd_files / "new").exists()


@pytest.mark.parametrize("command", ["demo", "generate", "bench", "train --output x", "distill --output x"])
def test_cuda_is_refused_where_there_is_none(run, monkeypatch, command):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    status, _, err = run(*command.split(), "--device", "cuda")
    assert status == 2 and "--device cuda: PyTorch finds no CUDA device on this machine, use --device cpu" in err


def test_generate_with_nothing_to_read_says_how_to_give_it_something(run, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    status, _, err = run("generate")
    assert status == 2 and "give --prompt TEXT, --file FILE, or a text on standard input" in err


# --- interruptions ----------------------------------------------------------------------------------------------------

def raiser(error):
    def raise_it(*arguments, **options):
        raise error
    return raise_it


@pytest.mark.parametrize("command, where", [("demo", "minispec.cli.demo.speculate"),
                                            ("bench", "minispec.bench.suite.run"),
                                            ("generate", "minispec.cli.generate.speculate")])
def test_ctrl_c_is_one_line_and_status_130(run, folder, monkeypatch, quick_passes, command, where):
    monkeypatch.setattr(where, raiser(KeyboardInterrupt()))
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    status, _, err = run(command, "--pair", folder)
    assert (status, err) == (130, "minispec: interrupted\n")


@pytest.mark.parametrize("error, status", [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 2)])
@pytest.mark.parametrize("moment", ["while writing", "before renaming"])
def test_an_interrupted_output_leaves_the_old_file_whole(run, folder, tmp_path, monkeypatch, quick_passes, error,
                                                         status, moment):
    file = tmp_path / "bench.json"
    file.write_text("old")
    if moment == "while writing":
        monkeypatch.setattr("pathlib.Path.write_text", raiser(error))
    else:
        monkeypatch.setattr(files.os, "replace", raiser(error))
    got, _, err = run("bench", "--pair", folder, "--prompts", 1,
                      "--max-new-tokens", 4, "--methods", "chain-2", "--output", file)
    assert got == status and err.startswith("minispec: ") and err.count("\n") == 1
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_reader_that_goes_away_is_no_error(run, folder, monkeypatch):
    monkeypatch.setattr(generate, "print", raiser(BrokenPipeError()), raising=False)
    assert run("generate", "--pair", folder, "--prompt", TEXT) == (141, "", "")
