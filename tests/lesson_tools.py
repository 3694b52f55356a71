"""What the tests of the lessons share: solutions as modules, a stub, and what a rejected answer must come with."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from minispec.lessons.check.base import Feedback
from minispec.lessons.execute import read, source_of, tags_of

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def cells(number: str) -> list[dict]:
    """The cells of a lesson: cells("03")."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return read(path)["cells"]


def stubs(number: str) -> dict[str, list[str]]:
    """{exercise: its arguments}, as the lesson asks for them."""
    functions = [ast.parse(source_of(cell)).body[-1] for cell in cells(number) if "exercise" in tags_of(cell)]
    return {function.name: [argument.arg for argument in function.args.args] for function in functions}


def answers(module: ModuleType, names: tuple[str, ...]) -> dict[str, list[str]]:
    """{exercise: its arguments}, as the solutions have them."""
    return {name: list(inspect.signature(getattr(module, name)).parameters) for name in names}


def solved(number: str) -> ModuleType:
    """The solutions of one lesson: solved("03").count_matches."""
    path = NOTEBOOKS / "solutions" / f"lesson_{number}.py"
    spec = importlib.util.spec_from_file_location(f"solutions_{number}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def untouched(*given: object) -> None:
    """A stub that nobody has filled in."""
    raise NotImplementedError


def rejected(feedback: Feedback, picture: bool) -> None:
    """The answer is wrong, the message is a sentence, and a picture comes with its alt text if there should be one."""
    assert feedback.status == "wrong" and len(feedback.message) > 20, feedback
    assert bool(feedback.svg) == bool(feedback.alt) == picture, feedback.message
    if picture:
        ElementTree.fromstring(feedback.svg)
