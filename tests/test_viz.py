"""The figures: their data, their bytes, and what can be said of their looks without eyes.

Texts are measured with the drawing kit's own upper estimate, so "no overlap" holds for any of the usual fonts.
"""

import itertools
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from models import FixedTree, ScriptedLM, random_table, tiny_gpt

from minispec import Trace, generate, speculate
from minispec.analysis.exact import total_variation
from minispec.analysis.metrics import positions
from minispec.analysis.theory import interpolate, speedup
from minispec.decoding import TokenTree, rules
from minispec.decoding.dice import Outcome
from minispec.drafters import LMDrafter, NgramDrafter, TreeDrafter
from minispec.viz import (Measured, acceptance_chart, bars, cache_grid, dart, dart_at, exactness_meter, figure, frames,
                          gantt, img, laws_at, player, ribbon, split, surface, svg, tree_at, tree_view, verify_chart)
from minispec.viz.bars import columns
from minispec.viz.cache_states import STEPS, cache_states, fates, slot_tokens
from minispec.viz.charts import ticks
from minispec.viz.curves import distances, noise_limit, wilson
from minispec.viz.dart import LEFT, WIDE, residual_slices, throws
from minispec.viz.gantt import arrivals, spans
from minispec.viz.surface import contrast

WORDS = ["def", " name", "\n        ", "<&\"'>", "\x1b", "  ", "return_value", "é", "\t", "文字", ")", "x"]
TIGHT = 1e-12


def decode(ids):
    return "".join(WORDS[token] for token in ids)


@lru_cache(maxsize=1)
def traces() -> dict[str, Trace]:
    """Small runs of every kind: chains with and without a cut, a chain without q, trees of two origins, plain."""
    target, draft = tiny_gpt(12, 0, context=64), tiny_gpt(12, 1, context=64)
    with torch.no_grad():                                            # a draft that is often, not always, right
        for mine, other in zip(draft.parameters(), target.parameters()):
            mine.copy_(0.9 * other + 0.1 * mine)
    ask = dict(prompt=[0, 1, 2, 1], max_new_tokens=20)
    by_hand = FixedTree((-1, -1, 0, 1, 1), lambda ids, node: (node + ids[-1]) % 12)
    runs = {"plain": generate(target, **ask),
            "chain": speculate(target, LMDrafter(draft, 4), **ask),
            "stop": speculate(ScriptedLM([*range(8)]), LMDrafter(ScriptedLM([*range(8)]), 5), [0, 1], stop_tokens=[4]),
            "long": speculate(target, LMDrafter(draft, 14), **ask),
            "block": speculate(target, LMDrafter(draft, 4), rule=rules.Block(), **ask),
            "ngram": speculate(target, NgramDrafter(4), rule=rules.Match(), **ask),
            "tree": speculate(target, TreeDrafter(draft, (3, 2, 1)), rule=rules.Recursive(), **ask),
            "by hand": speculate(target, by_hand, rule=rules.Match(), **ask)}
    return {name: run.trace for name, run in runs.items()}


@lru_cache(maxsize=None)
def film(name):
    return frames(traces()[name], decode)


LAW = {(0,): 0.5, (1,): 0.3, (2,): 0.2}


def samples(count, weights, seed=0):
    return [(token,) for token in random.Random(seed).choices(range(3), weights, k=count)]


