"""The stepper: a slider, a play button and the arrow keys over a row of pictures. The only module that needs
ipywidgets.

The kernel owns the picture: no Output widget, no script. Where no widget can be shown (GitHub, an untrusted notebook,
a printed page) the same cell shows key frames as plain images. The text form is constant, so that a test can compare
outputs strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import ipywidgets

from . import svg as draw
from .frames import Frame

KEY_FRAMES = 4                                           # images in the static form


class Stepper(ipywidgets.VBox):
    """Slider over n states. render: i -> SVG text (render it once where that is slow); alt: what all of it shows.

    captions: i -> a sentence shown below the picture. interval: milliseconds a frame stays when playing.
    """

    def __init__(self, render: Callable[[int], str], n: int, alt: str, captions: Callable[[int], str] = lambda i: "",
                 interval: int = 1500):
        if n < 1:
            raise ValueError(f"a stepper needs at least one state, got {n}")
        self.render, self.n, self.alt, self.captions = render, n, alt, captions
        self.pane = ipywidgets.HTML(self.page(0))
        self.slider = ipywidgets.IntSlider(max=n - 1, description="step", continuous_update=True)
        play = ipywidgets.Play(max=n - 1, interval=interval)
        ipywidgets.jslink((play, "value"), (self.slider, "value"))
        self.slider.observe(lambda change: setattr(self.pane, "value", self.page(change.new)), "value")
        super().__init__([ipywidgets.HBox([play, self.slider]), self.pane])

    @classmethod
    def of(cls, frames: Sequence[Frame], alt: str, interval: int = 1500) -> Stepper:
        """A stepper over frames, with their captions."""
        return cls(lambda i: frames[i].svg, len(frames), alt, lambda i: frames[i].caption, interval)

    def page(self, i: int) -> str:
        """What the pane shows at step i."""
        caption = self.captions(i)
        words = f'<p aria-live="polite" style="font-size:16px">{escape(caption)}</p>' if caption else ""
        return draw.figure(self.render(i), self.alt_at(i)) + words

    def alt_at(self, i: int) -> str:
        return f"{self.alt}, step {i + 1} of {self.n}. {self.captions(i)}".strip()

    def static(self) -> str:
        """The key frames, the first and the last among them, one below the other."""
        last = self.n - 1
        shown = sorted({round(last * k / (KEY_FRAMES - 1)) for k in range(KEY_FRAMES)})
        return "".join(f"<p>step {i + 1} of {self.n}. {escape(self.captions(i))}</p>"
                       + draw.img(self.render(i), self.alt_at(i)) for i in shown)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, object]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/plain": f"{self.alt} ({self.n} steps)", "text/html": self.static()}
