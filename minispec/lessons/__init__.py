"""How it is taught: checks for the exercises, quiz questions, and the tools that keep the notebooks executed and clean.

In a notebook: `from minispec.lessons import Quiz, check, source`. `Quiz` is imported when it is first asked for, since
it needs ipywidgets.
"""

from . import check
from .source import source

__all__ = ["Quiz", "check", "source"]


def __getattr__(name: str) -> type:
    if name != "Quiz":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .quiz import Quiz
    return Quiz
