"""The trace: what a record holds, what a cut leaves out, and JSON there and back."""

import json

import pytest
import torch
from models import FixedTree, ScriptedLM, TableLM, random_table, tiny_gpt

from minispec import Sampling, SeededDice, TokenTree, Trace, generate, speculate
from minispec.decoding import rules
from minispec.drafters import LMDrafter, NgramDrafter
from minispec.model.shared_backbone import SharedBackbone

TEXT = list(range(1, 61))


def recite(length=4, **options):
    return speculate(ScriptedLM(TEXT), LMDrafter(ScriptedLM(TEXT), length), TEXT[:3], **options).trace


def traces() -> dict[str, Trace]:
    model, draft = tiny_gpt(5, 0, context=40), tiny_gpt(5, 1, context=40)
    tree = FixedTree((-1, -1, 0, 1), lambda ids, node: (node + ids[-1]) % 5)
    runs = {"plain": generate(model, [0, 1], max_new_tokens=5),
            "token": speculate(model, LMDrafter(draft, 3), [0, 1], max_new_tokens=20, stop_tokens=[4]),
            "ngram": speculate(model, NgramDrafter(3), [0, 1, 2, 0, 1], max_new_tokens=12, rule=rules.Match()),
            "tree": speculate(model, tree, [0, 1], max_new_tokens=12, rule=rules.Match())}
    return {name: run.trace for name, run in runs.items()}


@pytest.mark.parametrize("name", ["plain", "token", "ngram", "tree"])
def test_json_gives_back_an_equal_trace(name):
    trace = traces()[name]
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert again.to_json() == trace.to_json()
    for r, copy in zip(trace.rounds, again.rounds):
        assert (copy.tree, copy.verdict, copy.cut, copy.accepted, copy.proposed) == \
               (r.tree, r.verdict, r.cut, r.accepted, r.proposed)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"rounds": [1]}', '{"rounds": [{"target_top": [1]}]}',
                                  '{"rounds": [], "method": "plain"}', '{"rounds": [], "unknown": 1}'])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="this is no trace"):
        Trace.from_json(text)


def test_a_trace_from_json_with_a_field_missing_is_refused():
    record = json.loads(recite(max_new_tokens=5).to_json())
    del record["rounds"][0]["path"]
    with pytest.raises(ValueError, match="this is no trace"):
        Trace.from_json(json.dumps(record))


def test_a_target_that_counts_its_rows_is_in_the_trace_and_older_traces_have_no_count():
    backbone = SharedBackbone(tiny_gpt(5, context=40), 1)
    backbone(torch.tensor([[1, 2]]))                     # rows from before belong to no round
    trace = speculate(backbone, LMDrafter(tiny_gpt(5, 1), 2), [0, 1], max_new_tokens=6).trace
    assert [r.layer_tokens for r in trace.rounds] == [[len(r.tokens) + 1] * 2 for r in trace.rounds]
    assert Trace.from_json(trace.to_json()) == trace
    older = json.loads(trace.to_json())
    for record in older["rounds"]:
        del record["layer_tokens"]
    assert [r.layer_tokens for r in Trace.from_json(json.dumps(older)).rounds] == [None] * len(trace.rounds)
    assert all(r.layer_tokens is None for other in traces().values() for r in other.rounds)


# --- what a record holds ----------------------------------------------------------------------------------------------

def test_a_small_vocabulary_is_kept_whole_and_p_and_q_are_what_was_used():
    """Table models: the record's numbers against the tables' rows."""
    P, Q = random_table(4, 0), random_table(4, 1)
    trace = speculate(TableLM(P), LMDrafter(TableLM(Q), 3), [2], max_new_tokens=20).trace
    for r, last in zip(trace.rounds, [2] + [r.emitted[-1] for r in trace.rounds]):
        before = [last, *r.tokens]
        for row, top in enumerate(r.target_top):
            assert top == pytest.approx(dict(enumerate(P[before[row]].tolist())), abs=1e-12)
            assert list(top.values()) == sorted(top.values(), reverse=True)
        for node, top in r.draft_top.items():
            assert top == pytest.approx(dict(enumerate(Q[before[node + 1]].tolist())), abs=1e-12)


