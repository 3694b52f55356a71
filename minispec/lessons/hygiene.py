"""What a committed lesson must be: executed, clean, small, and built like the others.

`faults` reads the file as plain data, so that a test can judge every notebook in milliseconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

from .execute import METADATA, WIDGET, read, source_of, tags_of

TAGS = {"exercise", "check", "raises-exception", "nbval-ignore-output"}
MOST_BYTES, MOST_LINES = 400_000, 15
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:home|root|tmp|work|Users)(?![\w-])|C:\\\\?(?:Users|Windows|Program|Temp)")
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
MARKER = re.compile(r"#\s*(?:NBVAL_\w+|PYTEST_VALIDATE\w*|RAISES.EXCEPTION|BEGIN SOLUTION)", re.IGNORECASE)
DATA_URI = re.compile(r"base64,([A-Za-z0-9+/]+=*)")
CHECK = re.compile(r"check\.(\w+)\(.+\)$")
SECTIONS = {"a time in minutes": r"\b\d+ *min", "“By the end you can”": "by the end you can",
            "a checkpoint": r"^#+ .*checkpoint", "further reading": "further reading"}


def faults(path: Path) -> list[str]:
    """Everything that is wrong with a notebook, each a sentence that begins with the cell's number where it has one.

    Raises ValueError if the file is no notebook.
    """
    notebook = read(path)
    found = list(_file(path, notebook)) + list(_sections(notebook["cells"])) + list(_exercises(notebook["cells"]))
    for number, cell in enumerate(notebook["cells"], start=1):
        found += [f"cell {number}: {fault}" for fault in (*_cell(cell), *_texts(cell))]
    return found


def _file(path: Path, notebook: dict) -> Iterator[str]:
    if path.stat().st_size > MOST_BYTES:
        yield f"the file has {path.stat().st_size} bytes, at most {MOST_BYTES} are allowed"
    metadata = notebook.get("metadata", {})
    if metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"
    if extra := sorted(set(metadata) - set(METADATA)):
        yield f"metadata that belongs to one run or one machine: {', '.join(extra)}"
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) < len(ids):
        yield "cells without an id, or with one that another cell has"
    counts = [cell.get("execution_count") for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if None not in counts and counts != list(range(1, len(counts) + 1)):
        yield f"not run from top to bottom: the execution counts are {counts}"


def _sections(cells: list[dict]) -> Iterator[str]:
    prose = "\n".join(source_of(cell) for cell in cells if cell["cell_type"] == "markdown")
    if not cells or cells[0]["cell_type"] != "markdown" or not source_of(cells[0]).startswith("# "):
        yield "the first cell is no title"
    for name, pattern in SECTIONS.items():
        if not re.search(pattern, prose, re.IGNORECASE | re.MULTILINE):
            yield f"{name} is missing"


def _exercises(cells: list[dict]) -> Iterator[str]:
    """An exercise is followed by its check, before any other code."""
    code = [(number, cell) for number, cell in enumerate(cells, start=1) if cell["cell_type"] == "code"]
    for (number, cell), follower in zip(code, [*(cell for _, cell in code[1:]), {}]):
        if "exercise" in tags_of(cell):
            if not re.search(r"^ +raise NotImplementedError$", source_of(cell), re.MULTILINE):
                yield f"cell {number}: an exercise is a stub, with a line that says raise NotImplementedError"
            if "check" not in tags_of(follower):
                yield f"cell {number}: the next code cell after an exercise is its check"
        if "check" in tags_of(cell) and not CHECK.match(last_line(cell)):
            yield f"cell {number}: the last line of a check is check.NAME(function)"


def last_line(cell: dict) -> str:
    return source_of(cell).rstrip().rpartition("\n")[2]


def _cell(cell: dict) -> Iterator[str]:
    if unknown := sorted(set(tags_of(cell)) - TAGS):
        yield f"unknown tags {', '.join(unknown)}; the known ones are {', '.join(sorted(TAGS))}"
    if extra := sorted(set(cell.get("metadata", {})) - {"tags"}):
        yield f"metadata that belongs to one run or one machine: {', '.join(extra)}"
    if cell["cell_type"] != "code":
        return
    if cell.get("execution_count") is None:
        yield "not run"
    if (lines := len(source_of(cell).splitlines())) > MOST_LINES:
        yield f"{lines} lines, at most {MOST_LINES} are allowed"
    if marker := MARKER.search(source_of(cell)):
        yield f"a comment marker, {marker[0]!r}: use a tag"
    raised = [output["ename"] for output in cell["outputs"] if output["output_type"] == "error"]
    if raised and "raises-exception" not in tags_of(cell):
        yield f"it raised {', '.join(raised)}, without the tag raises-exception"
    if any(WIDGET in output.get("data", {}) for output in cell["outputs"]):
        yield "an output names a widget model, which is gone: execute writes the static form alone"


def _texts(cell: dict) -> Iterator[str]:
    """Paths and addresses, in the source, in the outputs, and inside their embedded pictures."""
    text = "\n".join([source_of(cell), *_strings(cell.get("outputs", []))])
    text = DATA_URI.sub(lambda found: base64.b64decode(found[1]).decode("utf-8", errors="replace"), text)
    for path in sorted(set(MACHINE_PATH.findall(text))):
        yield f"a path of one machine: {path}"
    if address := ADDRESS.search(text):
        yield f"an object's address, which no second run repeats: {address[0]}"


def _strings(value: object) -> Iterator[str]:
    """All text in it, bitmaps left out: their letters mean nothing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in ("image/png", "image/jpeg"):
                yield from _strings(part)