@lru_cache(maxsize=1)
def figures() -> dict[str, str]:
    runs, curve = traces(), {1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0, 16: 3.6}
    found = {f"ribbon, {name}": ribbon(trace, decode) for name, trace in runs.items()}
    found |= {f"caches, {name} {k}": cache_grid(trace, k, decode) for name, trace in runs.items()
              for k in range(min(2, len(trace.rounds)))}
    found |= {f"frames, {name} {k}": frame.svg for name in runs for k, frame in enumerate(film(name))}
    for k, r in enumerate(runs["chain"].rounds):
        found |= {f"bars, {k}.{i}": bars(*laws_at(r, i), decode, x) for i, x in enumerate(r.tokens)}
        found |= {f"dart, {k}.{i}": dart_at(r, i, decode) for i in range(len(throws(r)))}
    found |= {f"tree, {k} {node}": tree_at(r, decode, node) for k, r in enumerate(runs["tree"].rounds[:3])
              for node in (None, -1, len(r.tokens) - 1)}
    large = TokenTree((5,) * 39, (-1, -1, 0, 1, -1, 0, 1, *range(32)), origin="chosen")
    found["tree, large"] = tree_view(large, decode, 38, base=117)
    found["bars, part"] = bars({0: 0.5, 1: 0.3}, {1: 0.6, 2: 0.2}, decode, 1)
    found["dart, part"] = dart({0: 0.5, 1: 0.3}, {1: 0.6, 2: 0.2}, 1, Outcome("accept", 0.5, 0, 0.75),
                               Outcome("draw", 0.4, 0, 0.2), decode)
    found["gantt"] = gantt(runs["chain"], runs["plain"])
    found["gantt, first"] = gantt(runs["long"], runs["plain"], tokens=9)
    found["acceptance"] = acceptance_chart({"γ = 4": [runs["chain"]], "γ = 14": [runs["long"]]})
    found["verify"] = verify_chart({"CPU": curve, "GPU": {1: 1.0, 16: 1.1}}, ridge=6, note="recorded")
    found["verify, no ridge"] = verify_chart({"CPU": curve})
    found["meter"] = exactness_meter({name: distances(samples(3000, weights), LAW, (30, 100, 300, 1000, 3000))
                                      for name, weights in (("exact", (5, 3, 2)), ("a mutant", (3, 3, 4)))}, LAW)
    measured = ((0.82, 4, 1.9, "code"), (0.84, 4, 1.7, "docs"), (0.3, 8, 0.6), (0.6, 2, 1.2))
    found["surface"] = surface([Measured(*run) for run in measured], 0.12, interpolate(curve))
    return found


# --- looks, measured -------------------------------------------------------------------------------------------------

class Box(NamedTuple):
    kind: str
    left: float
    top: float
    right: float
    bottom: float
    words: str                                                       # of a text; the title of a rectangle
    colour: str


def boxes(drawing: str) -> list[Box]:
    """Texts, and what they may lie on, in the order of drawing; all groups' moves added up."""
    found = []

    def walk(element, dx, dy):
        kind, at = element.tag.split("}")[1], element.attrib
        if kind == "g":
            x, y = re.fullmatch(r"translate\((\S+) (\S+)\)", at["transform"]).groups()
            dx, dy = dx + float(x), dy + float(y)
        if kind == "rect" and at["fill"] != "none":
            x, y = dx + float(at["x"]), dy + float(at["y"])
            title = element.findtext("{*}title") or ""
            found.append(Box(kind, x, y, x + float(at["width"]), y + float(at["height"]), title, at["fill"]))
        if kind == "circle":
            (x, y), radius = (dx + float(at["cx"]), dy + float(at["cy"])), float(at["r"])
            found.append(Box("rect", x - radius, y - radius, x + radius, y + radius, "", at["fill"]))
        if kind == "text":
            size = float(at["font-size"])
            wide = svg.text_width(element.text, size, mono="font-family" in at, bold="font-weight" in at)
            x = dx + float(at["x"]) - wide * {"start": 0, "middle": 0.5, "end": 1}[at.get("text-anchor", "start")]
            y = dy + float(at["y"])
            found.append(Box(kind, x, y - 0.75 * size, x + wide, y + 0.2 * size, element.text, at["fill"]))
        for child in element:
            walk(child, dx, dy)

    walk(ET.fromstring(drawing), 0.0, 0.0)
    return found


def words(drawing: str) -> list[str]:
    return [box.words for box in boxes(drawing) if box.kind == "text"]


def titles(drawing: str) -> list[str]:
    return [box.words for box in boxes(drawing) if box.kind == "rect" and box.words]


def test_texts_never_overlap_and_stay_on_the_paper():
    for name, drawing in figures().items():
        width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', drawing).groups())
        texts = [box for box in boxes(drawing) if box.kind == "text"]
        for a, b in itertools.combinations(texts, 2):
            apart = a.right <= b.left + 1 or b.right <= a.left + 1 or a.bottom <= b.top + 1 or b.bottom <= a.top + 1
            assert apart, f"{name}: {a} and {b}"
        for box in texts:
            assert 0 <= box.left and box.right <= width and 0 <= box.top and box.bottom <= height, f"{name}: {box}"


def test_text_is_large_and_reads_well_on_whatever_lies_below_it():
    for name, drawing in figures().items():
        assert min(float(size) for size in re.findall(r'font-size="(\S+)"', drawing)) >= 13, name
        below = []
        for box in boxes(drawing):
            if box.kind == "rect":
                below.append(box)
                continue
            x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
            paper = next(r for r in reversed(below) if r.left <= x <= r.right and r.top <= y <= r.bottom)
            assert contrast(box.colour, paper.colour) >= 4.5, f"{name}: {box} on {paper}"
    assert contrast(svg.INK, svg.HATCH) >= 4.5


