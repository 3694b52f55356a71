"""demo, generate, bench and check: figures in exact shapes, which agree with each other. On a tiny random pair."""

import io
import json
import re

import pytest

from minispec import Trace, load_pair
from minispec.analysis import checks
from minispec.bench import workloads
from minispec.cli import COMMANDS, demo, main
from minispec.decoding import rules
from minispec.model import export_gpt2

TEXT = "def f(x):\n    return x"
ENVIRONMENT = ["device", "dtype", "threads", "torch", "python", "date", "commit"]
PASSES = ["context", "target_seconds", "draft_seconds", "verify_curve", "draft_curve", "cost"]
ROW = ["method", "workload", "temperature", "draft_length", "nodes", "tokens_per_second", "ratio_to_plain",
       "predicted_speedup", "efficiency", "acceptance_rate", "tokens_per_pass",
       "draft_passes_per_round", "acceptance_by_position", "ratio_by_prompt"]


def small_run(command, folder, *options):
    return [command, "--pair", folder, "--max-new-tokens", 12, *options]


# --- demo -------------------------------------------------------------------------------------------------------------

def test_demo_streams_marked_text_and_a_summary(run, folder):
    status, out, err = run(*small_run("demo", folder, "--prompt", TEXT, "--color", "always"))
    assert status == 0 and err == "" and "\x1b[38;5;36m" in out
    out = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert out.startswith("✓ accepted") and "\ndef f(x):\n    return x" in out
    for line in ("speculative decoding", "plain decoding", "speedup", "acceptance rate", "tokens per pass",
                 "measured on", "equal to plain decoding, token by token"):
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


# --- generate ---------------------------------------------------------------------------------------------------------

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


# --- bench ------------------------------------------------------------------------------------------------------------

def bench_words(folder, *options):
    return ["bench", "--pair", folder, "--prompts", 1, "--max-new-tokens", 4, "--methods", "chain-2", *options]


def test_bench_json_has_exactly_these_keys_and_the_file_holds_the_same(run, folder, tmp_path, quick_passes):
    file = tmp_path / "new" / "bench.json"
    status, out, _ = run(*bench_words(folder, "--json", "--output", file))
    figures = json.loads(out)
    assert status == 0 and list(figures) == ["environment", "passes", "rounding", "rows"]
    assert list(figures["environment"]) == ENVIRONMENT and list(figures["passes"]) == PASSES
    assert [(r["temperature"], r["method"]) for r in figures["rows"]] == [
        (0.0, "plain"), (0.0, "chain-2"), (1.0, "plain"), (1.0, "chain-2")]
    assert all(list(r) == ROW for r in figures["rows"])
    assert list(figures["rounding"]) == ["width", "largest_logit_difference"]                    # H6
    assert 0 <= figures["rounding"]["largest_logit_difference"] < 1e-3
    assert json.loads(file.read_text()) == figures


def test_bench_times_the_same_weights_in_transformers_and_finds_the_same_tokens(run, folder, quick_passes):
    options = ["--temperatures", 0, "--transformers", "--workloads", "records", "code", "--prompts", 2]
    _, out, _ = run(*bench_words(folder, *options, "--json"))
    rows = json.loads(out)["against_transformers"]
    assert [(r["method"], r["workload"]) for r in rows] == [("plain", "records"), ("speculative", "records")]
    for r in rows:
        assert r["equal_outputs"] == 1.0, "equal weights, equal greedy tokens"
        assert r["ratio"] == pytest.approx(r["tokens_per_second"] / r["transformers_tokens_per_second"])
    status, out, err = run(*bench_words(folder, *options))
    assert status == 0 and err == "" and "the same weights in transformers, temperature 0, records, whole calls" in out


def test_bench_prints_a_table_for_each_workload_and_temperature(run, folder, quick_passes):
    _, out, _ = run(*bench_words(folder, "--workloads", "code", "records", "--temperatures", 0))
    assert "code, temperature 0\n" in out and "records, temperature 0\n" in out
    assert out.count("\nchain-2") == 2 and out.count("\nplain") == 2 and "the prefill is not in it" in out
    assert "logits of passes over 1 and over 8 tokens differ by up to" in out


# --- check ------------------------------------------------------------------------------------------------------------

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


# --- help -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "example:" in out and f"python -m minispec {command}" in out
