"""The player: the command that writes the page, and the page in a browser, stepped by keyboard."""

import json
import re
from html import unescape

import pytest

from minispec import Trace
from minispec.viz import frames

TEXT = "def f(x):\n    return x"
SHOWN = """[now, frames.length, $("stage").firstElementChild.getAttribute("aria-label"),
            $("caption").textContent, $("count").textContent, $("slider").value]"""


@pytest.fixture
def page(folder, run, tmp_path):
    """page(*options) -> the file that the command wrote, for the tiny pair."""
    def write(*options):
        file = tmp_path / "page.html"
        status, out, err = run("player", "--pair", folder, "--output", file, "--max-new-tokens", 6, *options)
        assert (status, err) == (0, "") and str(file) in out
        return file
    return write


def steps(file):
    data = re.search(r'<script type="application/json" id="frames">(.*?)</script>', file.read_text(), re.S)[1]
    return json.loads(data)


def test_the_page_of_a_trace_has_the_frames_of_the_trace(page, folder, run, tmp_path):
    from minispec import load_pair
    trace = tmp_path / "trace.json"
    run("generate", "--pair", folder, "--prompt", TEXT, "--max-new-tokens", 6, "--trace", trace)
    expected = frames(Trace.from_json(trace.read_text()), load_pair(folder)[2].decode)
    assert [step["svg"] for step in steps(page("--trace", trace))] == [frame.svg for frame in expected]


def test_a_prompt_a_tree_a_temperature_and_a_seed_each_change_the_page(page):
    shown = [page("--prompt", TEXT, *options).read_text() for options in
             ([], ["--tree"], ["--temperature", 1.5], ["--temperature", 1.5, "--seed", 1],
              ["--tree", "--temperature", 1.5])]
    assert len(set(shown)) == len(shown)


def test_the_same_seed_writes_the_same_page(page):
    once, again = (page("--prompt", TEXT, "--temperature", 1, "--seed", 5).read_bytes() for _ in range(2))
    assert once == again


def test_a_tree_is_drafted_at_temperature_0_too(page):
    assert any("tree" in step["svg"] for step in steps(page("--prompt", TEXT, "--tree")))


def test_a_bad_trace_ends_in_one_line_and_leaves_the_old_page(run, folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    (tmp_path / "bad.json").write_text('{"prompt_length": 3}')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\xff")
    faults = {"bad.json": "this is no trace", "bytes.json": "is not UTF-8 text", "none.json": "none.json"}
    for name, said in faults.items():
        status, out, err = run("player", "--pair", folder, "--output", page, "--trace", tmp_path / name)
        assert (status, out, err.count("\n")) == (2, "", 1) and said in err
    assert page.read_text() == "old"


def test_in_a_browser_the_keys_step_forward_and_back_and_it_ends_where_the_trace_ends(page, browser):
    file = page("--prompt", TEXT)
    found = steps(file)
    last = len(found) - 1
    browser.open(file.as_uri())
    at = 0
    for key, expected in [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", last), ("ArrowRight", last),
                          ("Home", 0), ("ArrowLeft", 0), *(("ArrowRight", k) for k in range(1, last + 1)),
                          ("ArrowRight", last)]:
        browser.press(key)
        at, count, alt, caption, counted, slider = browser.evaluate(SHOWN)
        assert (at, count, slider) == (expected, last + 1, str(expected)) and counted == f"{at + 1} / {count}"
        assert alt == unescape(re.search(r'aria-label="(.*?)"', found[at]["svg"])[1])
        assert caption == f"{found[at]['title']}. {found[at]['caption']}"
    assert at == last and alt.endswith("6 of 6 tokens.")
    assert browser.errors == []


def test_in_a_browser_the_play_button_runs_by_keyboard_and_a_link_opens_its_step(page, browser):
    browser.open(page("--prompt", TEXT).as_uri() + "#3")
    assert browser.evaluate("now") == 2
    browser.evaluate('$("play").focus()')
    browser.press(" ")
    assert browser.evaluate('$("play").getAttribute("aria-pressed")') == "true"
    browser.wait("now > 2", 30)
    browser.press(" ")
    assert browser.evaluate('$("play").getAttribute("aria-pressed")') == "false" and browser.errors == []
