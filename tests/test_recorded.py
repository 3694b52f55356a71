"""Recorded measurements: found by device, shown with their provenance, and honest where there is none."""

import json
from pathlib import Path

import pytest

from minispec.bench import more, recorded, suite

ENVIRONMENT = {"device": "A chip", "dtype": "float32", "threads": 2, "torch": "9.9", "python": "3.99",
               "date": "2026-01-02", "commit": "abc"}
FIGURES = {"environment": ENVIRONMENT, "passes": {"target_seconds": 0.004, "cost": 0.07, "verify_curve": {"1": 1.0}},
           "rows": [dict(method="chain-4", workload="code", temperature=0.0, draft_length=4, nodes=4,
                         tokens_per_second=100.0, ratio_to_plain=1.5, predicted_speedup=1.6, efficiency=0.94, acceptance_rate=0.7,
                         tokens_per_pass=3.0, draft_passes_per_round=4.0,
                         acceptance_by_position=[0.9, 0.8, 0.7, 0.6])]}


@pytest.fixture
def assets(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "ASSETS", tmp_path)
    return tmp_path


def test_a_file_is_found_by_its_device(assets):
    (assets / "bench-cpu-float32.json").write_text(json.dumps(FIGURES))
    assert recorded.recorded("cpu") == recorded.recorded() == [FIGURES]
    assert recorded.recorded("cuda") == []


def test_bench_shows_recorded_figures_as_recorded(run, assets):
    assert run("bench", "--recorded")[1] == "no measurement is recorded yet\n"
    (assets / "bench-cpu-float32.json").write_text(json.dumps(FIGURES))
    status, out, err = run("bench", "--recorded")
    assert (status, err) == (0, "")
    assert out.startswith("recorded: A chip, float32, 2 threads, torch 9.9, python 3.99, 2026-01-02, abc\n")
    assert "chain-4" in out and "1.50" in out and out.rstrip().endswith("4.00        0.70  .90 .80 .70 .60")
    assert json.loads(run("bench", "--recorded", "--json")[1]) == [FIGURES]


def test_whatever_ships_has_its_whole_provenance():
    for figures in recorded.recorded():
        assert set(figures["environment"]) == set(ENVIRONMENT)
        assert "dirty" not in figures["environment"]["commit"], "measured on files that nobody can find again"
        assert recorded.provenance(figures).startswith("recorded: ")


def test_the_readmes_table_is_the_recorded_one():
    figures, = (f for f in recorded.recorded("cpu") if f["environment"]["dtype"] == "float32")
    of = {(r["method"], r["workload"], r["temperature"]): r for r in figures["rows"]}
    lines = (Path(__file__).parent.parent / "README.md").read_text().split("## What it gains")[1].split("\n## ")[0]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines.split("\n") if line.startswith("|")]
    assert head[:2] == ["method", "draft passes"] and len(rows) == 18
    columns = [(name.split(",")[0], float(name.split("=")[1])) for name in head[2:]]
    for method, passes, *cells in rows:
        assert passes == f"{of[method, 'code', 0.0]['draft_passes_per_round']:.1f}"
        assert cells == [f"{of[method, *column]['ratio_to_plain']:.2f}" for column in columns]
    assert figures["environment"]["date"] in lines and figures["environment"]["device"] in lines


def test_a_block_from_one_pass_is_faster_than_the_chain_of_one_pass():
    """In the recorded run, both with one draft pass a round."""
    figures, = (f for f in recorded.recorded("cpu") if f["environment"]["dtype"] == "float32")
    ratio = {(r["method"], r["temperature"]): r["ratio_to_plain"] for r in figures["rows"] if r["workload"] == "code"}
    for temperature in (0.0, 1.0):
        assert ratio["parallel-6", temperature] > ratio["chain-1", temperature]


def test_on_agent_text_lookups_gain_and_drafts_that_are_the_target_itself():
    """What the README says of it; suffix/chain-5 is a lookup with a fallback, and gains at temperature 0 alone."""
    figures, = (f for f in recorded.recorded("cpu") if f["environment"]["dtype"] == "float32")
    for temperature in (0.0, 1.0):
        gains = {r["method"] for r in figures["rows"] if r["ratio_to_plain"] > 1
                 and (r["workload"], r["temperature"]) == ("agent", temperature)}
        assert gains - {"suffix/chain-5"} == {"ngram-8", "suffix-16", "int8-target-3", "early-exit-3"}


def test_in_bfloat16_a_block_beats_chains_of_any_length_at_temperature_1():
    figures, = (f for f in recorded.recorded("cpu") if f["environment"]["dtype"] == "bfloat16")
    ratio = {r["method"]: r["ratio_to_plain"] for r in figures["rows"] if r["temperature"] == 1.0}
    assert ratio["parallel-4"] > max(ratio[f"chain-{length}"] for length in range(1, 9))
    assert figures["passes"]["verify_curve"]["8"] < 1.05


def test_the_run_covers_every_drafter_on_three_kinds_of_text_at_two_temperatures():
    figures, = (f for f in recorded.recorded("cpu") if f["environment"]["dtype"] == "float32")
    measured = {(r["method"], r["workload"], r["temperature"]) for r in figures["rows"]}
    assert measured == {(method, workload, temperature) for method in ["plain", *suite.METHODS, *more.MORE]
                        for workload in ("code", "docs", "agent") for temperature in (0.0, 1.0)}