def test_the_dice_are_recorded_in_the_order_of_the_round():
    """Draft draws, then a coin for each token up to the first rejection, then the target's own token."""
    P, Q = random_table(4, 2), random_table(4, 3)
    trace = speculate(TableLM(P), LMDrafter(TableLM(Q), 3), [0], max_new_tokens=30, dice=SeededDice(5)).trace
    for r in trace.rounds:
        coins = len(r.path) + (not r.bonus)
        assert [outcome.kind for outcome in r.outcomes] == ["draw"] * len(r.tokens) + ["accept"] * coins + ["draw"]
        assert [outcome.result for outcome in r.outcomes[:len(r.tokens)]] == r.tokens
        assert r.outcomes[-1].result == r.token
        for node, coin in enumerate(r.outcomes[len(r.tokens):-1]):
            p, q = r.target_top[node][r.tokens[node]], r.draft_top[node - 1][r.tokens[node]]
            assert coin.chance == pytest.approx(min(1, p / q), abs=1e-12)
            assert coin.result == (coin.u < coin.chance) == (node in r.path)


@pytest.mark.parametrize("method", ["plain", "speculative"])
def test_a_record_holds_the_throws_of_its_own_round_and_no_earlier_ones(method):
    """The caller threw these dice before the call, and throws them again between rounds."""
    model, options = tiny_gpt(5, 0), dict(max_new_tokens=6, sampling=Sampling(0.0))
    decode = lambda dice, **more: (generate(model, [0], dice=dice, **options, **more) if method == "plain" else
                                   speculate(model, LMDrafter(tiny_gpt(5, 1), 2), [0], dice=dice, **options, **more))
    used = SeededDice(0)
    used.accept(0.5)
    mixed = decode(used, on_round=lambda r: used.accept(0.5)).trace.rounds
    alone = decode(SeededDice(0)).trace.rounds
    kinds = lambda rounds: [[(o.kind, o.chance, o.result) for o in r.outcomes] for r in rounds]
    assert kinds(mixed) == kinds(alone)                  # greedy: the same tokens, whatever the uniforms


def test_of_a_large_vocabulary_the_eight_likeliest_tokens_are_kept():
    table = random_table(70, 0)
    r = speculate(TableLM(table), LMDrafter(TableLM(table), 1), [0], max_new_tokens=2).trace.rounds[0]
    assert list(r.target_top[0]) == table[0].topk(8).indices.tolist()
    assert [len(top) for top in (*r.target_top, *r.draft_top.values())] == [8, 8, 8]


def test_tokens_of_probability_zero_are_left_out():
    assert recite(max_new_tokens=2).rounds[0].target_top == [{4: 1.0}, {5: 1.0}]
    greedy = speculate(tiny_gpt(5, 0), LMDrafter(tiny_gpt(5, 1), 2), [0], sampling=Sampling(0.0)).trace
    assert all(len(top) == 1 for r in greedy.rounds for top in (*r.target_top, *r.draft_top.values()))


def test_cache_lengths_before_after_and_rolled_back():                                 # D16
    draft = ScriptedLM([0 if token == 6 else token for token in TEXT])                 # errs at place 5
    r = speculate(ScriptedLM(TEXT), LMDrafter(draft, 4), TEXT[:3], max_new_tokens=9).trace.rounds[0]
    assert r.emitted == [4, 5, 6] and not r.bonus
    assert r.target_cache == (2, 7, 5)                   # five rows fed, two proposals kept, the last token yet to come
    assert r.draft_cache == (2, 6, 5)


def test_plain_decoding_has_the_same_records():
    trace = generate(ScriptedLM(TEXT), TEXT[:3], max_new_tokens=4).trace
    assert trace.method == "plain" and [r.emitted for r in trace.rounds] == [[4], [5], [6], [7]]
    assert all((r.tokens, r.proposed, r.accepted, r.cut, r.bonus) == ([], 0, 0, 0, True) for r in trace.rounds)
    assert [r.target_cache for r in trace.rounds] == [(2, 3, 3), (3, 4, 4), (4, 5, 5), (5, 6, 6)]