def test_figures_are_well_formed_named_and_described():
    for name, drawing in figures().items():
        root = ET.fromstring(drawing)
        assert root.findtext("{*}title"), name
        assert len(root.attrib["aria-label"]) > 20 and root.attrib["role"] == "img", name


def test_equal_input_gives_equal_bytes():
    once = dict(figures())
    figures.cache_clear()
    film.cache_clear()
    assert figures() == once
    again = {name: Trace.from_json(trace.to_json()) for name, trace in traces().items()}
    assert again == traces()
    assert player(again["tree"], decode) == player(traces()["tree"], decode)


def test_a_role_is_never_a_colour_alone():
    glyphs = [role.glyph for role in svg.ROLES.values() if role.glyph]
    assert len(set(glyphs)) == len(glyphs) == len(svg.ROLES) - 1
    for name, trace in traces().items():
        roles = [role for r in trace.rounds for _, role in r.provenance()]
        shown = words(ribbon(trace, decode))
        for role in set(roles):                                      # one more: the legend
            assert shown.count(svg.ROLES[role].glyph) == roles.count(role) + 1, (name, role)
    assert svg.hatch(0, 0, 30, 30, svg.HATCH) in svg.chip(-1, -1, 32, 32, "rejected")


# --- data ------------------------------------------------------------------------------------------------------------

def test_white_space_is_made_visible():
    assert svg.visible("a b\n    \t") == "a·b↵·×4⇥"
    assert svg.visible("          ") == "·×10"
    assert svg.visible("\x1b") == "�" and svg.visible("") == "∅"


def test_fit_cuts_to_the_room_there_is():
    assert svg.fit("tokens", 200) == "tokens"
    cut = svg.fit("a_very_long_token", 80, mono=True)
    assert cut.endswith("…") and svg.text_width(cut, mono=True) <= 80
    assert svg.fit("token", 3) == ""


@pytest.mark.parametrize("seed", range(5))
def test_split_is_the_identity_behind_exactness(seed):
    """Rejected and residual mass are equal, and min(p, q) + (1 - alpha) residual law = p."""
    p, q = random_table(2 * 8, seed)[:2]
    parts = split(p, q)
    beta = 1 - sum(parts.accepted)
    assert abs(sum(parts.accepted) + sum(parts.rejected) - 1) < TIGHT
    assert abs(sum(parts.rejected) - beta) < TIGHT and abs(sum(parts.residual) - beta) < TIGHT
    law = rules.residual(p, q)
    for x in range(16):
        assert abs(parts.accepted[x] + beta * float(law[x]) - float(p[x])) < TIGHT
        assert abs(parts.accepted[x] + parts.rejected[x] - float(q[x])) < TIGHT


def test_split_refuses_masses_that_are_none():
    with pytest.raises(ValueError, match="2 and 3 entries"):
        split([0.5, 0.5], [0.2, 0.2, 0.6])
    with pytest.raises(ValueError, match="sums to 1.5"):
        bars([0.5, 1.0], [0.5, 0.5], decode)


def test_bars_drawn_for_q_and_for_p_add_up_to_one():
    for name in (name for name in figures() if name.startswith("bars")):
        masses = {law: sum(float(t.split()[1]) for t in titles(figures()[name]) if t[0] == law) for law in "qp"}
        assert all(abs(mass - 1) < 0.02 for mass in masses.values()), (name, masses)   # slivers aren't drawn


def test_what_a_trace_left_out_is_an_interval_not_a_guess():
    known = columns({0: 0.5, 1: 0.3}, {1: 0.6, 2: 0.2})               # 0.2 of each law wasn't kept
    assert known.tokens == [1] and known.rest == pytest.approx((0.7, 0.4))
    assert known.alpha == pytest.approx((0.3, 0.7))
    assert columns([0.5, 0.3, 0.2], {1: 0.6, 2: 0.4}).alpha == pytest.approx((0.5, 0.5))       # whole: a zero is a zero


