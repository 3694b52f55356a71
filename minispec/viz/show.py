"""A figure as the last line of a cell: an image where a notebook can show one, its alt text everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

from .svg import img


@dataclass(frozen=True)
class Picture:
    """An SVG figure and the words for who can't see it. Its text form is constant, so outputs can be compared."""
    svg: str
    alt: str

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/plain": self.alt, "text/html": img(self.svg, self.alt)}


def show(svg: str, alt: str) -> Picture:
    """What a renderer drew, as the last line of a cell: `show(ribbon(trace, decode), "Where each token came from")`."""
    return Picture(svg, alt)
