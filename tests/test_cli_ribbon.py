"""The demo's ribbon: the text unharmed, a mark below each token's first character, colour only where it is wanted."""

import io
import re

import pytest

from minispec.cli import ribbon
from minispec.cli.common import TextStream
from minispec.cli.ribbon import ACCEPTED, BONUS, CORRECTED, GIVEN, Ribbon, wants_colour
from minispec.training.tokenizer import train_tokenizer


class Screen(io.StringIO):
    """A text file that may say it is a terminal."""

    def __init__(self, terminal=False, encoding="utf-8"):
        super().__init__()
        self.terminal, self.coding = terminal, encoding

    encoding = property(lambda self: self.coding)

    def isatty(self):
        return self.terminal


def drawn(pieces, colour="never", **screen):
    out = Screen(**screen)
    marks = Ribbon(out, colour)
    for kind, text in pieces:
        marks.write(kind, text)
    marks.close()
    return out.getvalue()


def test_each_token_is_marked_below_its_first_character():
    assert drawn([(GIVEN, "def "), (ACCEPTED, "f"), (ACCEPTED, "("), (CORRECTED, "self"), (ACCEPTED, "):"),
                  (BONUS, "\n    "), (ACCEPTED, "return"), (ACCEPTED, " 1")]) == (
        "def f(self):\n"
        "    ✓✓↻   ✓ ★\n"
        "    return 1\n"
        "    ✓     ✓\n")


def test_a_line_without_new_tokens_has_no_line_of_marks():
    assert drawn([(GIVEN, "import os\n\nx"), (ACCEPTED, " = 1\n\n\ny")]) == "import os\n\nx = 1\n ✓\n\n\ny\n"


def test_without_the_marks_the_text_is_the_text():
    pieces = [(GIVEN, "a"), (ACCEPTED, " b\n"), (CORRECTED, "\n  c"), (BONUS, "d")]
    lines = drawn(pieces).split("\n")
    assert "\n".join(line for line in lines if not re.fullmatch("[ ✓↻★]+", line)) == "a b\n\n  cd\n"


def test_wide_and_combining_characters_take_the_columns_they_take_in_a_terminal():
    assert drawn([(ACCEPTED, "漢"), (CORRECTED, "e\u0301"), (BONUS, "x")]) == "漢e\u0301x\n✓ ↻★\n"


def test_a_long_line_is_broken_where_the_terminal_breaks_it(monkeypatch):
    monkeypatch.setattr(ribbon.shutil, "get_terminal_size", lambda: ribbon.os.terminal_size((9, 24)))
    pieces = [(ACCEPTED, "abcdef"), (CORRECTED, "ghij"), (ACCEPTED, "klmnop"), (BONUS, "q")]
    assert drawn(pieces, terminal=True) == ("abcdefgh\n✓     ↻\n"
                                            "ijklmnop\n  ✓\n"
                                            "q\n★\n")
    assert drawn(pieces).startswith("abcdefghijklmnopq\n"), "a file is no terminal: nothing is broken"


def test_what_could_command_the_terminal_is_not_written():
    assert drawn([(ACCEPTED, "a\x1b[2Jb\r\tc\x07")]) == "a�[2Jb�    c�\n✓\n"


def test_colours_come_on_top_of_the_same_text_and_marks():
    pieces = [(GIVEN, "x"), (ACCEPTED, "ab"), (CORRECTED, "c\n"), (BONUS, "d")]
    coloured = drawn(pieces, "always")
    assert "\x1b[38;5;36mab\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == drawn(pieces)
    styles = {kind: style for kind, style in ribbon.STYLE.items()}
    assert len(set(styles.values())) == len(styles), "each kind has a style of its own"


@pytest.mark.parametrize("choice, terminal, variables, wanted", [
    ("auto", True, {}, True), ("auto", False, {}, False), ("auto", True, {"NO_COLOR": "1"}, False),
    ("auto", True, {"NO_COLOR": ""}, True), ("auto", True, {"TERM": "dumb"}, False),
    ("always", False, {"NO_COLOR": "1"}, True), ("never", True, {}, False)])
def test_colour_is_for_terminals_unless_it_is_asked_for(monkeypatch, choice, terminal, variables, wanted):
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(choice, Screen(terminal)) is wanted


def test_where_the_encoding_lacks_the_glyphs_ascii_ones_stand_in():
    assert drawn([(ACCEPTED, "a"), (CORRECTED, "b"), (BONUS, "c")], encoding="ascii") == "abc\n+~*\n"
    assert "~ corrected" in Ribbon(Screen(encoding="latin-1"), "never").legend()


def test_streamed_text_is_the_decoded_text_and_no_character_is_torn():
    tokenizer = train_tokenizer(["def f(x): return x\n"] * 3, vocab_size=300)
    text = "def naïve(x):\n    return '漢字 🙂'\n"
    stream = TextStream(tokenizer)
    pieces = [stream.feed(token) for token in tokenizer.encode(text).ids]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)
    assert stream.rest() == ""
    stream.feed(tokenizer.encode("漢").ids[0])                       # the first of three bytes, then the end
    assert stream.rest() == "\ufffd"