def test_the_dart_falls_on_the_token_that_was_drawn():
    rejections = 0
    for r in traces()["chain"].rounds:
        coins = throws(r)
        assert all((coin.u < coin.chance) == bool(coin.result) for coin in coins)
        if r.bonus:
            continue
        rejections += 1
        second = r.outcomes[-1]
        slices = residual_slices(*laws_at(r, len(r.path)))
        assert abs(slices[-1].stop - 1) < TIGHT
        hit = next(s for s in slices if s.start <= second.u < s.stop)
        assert hit.token == r.token == second.result and abs(hit.stop - hit.start - second.chance) < 1e-9
    assert rejections > 1


@pytest.mark.parametrize("u", [k / 40 + 0.01 for k in range(39)])
def test_no_words_lie_under_the_dart(u):
    coin = Outcome("accept", 0.55, int(u < 0.55), u)
    picture = dart({0: 0.55, 1: 0.45}, {0: 1.0}, 0, coin, None if coin.result else Outcome("draw", 1.0, 1, u), decode)
    line = LEFT + WIDE * u
    for x, y, words in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', picture):
        if float(y) in (70 + 29, 246 + 29):
            half = svg.text_width(words, mono=float(y) > 200, bold=True) / 2
            assert abs(float(x) - line) > half, words


@pytest.mark.parametrize("name", ["tree", "ngram", "by hand", "block"])
def test_the_dart_refuses_what_was_not_judged_token_by_token(name):
    judged_otherwise = [r for r in traces()[name].rounds if r.tokens]
    with pytest.raises(ValueError, match="the dart shows chains judged token by token"):
        for r in judged_otherwise:
            dart_at(r, 0, decode)


def test_the_ribbon_holds_every_token_once_in_order():
    for name, trace in traces().items():
        emitted = [token for r in trace.rounds for token in r.emitted]
        assert [token for r in trace.rounds for token, _ in r.provenance()] == emitted
        named = [int(t.rsplit(" ", 1)[1]) for t in titles(ribbon(trace, decode)) if t.startswith("round")]
        assert named == emitted, name


@pytest.mark.parametrize("name", ["chain", "stop", "long", "tree", "by hand", "ngram", "plain"])
def test_cache_states_end_in_the_lengths_of_the_trace(name):
    trace = traces()[name]
    for index, r in enumerate(trace.rounds):
        states = cache_states(r)
        for k, lengths in enumerate((r.target_cache, r.draft_cache)):
            if lengths[0] is None:
                assert states["accept"][k] is None
                continue
            before, full, after = lengths
            steps = {"draft": full if k else before, "verify": full, "accept": full, "roll back": after}
            assert {step: states[step][k].length for step in STEPS} == steps
            end = states["roll back"][k]
            assert end.slots == ["kept"] * after + ["stale"] * (full - after)
        shown = [w for w in words(cache_grid(trace, index, decode)) if w.startswith("length")]
        drawn = [int(re.search(r"\d+", w)[0]) for w in shown]
        assert drawn == [cache.length for step in STEPS for cache in states[step] if cache]


def test_a_round_of_a_chain_slot_by_slot():
    """Four proposals, two accepted: slot n holds the last committed token, slots n + 1 to n + 4 the proposals."""
    trace = traces()["chain"]
    index = next(i for i, r in enumerate(trace.rounds) if len(r.tokens) == 4 and len(r.path) == 2)
    r = trace.rounds[index]
    n = r.target_cache[0]
    target, draft = cache_states(r)["accept"]
    assert target.slots[n:] == ["written", "accepted", "accepted", "rejected", "unjudged"]
    assert draft.slots[n + 1:] == ["accepted", "accepted", "rejected"]          # the fourth proposal was never fed
    before, after = slot_tokens(trace, index, "accept"), slot_tokens(trace, index, "roll back")
    assert [before[n + k] for k in range(1, 5)] == r.tokens
    assert [after[n + k] for k in (1, 2)] == r.emitted[:2]


def test_full_acceptance_leaves_the_draft_one_behind_and_the_grid_says_so():
    trace = traces()["chain"]
    index = next(i for i, r in enumerate(trace.rounds) if r.bonus)
    assert any("1 behind" in w for w in words(cache_grid(trace, index, decode)))
    assert not any("behind" in w for w in words(cache_grid(trace, index, decode, STEPS[:3])))


def test_fates_of_a_tree_by_hand():
    """0 and 1 below the root; 2 and 3 below 0; 4 below 1. Path 1, 4: node 0 failed first, its children had no turn."""
    made = replace(traces()["tree"].rounds[0], tokens=[1, 2, 3, 4, 5], parents=[-1, -1, 0, 0, 1], path=[1, 4],
                   emitted=[2, 5, 7])
    assert fates(made) == ["rejected", "accepted", "unjudged", "unjudged", "accepted"]
    cut = replace(made, emitted=[2])                                             # a stop token after the first
    assert fates(cut) == ["rejected", "accepted", "unjudged", "unjudged", "unjudged"]


