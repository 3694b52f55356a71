"""Copies of the lessons for students: no outputs, no solutions, and the metadata by which nbgrader knows its cells.

A cell tagged "exercise" becomes nbgrader's autograded answer: its `raise NotImplementedError` stands between `### BEGIN
SOLUTION` and `### END SOLUTION`, where `nbgrader generate_assignment` puts its own stub, and leaves the rest. The cell
tagged "check" after it becomes autograder tests, locked, with one point.

A check never raises while a student works, so that an untouched copy runs from top to bottom. nbgrader grades by
exceptions; while it grades or validates, checks raise (see check/base.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from ..model.files import save_atomic
from .execute import cleaned, read, tags_of, text_of
from .hygiene import CHECK, last_line

STUB = re.compile(r"^( +)raise NotImplementedError$", re.MULTILINE)
REGION = r"\1### BEGIN SOLUTION\n\1raise NotImplementedError\n\1### END SOLUTION"
SCHEMA = 3                                                # of nbgrader's cell metadata


def write_copy(path: Path, folder: Path) -> Path:
    """Write the student's copy of one lesson into `folder` -> where it lies.

    Raises ValueError if the copy would replace the lesson itself, or if an exercise or check is not built as such.
    """
    copy = folder / path.name
    if copy.resolve() == path.resolve():
        raise ValueError(f"--output {folder} holds the lesson itself: name another folder")
    text = text_of(student_version(read(path), path.name))
    save_atomic(copy, lambda part: part.write_text(text, encoding="utf-8"))
    return copy


def student_version(notebook: dict, name: str) -> dict:
    """The copy. Raises ValueError for an exercise that is no stub, or a check whose last line is no check."""
    copy = cleaned(notebook, name)
    exercises = 0
    for number, cell in enumerate(copy["cells"], start=1):
        if "exercise" in tags_of(cell):
            exercises += 1
            cell["source"], stubs = STUB.subn(REGION, cell["source"])
            if stubs != 1:
                raise ValueError(f"{name}, cell {number}: an exercise has one line raise NotImplementedError, "
                                 f"not {stubs}")
            cell["metadata"]["nbgrader"] = _metadata(f"exercise-{exercises}", solution=True)
        elif "check" in tags_of(cell):
            found = CHECK.match(last_line(cell))
            if not found:
                raise ValueError(f"{name}, cell {number}: the last line of a check is check.NAME(function)")
            cell["metadata"]["nbgrader"] = _metadata(f"check-{exercises}-{found[1]}", grade=True, locked=True, points=1)
    return copy


def _metadata(grade_id: str, grade: bool = False, locked: bool = False, solution: bool = False, **points: int) -> dict:
    return {"grade": grade, "grade_id": grade_id, "locked": locked, "schema_version": SCHEMA, "solution": solution,
            "task": False, **points}
