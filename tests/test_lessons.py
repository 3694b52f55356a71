"""The tools that keep the lessons executed and clean, and that make the students' copies, on a small made-up lesson."""

import copy
import json

import pytest

from minispec.lessons import check
from minispec.lessons.check.base import Feedback, NotPassed, Wrong, judged
from minispec.lessons.execute import CellFailed, cleaned, execute, read, source_of
from minispec.lessons.hygiene import faults
from minispec.lessons.student import student_version

STUB = '''def count_matches(drafted, wanted):
    """How many may be kept. ~4 lines."""
    raise NotImplementedError'''


def code(source, *tags, outputs=()):
    return {"cell_type": "code", "metadata": {"tags": list(tags)} if tags else {}, "source": source,
            "execution_count": None, "outputs": list(outputs)}


def prose(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def lesson():
    """A clean lesson, as the executor leaves it."""
    notebook = cleaned({"cells": [
        prose("# 90: a lesson\n\n| time | 40 minutes |\n\n## By the end you can\n\n* test"),
        code("from minispec.lessons import check"),
        code(STUB, "exercise"),
        prose("Now check it."),
        code("check.count_matches(count_matches)", "check"),
        code("1 / 0", "raises-exception"),
        prose("## Checkpoint\n\n## Further reading"),
    ]}, "90_lesson.ipynb")
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), start=1):
        cell["execution_count"] = count
    error = {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "", "traceback": []}
    notebook["cells"][5]["outputs"] = [error]
    return notebook


@pytest.fixture
def written(tmp_path):
    """written(notebook) -> its file."""
    def write(notebook, name="90_lesson.ipynb"):
        (tmp_path / name).write_text(json.dumps(notebook))
        return tmp_path / name
    return write


# --- hygiene ----------------------------------------------------------------------------------------------------------

def test_a_clean_lesson_has_no_faults(written):
    assert faults(written(lesson())) == []


def shown(html):
    return [{"output_type": "execute_result", "metadata": {}, "execution_count": 1, "data": {"text/html": html}}]


def displayed(data):
    return [{"output_type": "display_data", "metadata": {}, "data": data}]


def first(cell=1, **fields):
    """A change of one cell."""
    return lambda notebook: notebook["cells"][cell].update(fields)


PICTURE = '<img src="data:image/svg+xml;base64,PHN2Zz4vaG9tZS9hL2IuY3N2PC9zdmc+">'        # <svg>/home/a/b.csv</svg>
WIDGET = {"application/vnd.jupyter.widget-view+json": {"model_id": "3f"}, "text/plain": "A stepper (3 steps)"}


@pytest.mark.parametrize("change, said", [
    (first(execution_count=None), "cell 2: not run"),
    (first(execution_count=7), "not run from top to bottom: the execution counts are [7, 2, 3, 4]"),
    (lambda n: n["cells"][5]["metadata"].clear(), "cell 6: it raised ZeroDivisionError, without the tag"),
    (first(source=f"open('/{'home'}/me/x.txt')"), "cell 2: a path of one machine: /home"),
    (first(source=["print(1)\n", "open('C:\\\\Users\\\\me')"]), "cell 2: a path of one machine: C:"),
    (first(outputs=shown("written\n/tmp/x.json")), "cell 2: a path of one machine: /tmp"),
    (first(outputs=shown(PICTURE)), "cell 2: a path of one machine: /home"),
    (first(outputs=shown("&lt;object at 0x7f12ab34cd56&gt;")), "cell 2: an object's address"),
    (first(outputs=displayed(WIDGET)), "cell 2: an output names a widget"),
    (lambda n: n["metadata"].update(widgets={}), "metadata that belongs to one run or one machine: widgets"),
    (first(metadata={"execution": {}}), "cell 2: metadata that belongs to one run or one machine: execution"),
    (lambda n: n["metadata"].update(kernelspec={"name": "venv"}), "the kernel is not python3"),
    (first(outputs=shown("x" * 400_000)), "at most 400000 are allowed"),
    (first(source="a = 1\n" * 16), "cell 2: 16 lines, at most 15 are allowed"),
    (lambda n: n["cells"][1].pop("id"), "cells without an id"),
    (first(id="90-01"), "cells without an id, or with one that another cell has"),
    (first(source="# NBVAL_IGNORE_OUTPUT\nprint(1)"), "cell 2: a comment marker, '# NBVAL_IGNORE_OUTPUT': use a tag"),
    (first(source="### BEGIN SOLUTION"), "cell 2: a comment marker"),
    (first(metadata={"tags": ["nbval-ingore-output"]}), "cell 2: unknown tags nbval-ingore-output"),
    (first(0, source="A lesson of 40 minutes. By the end you can test."), "the first cell is no title"),
    (first(0, source="# A lesson\n\nBy the end you can test."), "a time in minutes is missing"),
    (first(0, source="# A lesson, 40 minutes"), "“By the end you can” is missing"),
    (first(6, source="Further reading, no checkpoint"), "a checkpoint is missing"),
    (first(6, source="## Checkpoint"), "further reading is missing"),
    (first(2, source=STUB.replace("raise NotImplementedError", "return 3")), "cell 3: an exercise is a stub"),
    (lambda n: n["cells"][4]["metadata"].clear(), "cell 3: the next code cell after an exercise is its check"),
    (first(4, source="check.count_matches(count_matches).passed"), "cell 5: the last line of a check is"),
])
def test_each_fault_is_found_and_named_alone(written, change, said):
    notebook = lesson()
    change(notebook)
    found = faults(written(notebook))
    assert len(found) == 1 and said in found[0], found


