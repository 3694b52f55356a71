"""The commands: figures in exact shapes, one line for bad input, and never half a file. On a tiny random pair."""

import io
import json
import re

import pytest
import torch

from minispec import GPT, GPTConfig, Trace, load_pair
from minispec.analysis import checks
from minispec.bench import workloads
from minispec.cli import COMMANDS, bench, demo, distill, generate, main, parser, train
from minispec.decoding import rules
from minispec.model import export_gpt2, files, load_gpt2, pair, save_model
from minispec.training.data import token_array
from minispec.training.distill import Distillation
from minispec.training.own_text import _store, add_text
from minispec.training.recipes import Recipe
from minispec.training.tokenizer import train_tokenizer
from minispec.training.train import Schedule

TEXT = "def f(x):\n    return x"
ENVIRONMENT = ["device", "dtype", "threads", "torch", "python", "date", "commit"]
PASSES = ["context", "target_seconds", "draft_seconds", "verify_curve", "cost"]
ROW = ["method", "workload", "temperature", "draft_length", "tokens_per_second", "ratio_to_plain", "predicted_speedup",
       "efficiency", "acceptance_rate", "tokens_per_pass", "acceptance_by_position", "ratio_by_prompt"]


def small(seed, vocab, layers=1):
    torch.manual_seed(seed)
    return GPT(GPTConfig(vocab_size=vocab, context=512, n_layer=layers, n_head=2, n_embd=16))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pair on disk."""
    path = tmp_path_factory.mktemp("pair")
    tokenizer = train_tokenizer([p.text for kind in workloads.KINDS for p in workloads.prompts(kind)], vocab_size=600)
    save_model(path / "target.safetensors", small(0, 600), {})
    save_model(path / "draft.safetensors", small(1, 600), {})
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def run(capsys):
    """run("demo", ...) -> (status, stdout, stderr)."""
    def call(*words):
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()
    return call


def small_run(command, folder, *options):
    return [command, "--pair", folder, "--max-new-tokens", 12, *options]


# --- demo ---------------------------------------------------------------------------------------------------------------

def test_demo_streams_marked_text_and_a_summary(run, folder):
    status, out, err = run(*small_run("demo", folder, "--prompt", TEXT, "--color", "always"))
    assert status == 0 and err == "" and "\x1b[38;5;36m" in out
    out = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert out.startswith("✓ accepted") and "\ndef f(x):\n    return x" in out
    for line in ("speculative decoding", "plain decoding", "speedup", "acceptance rate", "tokens per pass", "measured on",
                 "equal to plain decoding, token by token"):
        assert line in out


def test_demo_marks_every_token_it_emits(run, folder):
    _, out, _ = run(*small_run("demo", folder, "--prompt", TEXT))
    assert "\x1b" not in out, "no colour where nobody looks"
    ribbon = out.split("\n\n", 1)[1].split("\nspeculative decoding")[0]           # without the legend and the summary
    assert 10 <= sum(ribbon.count(glyph) for glyph in "✓↻★") <= 12               # bytes of one character share a mark


def test_demo_continues_a_shipped_prompt_by_default(run, folder):
    _, out, _ = run(*small_run("demo", folder, "--json", "--example", 3))
    assert json.loads(out)["prompt"] == workloads.prompts("code")[2].text


def test_demo_json_has_exactly_these_keys(run, folder):
    status, out, _ = run(*small_run("demo", folder, "--prompt", TEXT, "--json", "--length", 3))
    figures = json.loads(out)
    assert status == 0
    assert list(figures) == ["prompt", "environment", "passes", *ROW, "plain_tokens_per_second", "loop_overhead",
                             "outputs_equal", "first_difference", "text"]
    assert list(figures["environment"]) == ENVIRONMENT and list(figures["passes"]) == PASSES
    assert figures["outputs_equal"] is True and figures["draft_length"] == 3
    assert 0 < figures["loop_overhead"] < 1


def test_demo_claims_no_equality_of_samples(run, folder):
    _, out, _ = run(*small_run("demo", folder, "--prompt", TEXT, "--temperature", 1))
    assert "one law, different samples" in out and "token by token" not in out
    _, out, _ = run(*small_run("demo", folder, "--prompt", TEXT, "--temperature", 1, "--json"))
    assert json.loads(out)["outputs_equal"] is None


def test_demo_says_where_the_outputs_differ_if_they_do(run, folder, monkeypatch):
    monkeypatch.setattr(demo, "first_difference", lambda a, b: 7)
    _, out, _ = run(*small_run("demo", folder, "--prompt", TEXT))
    assert "differ from plain decoding at new token 7: a near-tie" in out


def test_demo_of_one_token_has_no_acceptance_and_divides_by_nothing(run, folder):
    status, out, _ = run("demo", "--pair", folder, "--prompt", TEXT, "--max-new-tokens", 1)
    assert status == 0 and "nothing was proposed" in out


# --- generate -----------------------------------------------------------------------------------------------------------

def completion(run, folder, *options):
    status, out, err = run(*small_run("generate", folder, "--prompt", TEXT, "--json", *options))
    assert (status, err) == (0, "")
    return json.loads(out)


def test_generate_json_has_exactly_these_keys_and_counts_that_agree(run, folder):
    done = completion(run, folder)
    assert list(done) == ["text", "tokens", "stop_reason", "rounds", "proposed", "accepted", "acceptance_rate",
                          "acceptance_by_position", "tokens_per_pass", "seconds", "tokens_per_second"]
    assert len(done["tokens"]) == 12 == done["accepted"] + done["rounds"]
    assert done["stop_reason"] == "length" and done["acceptance_rate"] == done["accepted"] / done["proposed"]
    assert done["tokens_per_second"] == pytest.approx(12 / done["seconds"])
    assert done["text"] == load_pair(folder)[2].decode(done["tokens"])


def test_plain_generation_writes_the_same_at_temperature_0_and_proposes_nothing(run, folder):
    plain, speculative = (completion(run, folder, "--temperature", 0, *extra) for extra in (["--plain"], []))
    assert plain["tokens"] == speculative["tokens"]
    assert (plain["rounds"], plain["proposed"], plain["acceptance_rate"]) == (12, 0, None)


def test_the_seed_decides_what_is_sampled(run, folder):
    a, b, c = (completion(run, folder, "--seed", seed)["tokens"] for seed in (1, 1, 2))
    assert a == b != c


def test_text_is_streamed_as_json_has_it(run, folder):
    _, out, _ = run(*small_run("generate", folder, "--prompt", TEXT))
    assert out == completion(run, folder)["text"] + "\n"


def test_the_prompt_may_come_from_a_file_or_standard_input(run, folder, tmp_path, monkeypatch):
    (tmp_path / "prompt.py").write_text(TEXT)
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    wanted = completion(run, folder)["tokens"]
    for where in (["--file", tmp_path / "prompt.py"], []):
        _, out, _ = run(*small_run("generate", folder, "--json", *where))
        assert json.loads(out)["tokens"] == wanted


def test_the_trace_is_written_and_can_be_read(run, folder, tmp_path):
    file = tmp_path / "trace.json"
    done = completion(run, folder, "--trace", file)
    trace = Trace.from_json(file.read_text())
    assert [token for r in trace.rounds for token in r.emitted] == done["tokens"]


def test_a_gpt2_folder_may_be_the_target_and_another_its_draft(run, folder, tmp_path):
    target, draft, tokenizer = load_pair(folder)
    export_gpt2(target, tokenizer, tmp_path / "big")
    export_gpt2(draft, tokenizer, tmp_path / "small")
    words = ["generate", "--max-new-tokens", 12, "--prompt", TEXT, "--json", "--model", tmp_path / "big"]
    _, out, _ = run(*words, "--draft-model", tmp_path / "small")
    assert json.loads(out)["tokens"] == completion(run, folder)["tokens"]
    status, out, _ = run(*words, "--plain")                                # plain decoding needs no draft
    assert status == 0 and json.loads(out)["rounds"] == 12


# --- bench --------------------------------------------------------------------------------------------------------------

def bench_words(folder, *options):
    return ["bench", "--pair", folder, "--prompts", 1, "--max-new-tokens", 4, "--methods", "chain-2", *options]


@pytest.fixture
def quick_passes(monkeypatch):
    monkeypatch.setattr(bench, "measure_passes", lambda t, d: demo.measure_passes(t, d, widths=(3,), repeats=1))


def test_bench_json_has_exactly_these_keys_and_the_file_holds_the_same(run, folder, tmp_path, quick_passes):
    file = tmp_path / "new" / "bench.json"
    status, out, _ = run(*bench_words(folder, "--json", "--output", file))
    figures = json.loads(out)
    assert status == 0 and list(figures) == ["environment", "passes", "rows"]
    assert list(figures["environment"]) == ENVIRONMENT and list(figures["passes"]) == PASSES
    assert [(r["temperature"], r["method"]) for r in figures["rows"]] == [
        (0.0, "plain"), (0.0, "chain-2"), (1.0, "plain"), (1.0, "chain-2")]
    assert all(list(r) == ROW for r in figures["rows"])
    assert json.loads(file.read_text()) == figures


def test_bench_prints_a_table_for_each_workload_and_temperature(run, folder, quick_passes):
    _, out, _ = run(*bench_words(folder, "--workloads", "code", "records", "--temperatures", 0))
    assert "code, temperature 0\n" in out and "records, temperature 0\n" in out
    assert out.count("\nchain-2") == 2 and out.count("\nplain") == 2 and "the prefill is not in it" in out


# --- check --------------------------------------------------------------------------------------------------------------

ONE = dict(rule="token", origin="sampled", cases=4, max_error=1e-16, exact=True, passed=True)


def test_check_proves_and_prints_each_error(run, monkeypatch):
    proved = [checks.row(rules.Token(), "sampled")]                        # one real proof stands for all
    monkeypatch.setattr(checks, "rows", lambda: proved)
    status, out, _ = run("check", "--json")
    row, = json.loads(out)["rows"]
    assert status == 0 and list(json.loads(out)) == ["rows"] and list(row) == list(ONE)
    assert row["max_error"] <= 1e-12 and row["passed"] is True
    _, out, _ = run("check")
    assert f"{row['max_error']:.2e}" in out and "all passed" in out


def test_check_exits_1_if_a_rule_fails(run, monkeypatch):
    monkeypatch.setattr(checks, "rows", lambda: [ONE, ONE | dict(rule="block", max_error=0.1, passed=False)])
    status, out, err = run("check")
    assert status == 1 and err == "" and "FAILED" in out and "1.00e-01" in out and "1 of 2" in out
    assert run("check", "--json")[0] == 1


# --- train, distill, export ---------------------------------------------------------------------------------------------

@pytest.fixture
def workshop(tmp_path, folder, monkeypatch):
    """A cache and recipes of its own, the tiny pair as the shipped one, and a text long enough to train on."""
    monkeypatch.setenv("MINISPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pair, "ASSETS", folder)
    config, schedule = GPTConfig(600, 256, 1, 2, 16), Schedule(1, batch_tokens=64, length=32, short_length=16, warmup=1)
    monkeypatch.setattr(train, "RECIPES", {"target": Recipe("target", config, {"code": 1.0}, schedule)})
    monkeypatch.setattr("minispec.training.distill.DRAFT", Distillation(
        "draft", config, {"code": 1.0, "samples": 0.0}, schedule))
    (tmp_path / "novel.txt").write_text("".join(p.text for kind in workloads.KINDS for p in workloads.prompts(kind)))
    return tmp_path


def test_train_and_distill_on_own_text_make_a_pair_that_speculates(run, workshop, folder):
    tokenizer, mine = load_pair(folder)[2], workshop / "mine"
    kind = add_text(tokenizer, workshop / "novel.txt")
    _store(tokenizer, "code", "validation", token_array(tokenizer, kind, "validation"))      # distill looks at it too
    status, out, err = run("train", "--text", workshop / "novel.txt", "--steps", 2, "--output", mine, "--json")
    card = json.loads(out)
    assert status == 0 and card["steps"] == 2 and card["data"] == {kind: 1.0} and "step 2/2" in err
    status, *_ = run("distill", "--target", mine / "target.safetensors", "--text", workshop / "novel.txt", "--loss", "kl",
                     "--output", mine)
    assert status == 0
    assert sorted(file.name for file in mine.iterdir()) == [
        "draft.card.json", "draft.safetensors", "target.card.json", "target.safetensors", "tokenizer.json"]
    assert run(*small_run("generate", mine, "--prompt", TEXT))[0] == 0


def test_an_interrupted_training_says_how_to_go_on_and_writes_nothing(run, workshop, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.recipes, "train", interrupted)
    status, out, err = run("train", "--output", workshop / "mine")
    assert (status, out) == (130, "")
    assert err == "minispec: interrupted: the same command goes on from the last checkpoint\n"
    assert not (workshop / "mine").exists()


def test_runs_that_differ_have_checkpoints_of_their_own(workshop, folder):
    target = folder / "target.safetensors"
    names = set()
    for options in ([], ["--seed", "3"], ["--loss", "tv"], ["--target", str(target)]):
        args = parser().parse_args(["distill", "--output", "x", *options])
        names.add(distill.run_name(train.adapt(distill.distill.DRAFT, args), args, target))
    assert len(names) == 4 and "draft" in names


def test_a_text_too_short_to_train_on_is_refused(run, workshop):
    (workshop / "haiku.txt").write_text("an old silent pond")
    status, _, err = run("train", "--text", workshop / "haiku.txt", "--output", workshop / "mine")
    assert status == 2 and "training needs 4,096 or more" in err


def test_export_writes_two_folders_that_load_as_gpt2(run, folder, tmp_path):
    status, out, _ = run("export", "--pair", folder, "--output", tmp_path / "exported")
    assert status == 0 and out.count("wrote") == 2
    for role, model in zip(("target", "draft"), load_pair(folder)):
        assert torch.equal(load_gpt2(tmp_path / "exported" / role).wte.weight, model.wte.weight)


# --- bad input: status 2 and one line ---------------------------------------------------------------------------------------

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
    export_gpt2(small(0, 700), tokenizer, tmp_path / "other")
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
    ("demo --pair PAIR --top-k 0", "top_k must be >= 1 or None, got 0"),
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
    ("bench --pair PAIR --methods magic", "unknown method 'magic': choose from chain-2"),
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


# --- interruptions --------------------------------------------------------------------------------------------------------

def raiser(error):
    def raise_it(*arguments, **options):
        raise error
    return raise_it


@pytest.mark.parametrize("command, where", [("demo", "minispec.cli.demo.speculate"), ("bench", "minispec.bench.suite.run"),
                                            ("generate", "minispec.cli.generate.speculate")])
def test_ctrl_c_is_one_line_and_status_130(run, folder, monkeypatch, quick_passes, command, where):
    monkeypatch.setattr(where, raiser(KeyboardInterrupt()))
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    status, _, err = run(command, "--pair", folder)
    assert (status, err) == (130, "minispec: interrupted\n")


@pytest.mark.parametrize("error, status", [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 2)])
@pytest.mark.parametrize("moment", ["while writing", "before renaming"])
def test_an_interrupted_output_leaves_the_old_file_whole(run, folder, tmp_path, monkeypatch, quick_passes, error, status,
                                                         moment):
    file = tmp_path / "bench.json"
    file.write_text("old")
    if moment == "while writing":
        monkeypatch.setattr("pathlib.Path.write_text", raiser(error))
    else:
        monkeypatch.setattr(files.os, "replace", raiser(error))
    got, _, err = run(*bench_words(folder, "--output", file))
    assert got == status and err.startswith("minispec: ") and err.count("\n") == 1
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_reader_that_goes_away_is_no_error(run, folder, monkeypatch):
    monkeypatch.setattr(generate, "print", raiser(BrokenPipeError()), raising=False)
    assert run(*small_run("generate", folder, "--prompt", TEXT)) == (141, "", "")


# --- help -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "example:" in out and f"python -m minispec {command}" in out