def test_seconds_of_the_parts_fit_into_the_whole():
    for trace in traces().values():
        parts = sum(sum(r.seconds.values()) for r in trace.rounds)
        assert all(value >= 0 for r in trace.rounds for value in r.seconds.values())
        assert parts + trace.prefill_seconds <= trace.total_seconds


# --- the cut ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stop, emitted, proposed, accepted, cut", [
    (4, [4], 1, 1, 4),                                   # the first proposal stops: three more and the bonus are cut
    (6, [4, 5, 6], 3, 3, 2),
    (7, [4, 5, 6, 7], 4, 4, 1),                          # only the bonus is cut
    (8, [4, 5, 6, 7, 8], 4, 4, 0),                       # the bonus itself stops
])
def test_nothing_is_counted_past_a_stop(stop, emitted, proposed, accepted, cut):       # C16 K11
    r = recite(stop_tokens=[stop]).rounds[0]
    assert (r.emitted, r.proposed, r.accepted, r.cut) == (emitted, proposed, accepted, cut)
    assert len(r.tokens) == len(r.path) == 4             # what was judged is still there to be looked at
    assert r.target_cache[2] == 2 + len(emitted)


def test_a_stop_as_the_correction_cuts_nothing():
    draft = ScriptedLM([0 if token == 6 else token for token in TEXT])
    r = speculate(ScriptedLM(TEXT), LMDrafter(draft, 4), TEXT[:3], stop_tokens=[6]).trace.rounds[0]
    assert (r.emitted, r.proposed, r.accepted, r.cut) == ([4, 5, 6], 4, 2, 0)


def test_in_a_tree_nodes_deeper_than_the_cut_are_not_counted():
    """Two depths of two nodes each; the stop is at depth 1."""
    tree = FixedTree((-1, -1, 0, 1), lambda ids, node: [4, 63, 5, 62][node])
    r = speculate(ScriptedLM(TEXT), tree, TEXT[:3], stop_tokens=[4], rule=rules.Match()).trace.rounds[0]
    assert (r.path, r.emitted, r.proposed, r.accepted, r.cut) == ([0, 2], [4], 2, 1, 2)


@pytest.mark.parametrize("wrong, options, roles", [
    ((), dict(max_new_tokens=6), ["accepted"] * 4 + ["bonus"] + ["target"]),           # the last has no room to propose
    ((5,), dict(max_new_tokens=4), ["accepted"] * 2 + ["correction"] + ["target"]),
    ((3,), dict(max_new_tokens=2), ["correction", "target"]),
    ((), dict(stop_tokens=[5]), ["accepted"] * 2)],                                    # a cut shows no bonus
    ids=["all accepted", "rejected", "first rejected", "cut by a stop"])
def test_provenance_says_where_each_token_came_from(wrong, options, roles):
    draft = ScriptedLM([0 if place in wrong else token for place, token in enumerate(TEXT)])
    run = speculate(ScriptedLM(TEXT), LMDrafter(draft, 4), TEXT[:3], **options)
    told = [pair for r in run.trace.rounds for pair in r.provenance()]
    assert told == list(zip(run.tokens, roles, strict=True))


def test_provenance_in_a_tree_goes_along_the_path():
    tree = FixedTree((-1, -1, 1), lambda ids, node: [63, 4, 5][node])
    rounds = speculate(ScriptedLM(TEXT), tree, TEXT[:3], max_new_tokens=4, rule=rules.Match()).trace.rounds
    assert [r.provenance() for r in rounds] == [[(4, "accepted"), (5, "accepted"), (6, "bonus")], [(7, "target")]]


def test_a_record_gives_back_its_tree():
    r = recite(max_new_tokens=5).rounds[0]
    assert r.tree == TokenTree((4, 5, 6, 7), (-1, 0, 1, 2))
    assert torch.equal(r.tree.depths(), torch.arange(5))
