"""The clock and the suite: what is timed, in which order, how it is counted, and what is predicted from it."""

import subprocess
from dataclasses import replace

import pytest
import torch
from models import TableLM, random_table, tiny_gpt

from minispec import GPT, GPTConfig, Sampling, SeededDice, speculate
from minispec.analysis.theory import speedup
from minispec.bench import suite, timing, workloads
from minispec.bench.suite import METHODS, chosen, interleave, run
from minispec.bench.timing import Passes, environment, measure_passes
from minispec.decoding import rules
from minispec.training.corpus import Document, split_of

PASSES = Passes(200, 0.004, 0.0004, {1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0, 16: 3.0})
ROW_KEYS = ["method", "workload", "temperature", "draft_length", "nodes", "tokens_per_second",
            "ratio_to_plain", "predicted_speedup", "efficiency", "acceptance_rate", "tokens_per_pass",
            "draft_passes_per_round", "acceptance_by_position", "ratio_by_prompt"]
PROMPTS = [[1, 2, 3, 1, 2], [4, 4, 5]]
KINDS = chosen(["chain-2", "ngram-8", "tree-match"])              # one of each kind of prediction


@pytest.fixture(scope="module")
def models():
    return tiny_gpt(8, 0, context=64), tiny_gpt(8, 1, context=64)


# --- the suite --------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def rows(models):
    return run(*models, {"code": PROMPTS, "agent": PROMPTS[:1]}, KINDS, PASSES, max_new_tokens=8)


def test_there_is_one_row_for_each_workload_temperature_and_method_and_all_have_the_same_keys(rows):
    assert [(r["workload"], r["temperature"], r["method"]) for r in rows] == [
        (workload, temperature, method) for workload in ("code", "agent") for temperature in (0.0, 1.0)
        for method in ["plain", *KINDS]]
    assert all(list(r) == ROW_KEYS for r in rows)
    assert all(len(r["ratio_by_prompt"]) == {"code": 2, "agent": 1}[r["workload"]] for r in rows)


def test_efficiency_is_measured_over_predicted(rows):
    for r in rows:
        assert r["efficiency"] == pytest.approx(r["ratio_to_plain"] / r["predicted_speedup"])


def test_the_ratio_is_between_rows_of_the_same_run(rows):
    plain = {(r["workload"], r["temperature"]): r for r in rows if r["method"] == "plain"}
    for r in rows:
        reference = plain[r["workload"], r["temperature"]]["tokens_per_second"]
        assert r["ratio_to_plain"] == pytest.approx(r["tokens_per_second"] / reference)
    for r in plain.values():
        assert (r["ratio_to_plain"], r["predicted_speedup"], r["tokens_per_pass"]) == (1, 1, 1)
        assert (r["draft_length"], r["nodes"], r["acceptance_rate"]) == (0, 0, None)
        assert r["acceptance_by_position"] == []


@pytest.fixture(scope="module")
def done(models):
    """Generations at temperature 1."""
    return interleave(*models, PROMPTS, KINDS, max_new_tokens=9)


@pytest.mark.parametrize("name", ["plain", *KINDS])
def test_both_sides_are_counted_alike_tokens_that_were_emitted_over_seconds_of_decoding(done, name):          # K3 K10
    tokens = sum(len(g.tokens) for g in done[name])
    assert tokens == 9 * len(PROMPTS), "no stop tokens: all do equal work"
    seconds = sum(g.trace.total_seconds - g.trace.prefill_seconds for g in done[name])
    r = suite.row(name, KINDS.get(name), "code", 1.0, done[name], done["plain"], PASSES)
    assert r["tokens_per_second"] == pytest.approx(tokens / seconds)


def test_methods_take_turns_and_each_prompt_starts_with_another_one(models):
    order = []
    methods = chosen(["chain-2", "ngram-8"])
    interleave(*models, [[1], [2], [3]], methods, max_new_tokens=2,
               on_generation=lambda i, name: order.append((i, name)))
    assert order == [(0, "plain"), (0, "chain-2"), (0, "ngram-8"),
                     (1, "chain-2"), (1, "ngram-8"), (1, "plain"),
                     (2, "ngram-8"), (2, "plain"), (2, "chain-2")]


def test_at_temperature_0_every_method_writes_what_plain_decoding_writes(models):
    done = interleave(*models, PROMPTS[:1], METHODS, sampling=Sampling(0.0), max_new_tokens=9)
    for name, generations in done.items():
        assert [g.tokens for g in generations] == [g.tokens for g in done["plain"]], name


def test_a_run_is_reproduced_by_its_seed_and_prompts_have_seeds_of_their_own(models):
    methods, prompts = chosen(["chain-3"]), [[1, 2], [1, 2]]             # one prompt twice
    a, b = (interleave(*models, prompts, methods, max_new_tokens=16, seed=5) for _ in range(2))
    assert [g.tokens for g in a["chain-3"]] == [g.tokens for g in b["chain-3"]]
    assert a["chain-3"][0].tokens != a["chain-3"][1].tokens


