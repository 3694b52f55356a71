"""A quiz question: radio buttons, a button that checks the choice, and one line that answers.

No Output widget and no script. Where no widget can be shown, the same cell shows the question with its answer folded
away. The text form is constant, so that a test can compare outputs strictly.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import ipywidgets

LETTERS = "ABCDEFGH"


class Quiz(ipywidgets.VBox):
    """question, options: plain text; answer: the index of the right option; why: shown with the right answer.

    Raises ValueError for fewer than two options, equal options, or an answer that is none of them.
    """

    def __init__(self, question: str, options: Sequence[str], answer: int, why: str):
        if not 2 <= len(set(options)) == len(options) <= len(LETTERS):
            raise ValueError(f"a quiz needs 2 to {len(LETTERS)} different options, got {list(options)}")
        if not 0 <= answer < len(options):
            raise ValueError(f"answer is the index of an option, 0 to {len(options) - 1}, got {answer}")
        self.question, self.options, self.answer, self.why = question, tuple(options), answer, why
        labels = [(f"{letter}. {option}", k) for k, (letter, option) in enumerate(zip(LETTERS, options))]
        self.choice = ipywidgets.RadioButtons(options=labels, value=None, layout=ipywidgets.Layout(width="auto"))
        self.button = ipywidgets.Button(description="Check", tooltip="check the chosen answer")
        self.feedback = ipywidgets.HTML()
        self.button.on_click(lambda button: self.check())
        self.choice.observe(lambda change: setattr(self.feedback, "value", ""), "value")
        asked = ipywidgets.HTML(f"<p><b>{escape(question)}</b></p>")
        super().__init__([asked, self.choice, self.button, self.feedback])

    def check(self) -> None:
        """Judge the chosen option, in the line below the button."""
        if self.choice.value is None:
            words = "○ Choose an answer first."
        elif self.choice.value == self.answer:
            words = f"✓ Right. {self.why}"
        else:
            words = f"✗ Not {LETTERS[self.choice.value]}. Think again, then choose another."
        self.feedback.value = f'<p aria-live="polite" style="font-size:16px">{escape(words)}</p>'

    def static(self) -> str:
        """The question and its options, with the answer folded away."""
        options = "".join(f"<li>{escape(option)}</li>" for option in self.options)
        words = f"{LETTERS[self.answer]}. {self.options[self.answer]}. {self.why}"
        return (f'<p><b>{escape(self.question)}</b></p><ol type="A">{options}</ol>'
                f"<details><summary>Answer</summary><p>{escape(words)}</p></details>")

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, object]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/plain": f"Quiz: {self.question}", "text/html": self.static()}