def test_the_mask_drawn_is_the_mask_of_the_tree():
    for index, r in enumerate(traces()["tree"].rounds):
        drawing = tree_at(r, decode, len(r.tokens) - 1)
        named = [re.fullmatch(r"row (\d+) attends to row (\d+)", title) for title in titles(drawing)]
        seen = [(int(found[1]), int(found[2])) for found in named if found]
        mask = torch.zeros(len(r.tokens) + 1, len(r.tokens) + 1, dtype=torch.bool)
        mask[tuple(zip(*seen))] = True
        assert torch.equal(mask, r.tree.mask())
        assert len(seen) == int(mask.sum()) and drawing.count("<circle") == len(seen) + len(mask)      # and the past
        lit = sorted(row + 1 for row in [-1, *r.tree.path(len(r.tokens) - 1)])
        assert f"it attends to rows {lit}" in unescape(drawing)


def test_positions_drawn_are_the_root_s_plus_the_depth():
    shown = words(tree_view(TokenTree((0, 1, 7), (-1, -1, 0), origin="chosen"), decode, base=30))
    after = shown.index("position") + 1                              # then come the rows: number, token, position
    assert [w for w in shown[after:] if w in ("30", "31", "32")] == ["30", "31", "31", "32"]


def test_compaction_keeps_the_root_and_the_path():
    drawing = tree_view(TokenTree((0, 1, 9), (-1, -1, 1), origin="chosen"), decode, base=30, path=[1, 2])
    assert words(drawing)[-6:-3] == ["root", "·name", "文字"] and "length 33" in words(drawing)


def test_gantt_spans_are_the_trace_s_seconds():
    trace = traces()["chain"]
    found = spans(trace)
    for part in ("draft", "verify", "accept"):
        ours = sum(s.stop - s.start for s in found if s.part == part)
        assert ours == pytest.approx(sum(r.seconds[part] for r in trace.rounds), abs=1e-12)
    assert found[-1].stop == pytest.approx(trace.total_seconds - trace.prefill_seconds)
    assert all(a.stop == b.start for a, b in itertools.pairwise(found))
    assert [count for _, count in arrivals(trace)] == list(itertools.accumulate(len(r.emitted) for r in trace.rounds))
    drawn = [float(t.split()[1]) for t in titles(gantt(trace, traces()["plain"])) if t.startswith("draft:")]
    assert drawn == pytest.approx([1000 * r.seconds["draft"] for r in trace.rounds if r.seconds["draft"] > 0], abs=1e-3)


def test_acceptance_chart_shows_the_counts():
    trace = traces()["chain"]
    reached, kept = positions(trace.rounds)
    shown = unescape(acceptance_chart({"a": [trace]}))
    for position, (n, a) in enumerate(zip(reached, kept), 1):
        assert f"a: {position}, {a / n:.4g}" in shown
    assert wilson(0, 10)[0] == 0 and wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    with pytest.raises(ValueError, match="nothing was proposed"):
        acceptance_chart({"plain": [traces()["plain"]]})


def test_the_surface_shows_the_theory_and_marks_where_it_loses():
    verify = interpolate({1: 1.0, 16: 4.0})
    drawing = surface([Measured(0.5, 2, 0.9)], 0.2, verify, lengths=(1, 2), acceptances=(0.4, 0.5, 0.6))
    for length in (1, 2):
        for alpha in (0.4, 0.5, 0.6):
            assert f"{speedup(alpha, length, 0.2, verify):.2f}" in words(drawing)
    assert f"A  0.90 | {speedup(0.5, 2, 0.2, verify):.2f}" in [w.strip() for w in words(drawing)]
    assert speedup(0.4, 2, 0.2, verify) < 1 and "✗" in words(drawing)
    with pytest.raises(ValueError, match="measured at draft length 9"):
        surface([Measured(0.5, 9, 1.0)], 0.2)