def test_where_nothing_was_proposed_nothing_is_divided_by_zero(models):
    for r in run(*models, {"code": [[0, 1, 2]]}, KINDS, PASSES, max_new_tokens=1):         # room for no proposal
        assert r["acceptance_rate"] is None and r["acceptance_by_position"] == [] and r["tokens_per_pass"] == 1
        assert r["predicted_speedup"] == 1, "a round without a proposal is a plain step"


def test_a_chain_is_predicted_by_the_textbook_formula_with_measured_costs(rows):
    for r in (r for r in rows if r["method"] == "chain-2"):
        assert r["predicted_speedup"] == speedup(r["acceptance_by_position"], 2, 0.1, PASSES.verify)


@pytest.mark.parametrize("name, draft_cost", [("tree-match", 0.1), ("ngram-8", 0.0)])
def test_other_methods_are_predicted_from_the_rounds_as_they_were(done, name, draft_cost):
    rounds = [r for g in done[name] for r in g.trace.rounds]
    assert any(r.tokens for r in rounds)
    cost = sum(draft_cost * max((len(r.tree.path(node)) for node in range(len(r.tokens))), default=0)
               + PASSES.verify(len(r.tokens) + 1) for r in rounds)
    row = suite.row(name, KINDS[name], "code", 1.0, done[name], done["plain"], PASSES)
    assert row["predicted_speedup"] == pytest.approx(9 * len(PROMPTS) / cost)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.feeds is not suite.no_pass])
@pytest.mark.parametrize("seed", [0, 1], ids=["perfect draft", "poor draft"])
def test_draft_passes_are_told_from_the_trace_as_the_draft_really_made_them(name, seed):         # E6
    """Their widths, round by round, against the calls that the draft model recorded; the first is its prefill."""
    target, draft = TableLM(random_table(9, 0)), TableLM(random_table(9, seed))
    method, ends, told = METHODS[name], [], []
    speculate(target, method.drafter(draft), [1, 2, 3], max_new_tokens=40, rule=method.rule, dice=SeededDice(0),
              on_round=lambda r: (ends.append(len(draft.calls)), told.append(method.draft_passes(r))))
    made = [[len(call.tokens) for call in draft.calls[start:end]] for start, end in zip([1, *ends], ends)]
    assert told == made
    assert max(map(len, made)) == method.draft_length or not (method.fixed_chain or name.startswith("tree"))


def test_a_draft_pass_over_several_tokens_has_its_own_price(done):
    """Twice the price for two tokens: more than a tree's passes cost if each were a pass over one."""
    dear = replace(PASSES, draft_curve={1: 1.0, 2: 2.0})
    assert (dear.draft(1), dear.draft(2), dear.draft(3)) == pytest.approx((0.1, 0.2, 0.3))
    method, rounds = KINDS["tree-match"], [r for g in done["tree-match"] for r in g.trace.rounds]
    cost = sum(0.1 * sum(method.draft_passes(r)) + PASSES.verify(len(r.tokens) + 1) for r in rounds)
    row = suite.row("tree-match", method, "code", 1.0, done["tree-match"], done["plain"], dear)
    assert row["predicted_speedup"] == pytest.approx(9 * len(PROMPTS) / cost)


def test_every_tree_has_the_budget_of_the_longest_chain(models):                       # E6
    budgets = {name: method.drafter(models[1]).max_nodes for name, method in METHODS.items()
               if name.startswith("tree") or name in ("chain-8", "block-8", "ngram-8")}
    assert set(budgets.values()) == {8} and len(budgets) == 8


def test_nodes_are_the_largest_proposal_that_was_made(rows):
    assert {r["method"]: r["nodes"] for r in rows if r["method"] != "ngram-8"} == {"plain": 0, "chain-2": 2,
                                                                                   "tree-match": 8}


def test_every_shipped_method_claims_to_be_exact():
    assert all(method.rule.exact for method in METHODS.values())
    assert isinstance(METHODS["chain-5"].rule, rules.Token) and METHODS["chain-5"].draft_length == 5


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown method 'chain-99': choose from chain-1, chain-2"):
        chosen(["chain-2", "chain-99"])


# --- passes -----------------------------------------------------------------------------------------------------------

class Spy:
    """A model that records (name, tokens, positions in the cache) of each pass."""

    def __init__(self, name, calls, context=64):
        self.model, self.name, self.calls = GPT(GPTConfig(8, context, 1, 1, 4)).eval(), name, calls
        self.config, self.device, self.new_cache = self.model.config, self.model.device, self.model.new_cache

    def __call__(self, rows, cache, **where):
        self.calls.append((self.name, rows.shape[1], cache.length))
        return self.model(rows, cache, **where)


def measure(monkeypatch, seconds, **options):
    """measure_passes with a clock that says `seconds(name, width, number of this pass)`."""
    calls, counts = [], {}

    def timed(run, device):
        before = len(calls)
        run()
        name, width, _ = calls[-1]
        counts[name, width] = counts.get((name, width), 0) + 1
        return seconds(name, width, counts[name, width]) * (len(calls) - before)

    monkeypatch.setattr(timing, "timed", timed)
    return measure_passes(Spy("target", calls), Spy("draft", calls), **options), calls


