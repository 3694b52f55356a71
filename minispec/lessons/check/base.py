"""What a check says: not attempted yet, passed, or wrong, with a picture of what the wrong answer does.

A check is a function of the student's function. It is written as a generator of `Wrong` (see `judged`): the first one
that it yields is shown, and a check that yields none has passed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

from ...viz import svg as draw


@dataclass(frozen=True)
class Wrong:
    """A case where the answer is wrong: what was given, what came out, what was expected; a picture where one helps."""
    message: str
    svg: str = ""
    alt: str = ""


@dataclass(frozen=True)
class Feedback:
    """Shown in the notebook. status: "not attempted yet", "passed" or "wrong"."""
    name: str
    status: str
    message: str = ""
    svg: str = ""
    alt: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def __str__(self) -> str:
        glyph = {"passed": "✓", "wrong": "✗", "not attempted yet": "○"}[self.status]
        return f"{glyph} {self.name}: {self.status}" + (f". {self.message}" if self.message else "")

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        colour = {"passed": draw.ROLES["accepted"].colour, "wrong": draw.ROLES["rejected"].colour,
                  "not attempted yet": draw.MUTED}[self.status]
        words = (f'<p style="font-size:16px;border-left:6px solid {colour};padding:4px 12px;white-space:pre-wrap">'
                 f"{escape(str(self))}</p>")
        return {"text/plain": str(self), "text/html": words + (draw.img(self.svg, self.alt) if self.svg else "")}


class NotPassed(AssertionError):
    """Raised in place of feedback while nbgrader grades or validates."""


def judged(cases: Callable[[Callable], Iterator[Wrong]]) -> Callable[[Callable], Feedback | None]:
    """Decorator: turn a generator of wrong cases into a check, which returns its Feedback.

    nbgrader gives no points for an exception, part of them for a number, and all for anything else. While it runs the
    notebook, a check that isn't passed raises NotPassed, and one that is returns None.
    """
    @functools.wraps(cases)
    def check(function: Callable) -> Feedback | None:
        feedback = judge(cases, function)
        if "NBGRADER_EXECUTION" not in os.environ:
            return feedback
        if not feedback.passed:
            raise NotPassed(str(feedback))
    return check


def judge(cases: Callable[[Callable], Iterator[Wrong]], function: Callable) -> Feedback:
    """NotImplementedError from the student's function means not attempted; any other exception is wrong."""
    try:
        wrong = next(iter(cases(function)), None)
    except NotImplementedError:
        return Feedback(cases.__name__, "not attempted yet")
    except Exception as error:
        return Feedback(cases.__name__, "wrong", f"it raised {type(error).__name__}: {error}")
    if wrong is None:
        return Feedback(cases.__name__, "passed")
    return Feedback(cases.__name__, "wrong", wrong.message, wrong.svg, wrong.alt)
