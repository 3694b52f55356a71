"""Generated text with its provenance: coloured, and on the line below a mark under the first character of each token.

    def read(self, size=None):
    ✓   ✓    ✓    ↻ ✓    ✓   ★

The text itself stays as it is, so that code can be read, and copied. Colours are those of the project's figures
(Okabe-Ito: accepted green, corrected purple, bonus sky blue), in the nearest of the 256 terminal colours; without
colour the marks say the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TextIO

ACCEPTED, CORRECTED, BONUS = "accepted", "correction", "bonus"                     # as in Round.provenance
GIVEN = "given"                                                                    # the prompt
STYLE = {ACCEPTED: "38;5;36", CORRECTED: "1;4;38;5;175", BONUS: "1;38;5;74", GIVEN: "2"}
GLYPHS = {ACCEPTED: "✓", CORRECTED: "↻", BONUS: "★"}
PLAIN_GLYPHS = {ACCEPTED: "+", CORRECTED: "~", BONUS: "*"}                         # where the encoding lacks those
MEANING = {ACCEPTED: "accepted: drafted, and kept", CORRECTED: "corrected: the target's own, after a rejection",
           BONUS: "bonus: the target's own, all before it kept"}


def wants_colour(choice: str, out: TextIO) -> bool:
    """choice: always, never, or auto, which is a terminal without NO_COLOR (no-color.org)."""
    if choice == "auto":
        return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


def glyphs_for(out: TextIO) -> dict[str, str]:
    try:
        "".join(GLYPHS.values()).encode(out.encoding or "ascii")
        return GLYPHS
    except UnicodeEncodeError:
        return PLAIN_GLYPHS


def columns(char: str) -> int:
    """Columns a character takes in a terminal."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def printable(text: str) -> str:
    """Tabs as four spaces; any other control character but the line break, which could command the terminal, as '�'."""
    return "".join(c if c == "\n" or unicodedata.category(c) != "Cc" else "�" for c in text.replace("\t", "    "))


class Ribbon:
    """Writes pieces of text as they come, and the marks of a line once it is full."""

    def __init__(self, out: TextIO | None = None, colour: str = "auto"):
        self.out = out or sys.stdout
        self.colour, self.glyphs = wants_colour(colour, self.out), glyphs_for(self.out)
        self.width = shutil.get_terminal_size().columns - 1 if self.out.isatty() else 10**9   # files need no wrapping
        self.column, self.marks = 0, {}                       # marks {column: kind} of the line being written

    def legend(self) -> str:
        lines = [self._styled(f"{self.glyphs[kind]} {MEANING[kind]}", kind) for kind in self.glyphs]
        return "\n".join([*lines, "Each mark stands below the first character of its token."])

    def write(self, kind: str, text: str) -> None:
        """One token's text (or, as GIVEN, any text without marks)."""
        if text and text[0] != "\n" and self.column >= self.width:
            self._break()
        if kind != GIVEN and text:
            self.marks[self.column] = kind                    # a line break is marked where the line ends
        line, *others = printable(text).split("\n")
        self._write_line(kind, line)
        for line in others:
            self._break()
            self._write_line(kind, line)
        self.out.flush()

    def close(self) -> None:
        """End the last line."""
        if self.column or self.marks:
            self._break()
        self.out.flush()

    def _write_line(self, kind: str, text: str) -> None:
        part = ""
        for char in text:
            if self.column + columns(char) > self.width:
                self.out.write(self._styled(part, kind))
                self._break()
                part = ""
            part += char
            self.column += columns(char)
        self.out.write(self._styled(part, kind))

    def _break(self) -> None:
        line, self.column = "", 0
        for column, kind in sorted(self.marks.items()):
            line += " " * (column - self.column) + self._styled(self.glyphs[kind], kind)
            self.column = column + 1
        self.out.write(f"\n{line}\n" if line else "\n")
        self.column, self.marks = 0, {}

    def _styled(self, text: str, kind: str) -> str:
        return f"\x1b[{STYLE[kind]}m{text}\x1b[0m" if self.colour and text else text