def test_cost_and_verify_curve_are_ratios_of_medians_and_the_first_time_round_does_not_count(monkeypatch):
    def seconds(name, width, number):
        if number in (1, 3, 5):
            return 99.0                                          # the warm-up, and busy moments
        return 0.2 + 0.05 * (width - 1) if name == "draft" else 1.0 + 0.5 * (width - 1)

    passes, _ = measure(monkeypatch, seconds, context=20, widths=(2, 4), repeats=5)
    assert (passes.context, passes.target_seconds, passes.draft_seconds) == (20, 1.0, 0.2)
    assert passes.cost == pytest.approx(0.2)
    assert passes.verify_curve == {1: 1.0, 2: 1.5, 4: 2.5}
    assert passes.verify(3) == pytest.approx(2.0)
    assert passes.draft_curve == pytest.approx({1: 1.0, 2: 1.25, 4: 1.75})
    assert passes.draft(3) == pytest.approx(0.3)


def test_passes_take_turns_over_caches_that_were_rolled_back(monkeypatch):
    _, calls = measure(monkeypatch, lambda *_: 1.0, context=20, widths=(2, 4), repeats=3)
    fills, timed_calls = calls[:6], calls[6:]
    assert [call[1:] for call in fills] == [(20, 0)] * 6
    turn = [("target", 1), ("target", 2), ("target", 4), *[("draft", 1)] * timing.IN_A_ROW, ("draft", 2), ("draft", 4)]
    assert timed_calls == [(name, width, 20) for name, width in turn] * 4


def test_context_and_widths_give_way_to_a_short_context(monkeypatch):
    passes, _ = measure(monkeypatch, lambda *_: 1.0, repeats=1)          # asks for 200 positions; the model has 64
    assert passes.context == 32 and max(passes.verify_curve) == 32


def test_a_pass_is_measured_for_real(models):
    passes = measure_passes(*models, widths=(4,), repeats=1)
    assert passes.verify_curve[1] == 1 and passes.cost > 0 and passes.to_dict()["cost"] == passes.cost


# --- the machine ------------------------------------------------------------------------------------------------------

def test_the_environment_says_all_that_a_figure_must_carry():
    found = environment("cpu", torch.bfloat16)
    assert list(found) == ["device", "dtype", "threads", "torch", "python", "date", "commit"]
    assert found["dtype"] == "bfloat16" and found["threads"] == torch.get_num_threads()
    assert all(found.values())


def test_the_commit_is_that_of_this_checkout_or_the_version_where_there_is_none(monkeypatch):
    answers = {"ls-files": "timing.py", "describe": "0123456789ab-dirty"}
    monkeypatch.setattr(timing, "_git", lambda folder, command, *_: answers[command])
    assert timing.commit() == "0123456789ab-dirty"

    def refuse(*arguments):
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(timing, "_git", refuse)
    assert timing.commit().startswith("version ")


# --- workloads --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", workloads.KINDS)
def test_shipped_prompts_are_held_out_and_end_where_a_line_ends(kind):
    found = workloads.prompts(kind)
    assert len(found) == len({prompt.name for prompt in found}) == workloads.COUNT
    for prompt in found:
        assert 200 <= len(prompt.text) <= workloads.SIZE and prompt.text == prompt.text.rstrip()
        assert kind in ("agent", "records") or split_of(prompt.name) == "held-out"
    assert workloads.prompts(kind, 3) == found[:3]


def test_unknown_workloads_and_too_many_prompts_are_refused():
    with pytest.raises(ValueError, match="unknown workload 'poems': choose from code, docs, agent, records"):
        workloads.prompts("poems")
    with pytest.raises(ValueError, match="has 1 to 12 prompts, 13 were asked for"):
        workloads.prompts("code", 13)


def test_the_opening_of_code_starts_at_its_first_definition_and_leaves_a_third_to_be_written():
    body = "def f(x):\n    return x\n\n" * 10
    assert workloads.opening(Document("code", "m.py", f'"""About."""\nimport os\n{body}')).startswith("def f(x):")
    assert len(workloads.opening(Document("code", "m.py", body))) <= 2 * len(body) // 3
    assert workloads.opening(Document("code", "m.py", "X = 1\n" * 200)) == ""
    assert workloads.opening(Document("docs", "d", "one\n" * 400)) == ("one\n" * 150).rpartition("\n")[0].rstrip()


def test_the_asset_is_written_whole_from_the_corpus(tmp_path, monkeypatch):
    text = "def f(x):\n    return x\n\n" * 40
    names = ["asyncio/base_events.py", "no/such/module.py", "topics/if"]
    monkeypatch.setattr(workloads, "documents", lambda kind, split: [Document(kind, name, text) for name in names])
    workloads.write(tmp_path / "w.json")
    written = workloads.read_json(tmp_path / "w.json")["prompts"]
    assert [entry["name"] for entry in written["docs"]] == ["asyncio/base_events.py", "topics/if"]
    assert len(written["agent"]) == 3
