"""The committed lessons: clean, listed in the README, with exercises that a student can start and solve."""

from pathlib import Path

import pytest
from lesson_tools import solved

from minispec.lessons import check
from minispec.lessons.execute import METADATA, ran, read, source_of, tags_of
from minispec.lessons.hygiene import CHECK, faults, last_line
from minispec.lessons.student import student_version

ROOT = Path(__file__).parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MARKERS = ("    ### BEGIN SOLUTION\n", "    ### END SOLUTION\n")

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def checks(notebook):
    """The cells that are checks, each with the name of its check."""
    return [(CHECK.match(last_line(cell))[1], cell) for cell in notebook["cells"] if "check" in tags_of(cell)]


def said(cell):
    """The text of a cell's result."""
    return "".join("".join(output["data"]["text/plain"]) for output in cell["outputs"]
                   if output["output_type"] == "execute_result")


def test_the_first_nine_lessons_are_there():
    assert [path.name[:2] for path in LESSONS][:9] == [f"{number:02d}" for number in range(9)]


@each_lesson
def test_a_lesson_is_executed_and_clean(path):
    assert faults(path) == []


@each_lesson
def test_a_lesson_has_exactly_the_metadata_that_the_executor_writes(path):
    assert read(path)["metadata"] == METADATA


@each_lesson
def test_the_readme_and_the_instructor_s_guide_know_the_lesson(path):
    assert f"(notebooks/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"## {path.name[:2]} · " in (ROOT / "notebooks" / "INSTRUCTOR.md").read_text(encoding="utf-8")


@each_lesson
def test_a_lesson_has_two_to_four_exercises_each_not_attempted_as_committed(path):
    found = checks(read(path))
    assert 2 <= len(found) <= 4
    for name, cell in found:
        assert said(cell) == f"○ {name}: not attempted yet"


@each_lesson
def test_the_solutions_make_every_check_pass(path):
    solutions = solved(path.name[:2])
    for name, _ in checks(read(path)):
        assert str(getattr(check, name)(getattr(solutions, name))) == f"✓ {name}: passed"


@each_lesson
def test_a_student_copy_is_the_lesson_without_outputs_and_solutions(path):
    """So what nbval shows of the lessons, that they run from top to bottom, holds for untouched copies too."""
    lesson, copy = read(path), student_version(read(path), path.name)
    for cell, copied in zip(lesson["cells"], copy["cells"], strict=True):
        text = copied["source"] + "\n"
        for marker in MARKERS:
            text = text.replace(marker, "")
        assert text.rstrip() == source_of(cell).rstrip() and not copied.get("outputs")


def test_an_untouched_student_copy_runs_and_says_that_nothing_was_attempted():
    path = ROOT / "notebooks" / "03_draft_and_verify.ipynb"
    done = ran(student_version(read(path), path.name), path.parent, name=path.name)
    for name, cell in checks(done):
        assert said(cell) == f"○ {name}: not attempted yet"
