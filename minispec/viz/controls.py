"""Live controls: change the temperature, the draft length or the prompt, and the real loop runs again.

As in widgets.py, the kernel owns the picture: no Output widget, no script, a constant text form, and the picture of the
first values as a plain image where no widget can be shown. Everything is reached by the Tab key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

import ipywidgets

from . import svg as draw

Control = ipywidgets.Widget | tuple[str, Sequence]


class Live(ipywidgets.VBox):
    """Controls over one picture. run(**values) -> SVG text is called again whenever one of them changes.

    controls: the name of each of run's arguments -> an ipywidgets widget with a value, or (label, options) for a
    dropdown that starts at its first option. alt: what the picture shows. examples: more sets of values, whose pictures
    the static form shows below the first one.

    A ValueError of `run` is shown as its message, in place of the picture: it is how minispec says that a combination
    of values makes no sense. Any other exception is a fault and is raised.
    """

    def __init__(self, run: Callable[..., str], controls: Mapping[str, Control], alt: str,
                 examples: Sequence[Mapping[str, object]] = ()):
        self.run, self.alt, self.examples = run, alt, tuple(examples)
        self.controls = {name: _widget(control) for name, control in controls.items()}
        self.status, self.pane = ipywidgets.HTML(), ipywidgets.HTML()
        self.first = self.values()
        self.first_page = self.refresh()
        for control in self.controls.values():
            control.observe(lambda change: self.refresh(), "value")
        row = ipywidgets.Layout(flex_flow="row wrap", grid_gap="4px 24px")
        super().__init__([ipywidgets.Box(list(self.controls.values()), layout=row), self.status, self.pane])

    def values(self) -> dict[str, object]:
        """What the controls say now."""
        return {name: control.value for name, control in self.controls.items()}

    def refresh(self) -> str:
        """Run with the values of now, and show what comes out -> the static HTML of the same."""
        self.status.value = _line("… running")
        svg, error = self.picture(self.values())
        self.status.value = _line(f"⚠ {error}" if error else "")
        self.pane.value = draw.figure(svg, self.alt) if svg else ""
        return draw.img(svg, self.alt) if svg else _line(f"⚠ {error}")

    def picture(self, values: Mapping[str, object]) -> tuple[str, str]:
        """(SVG, "") or ("", why there is none)."""
        try:
            return self.run(**values), ""
        except ValueError as error:
            return "", str(error)

    def static(self) -> str:
        """The picture of the first values, then those of the examples, each below its values."""
        parts = [self.heading(self.first) + self.first_page]
        for values in self.examples:
            svg, error = self.picture({**self.first, **values})
            parts.append(self.heading(values) + (draw.img(svg, self.alt) if svg else _line(f"⚠ {error}")))
        return "".join(parts)

    def heading(self, values: Mapping[str, object]) -> str:
        words = (f"{self.controls[name].description or name}: {value}" for name, value in values.items())
        return f"<p>{escape(', '.join(words))}</p>"

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, object]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/plain": f"{self.alt} (live controls: {', '.join(self.controls)})",
                         "text/html": self.static()}


def _widget(control: Control) -> ipywidgets.Widget:
    """A widget that reports a change once it is made, not while a handle is dragged or a word is typed."""
    if isinstance(control, tuple):
        label, options = control
        control = ipywidgets.Dropdown(description=label, options=options)
    if control.has_trait("continuous_update"):
        control.continuous_update = False
    control.style.description_width = "initial"
    return control


def _line(words: str) -> str:
    return f'<p role="status" style="font-size:16px;min-height:1.4em;margin:0">{escape(words)}</p>'