def test_what_only_looks_like_a_fault_is_none(written):
    notebook = lesson()
    notebook["cells"][1]["source"] = 'print("T:\\n", "a/tmp/b", "and/or", 0x7f)'
    notebook["cells"][1]["outputs"] = displayed({"image/png": "a /tmp/ b"})
    assert faults(written(notebook)) == []


# --- the executor -----------------------------------------------------------------------------------------------------

def unclean():
    """A notebook as an editor leaves it: no ids, stale counts and outputs, metadata of one machine, a widget."""
    cells = [prose("# 90"), code("import ipywidgets, os\nprint(os.path.basename(os.getcwd()))"),
             code("ipywidgets.IntSlider()", outputs=shown("stale")), code("1 / 0", "raises-exception")]
    for cell in cells:
        cell["metadata"] |= {"execution": {"iopub.execute_input": "2020"}, "collapsed": True}
    return {"nbformat": 4, "nbformat_minor": 4, "cells": cells,
            "metadata": {"kernelspec": {"name": "gone"}, "widgets": {"state": {}}}}


def test_the_executor_leaves_a_clean_notebook_and_twice_the_same_bytes(written):
    path = written(unclean())
    execute(path)
    once, notebook = path.read_bytes(), read(path)
    assert {fault.split(": ")[0] for fault in faults(path)} == {
        "a time in minutes is missing", "“By the end you can” is missing", "a checkpoint is missing",
        "further reading is missing"}
    assert [cell["id"] for cell in notebook["cells"]] == ["90-01", "90-02", "90-03", "90-04"]
    assert [cell.get("execution_count") for cell in notebook["cells"]] == [None, 1, 2, 3]
    assert notebook["cells"][1]["outputs"][0]["text"] == [path.parent.name + "\n"]       # it ran in its own folder
    assert list(notebook["cells"][2]["outputs"][0]["data"]) == ["text/plain"]
    assert notebook["cells"][3]["outputs"][0]["traceback"] == ["ZeroDivisionError: division by zero"]
    execute(path)
    assert path.read_bytes() == once


def test_a_cell_that_raises_leaves_the_file_as_it_was_and_is_named(written, run, tmp_path):
    notebook = unclean()
    notebook["cells"][3]["metadata"] = {}
    path = written(notebook)
    before = path.read_bytes()
    with pytest.raises(CellFailed, match=r"^90_lesson.ipynb, cell 90-04: ZeroDivisionError: division by zero$"):
        execute(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_cell_that_takes_too_long_is_a_failure(written):
    path = written({**unclean(), "cells": [code("import time; time.sleep(60)")]})
    with pytest.raises(CellFailed, match="90_lesson.ipynb"):
        execute(path, timeout=1)


# --- copies for students ----------------------------------------------------------------------------------------------

def test_a_student_copy_has_the_stub_marked_for_nbgrader_and_no_outputs():
    found = student_version(lesson(), "90_lesson.ipynb")
    stub, tests = found["cells"][2], found["cells"][4]
    assert stub["source"].splitlines()[1:] == ['    """How many may be kept. ~4 lines."""', "    ### BEGIN SOLUTION",
                                               "    raise NotImplementedError", "    ### END SOLUTION"]
    assert stub["metadata"]["nbgrader"] == {"grade": False, "grade_id": "exercise-1", "locked": False,
                                            "schema_version": 3, "solution": True, "task": False}
    assert tests["metadata"]["nbgrader"] == {"grade": True, "grade_id": "check-1-count_matches", "locked": True,
                                             "schema_version": 3, "solution": False, "task": False, "points": 1}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in found["cells"])
    assert "nbgrader" not in json.dumps([found["cells"][k] for k in (0, 1, 3, 5, 6)])