def test_the_exactness_meter_tells_an_exact_sampler_from_a_wrong_one():
    """An exact sampler leaves the region with probability < 1e-9; the wrong law lies 0.2 away."""
    counts = (100, 1000, 10000)
    exact, wrong = (distances(samples(10000, weights, seed=3), LAW, counts) for weights in ((5, 3, 2), (3, 3, 4)))
    assert all(tv < noise_limit(LAW, n, miss=1e-9) for n, tv in exact)
    assert wrong[-1][1] > noise_limit(LAW, 10000, miss=1e-9)
    first = {key: samples(10000, (5, 3, 2), seed=3)[:100].count(key) / 100 for key in LAW}
    assert exact[0] == (100, pytest.approx(total_variation(first, LAW)))
    spread = math.sqrt(0.5 * 0.5) + math.sqrt(0.3 * 0.7) + math.sqrt(0.2 * 0.8)
    assert noise_limit(LAW, 100) == pytest.approx(spread / 20 + math.sqrt(math.log(100) / 200))
    assert "Outside of what chance explains: wrong." in exactness_meter({"exact": exact, "wrong": wrong}, LAW)


def test_ticks_are_round_numbers_within_the_range():
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(0.3, 41) == [10, 20, 30, 40]


# --- frames, player, widget ------------------------------------------------------------------------------------------

def test_frames_are_the_four_steps_of_every_round():
    for name, trace in traces().items():
        found = film(name)
        steps = [step for r in trace.rounds for step in (STEPS if r.tokens else ("verify", "accept"))]
        assert [frame.title.split(": ")[1] for frame in found] == steps, name
        total = sum(len(r.emitted) for r in trace.rounds)
        assert found[-1].alt.endswith(f"{total} of {total} tokens.") and found[0].alt.endswith(f" 0 of {total} tokens.")
        for frame in found:
            assert frame.caption in frame.alt and unescape(frame.svg).count(frame.alt) == 1
        assert len({re.search(r'viewBox="(.*?)"', frame.svg)[1] for frame in found}) == 1      # nothing jumps


def test_a_frame_shows_nothing_that_its_step_doesn_t_know_yet():
    draft, verify, accept, _ = (words(frame.svg) for frame in film("chain")[:4])
    assert "q(x)" in draft and "p(x)" not in draft and "✓" not in draft
    assert "p(x)" in verify and "keep if u <" not in verify and "emitted" not in verify
    assert {"keep if u <", "u", "emitted"} <= {*accept}


def page_frames(page: str) -> list[dict]:
    return json.loads(re.search(r'<script type="application/json" id="frames">(.*?)</script>', page, re.S)[1])


def test_the_player_has_the_frames_and_asks_the_network_for_nothing():
    page = player(traces()["chain"], decode, 'A "title" <b>')
    assert [(f["title"], f["caption"], f["svg"]) for f in page_frames(page)] == [frame[:3] for frame in film("chain")]
    assert "A &quot;title&quot; &lt;b&gt;" in page and 'aria-live="polite"' in page
    assert not re.search(r'(src|href)="(?!data:)', page.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    assert "default-src 'none'" in page and "@" not in re.sub(r'id="frames">.*?</script>', "", page, flags=re.S)


def test_the_stepper_shows_the_slider_s_frame_and_has_a_constant_static_form():
    widgets = pytest.importorskip("minispec.viz.widgets")
    found = film("chain")
    stepper = widgets.Stepper.of(found, "A round")
    assert found[0].svg in stepper.pane.value
    stepper.slider.value = 2
    assert found[2].svg in stepper.pane.value and svg.escape(found[2].caption) in stepper.pane.value
    bundle = stepper._repr_mimebundle_()
    assert bundle["text/plain"] == f"A round ({len(found)} steps)"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"].count("<img alt=") == 4 and "<svg" not in bundle["text/html"]
    assert img(found[-1].svg, stepper.alt_at(len(found) - 1)) in bundle["text/html"]
    with pytest.raises(ValueError, match="at least one state, got 0"):
        widgets.Stepper(str, 0, "nothing")


def test_only_the_widgets_need_ipywidgets():
    sources = sorted(Path(svg.__file__).parent.glob("*.py"))
    needing = [path.name for path in sources if "import ipywidgets" in path.read_text(encoding="utf-8")]
    assert needing == ["controls.py", "widgets.py"]


def test_figure_and_img_carry_the_alt_text():
    drawing = svg.svg(10, [], "t", "a < b")
    assert 'aria-label="a &lt; b"' in figure(drawing, "a < b") and drawing in figure(drawing, "a < b")
    assert img(drawing, 'a "b"').startswith('<img alt="a &quot;b&quot;" src="data:image/svg+xml;base64,')
