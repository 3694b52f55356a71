"""The code that really runs, shown in a lesson: never a copy that could drift from it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Source:
    """Source text and the module that holds it."""
    text: str
    module: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        head = f"<p>From <code>{escape(self.module)}</code>:</p>"
        code = f'<pre style="font-size:15px;font-family:monospace">{escape(self.text)}</pre>'
        return {"text/plain": self.text, "text/html": head + code}


def source(code: Callable | type) -> Source:
    """The source of a function, method or class of the library, without the indentation it has there.

    A wrapped function shows what it wraps. Raises TypeError or OSError where Python has no source for it.
    """
    code = inspect.unwrap(code)
    return Source(textwrap.dedent(inspect.getsource(code)).rstrip(), code.__module__)