def test_nbgrader_tells_all_cells_apart():
    notebook = lesson()
    notebook["cells"] += copy.deepcopy(notebook["cells"][2:5])
    cells = student_version(notebook, "90_lesson.ipynb")["cells"]
    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell["metadata"]]
    assert len(ids) == len(set(ids)) == 4


@judged
def answer(function):
    if function() != 42:
        yield Wrong("it is not 42")


def unsolved():
    raise NotImplementedError


def test_a_check_tells_a_student_and_raises_for_nbgrader(monkeypatch):
    assert answer(unsolved) == Feedback("answer", "not attempted yet")
    assert answer(lambda: 41).status == answer(lambda: 1 / 0).status == "wrong"
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    for function in (unsolved, lambda: 41, lambda: 1 / 0):
        with pytest.raises(NotPassed, match="answer"):
            answer(function)
    assert answer(lambda: 42) is None


# --- the command ------------------------------------------------------------------------------------------------------

def test_check_lists_the_faults_and_its_status_says_whether_there_are_any(written, run):
    clean, unrun = written(lesson()), lesson()
    unrun["cells"][1]["execution_count"] = None
    unrun = written(unrun, "91_unrun.ipynb")
    assert run("lessons", "check", clean) == (0, f"{clean}\n  clean\n", "")
    assert run("lessons", "check", clean, unrun) == (1, f"{clean}\n  clean\n{unrun}\n  cell 2: not run\n", "")
    status, out, _ = run("lessons", "check", unrun, "--json")
    assert status == 1 and json.loads(out) == {
        "action": "check", "notebooks": [{"notebook": str(unrun), "faults": ["cell 2: not run"]}]}


def test_without_names_all_lessons_of_the_folder_are_meant(written, run, tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    written(lesson(), "notebooks/90_lesson.ipynb")
    monkeypatch.chdir(tmp_path)
    assert run("lessons", "check")[:2] == (0, "notebooks/90_lesson.ipynb\n  clean\n")
    status, out, _ = run("lessons", "student", "--output", "copies")
    assert (status, out) == (0, "copies/90_lesson.ipynb written\n")
    assert source_of(read(tmp_path / "copies" / "90_lesson.ipynb")["cells"][2]).endswith("### END SOLUTION")


def test_execute_goes_on_after_a_lesson_that_fails(written, run):
    failing = written({**unclean(), "cells": [code("nothing")]}, "91_failing.ipynb")
    working = written({**unclean(), "cells": [code("print(1)")]}, "92_working.ipynb")
    status, out, err = run("lessons", "execute", failing, working)
    assert (status, err) == (1, "") and "91_failing.ipynb, cell 91-01: NameError" in out
    assert out.endswith(f"{working} ... written\n") and read(working)["cells"][0]["execution_count"] == 1


@pytest.mark.parametrize("words, said", [
    ("lessons", "arguments are required: action"),
    ("lessons burn", "invalid choice: 'burn'"),
    ("lessons check", "no notebooks/*.ipynb in this folder"),
    ("lessons check nowhere.ipynb", "nowhere.ipynb: no such notebook"),
    ("lessons check text.ipynb", "text.ipynb is not a notebook: it holds no JSON"),
    ("lessons execute list.ipynb", "list.ipynb is not a notebook of format 4"),
    ("lessons student lesson.ipynb", "--output names the folder for student copies"),
    ("lessons check lesson.ipynb --output x", "--output names the folder for student copies"),
    ("lessons student lesson.ipynb --output .", "holds the lesson itself: name another folder"),
    ("lessons student solved.ipynb --output x", "solved.ipynb, cell 3: an exercise has one line raise"),
    ("lessons student unchecked.ipynb --output x", "unchecked.ipynb, cell 5: the last line of a check is"),
])
def test_bad_input_is_one_line(written, run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    written(lesson(), "lesson.ipynb")
    for name, change in [("solved", first(2, source="def count_matches():\n    return 3")),
                         ("unchecked", first(4, source="print(count_matches)"))]:
        notebook = lesson()
        change(notebook)
        written(notebook, f"{name}.ipynb")
    (tmp_path / "text.ipynb").write_text("no notebook")
    (tmp_path / "list.ipynb").write_text("[]")
    status, out, err = run(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err


def test_every_check_is_exported_and_documented():
    for name in dir(check):
        if callable(getattr(check, name)):
            assert getattr(check, name).__doc__, name
