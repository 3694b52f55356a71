"""The widgets of a lesson without a browser: a control's value is set as a front end sets it."""

import inspect

import ipywidgets
import pytest

from minispec import lessons, viz
from minispec.decoding import rules
from minispec.lessons import Quiz, source
from minispec.viz import img
from minispec.viz.controls import Live

WIDGET = "application/vnd.jupyter.widget-view+json"


def drawing(**values):
    return f"<svg>{values}</svg>"


# --- live controls ----------------------------------------------------------------------------------------------------

def live(run=drawing, **kwargs):
    slider = ipywidgets.IntSlider(value=3, min=1, max=9, description="draft length")
    return Live(run, {"temperature": ("temperature", [0.0, 0.8]), "length": slider}, "The round", **kwargs)


def test_live_controls_draw_their_first_values_and_again_at_each_change():
    box = live()
    assert drawing(temperature=0.0, length=3) in box.pane.value
    box.controls["length"].value = 5
    assert drawing(temperature=0.0, length=5) in box.pane.value
    box.controls["temperature"].value = 0.8
    assert drawing(temperature=0.8, length=5) in box.pane.value


def test_a_slider_reports_only_the_value_on_which_it_is_left():
    assert not live().controls["length"].continuous_update


def test_live_controls_say_that_they_are_running_and_then_fall_silent():
    seen = []
    box = live(lambda **values: seen.append(box.status.value if values["length"] == 4 else "") or "<svg/>")
    box.controls["length"].value = 4
    assert "running" in seen[-1] and "running" not in box.status.value


def test_a_value_error_is_shown_as_its_message_without_a_stale_picture_and_the_next_change_mends_it():
    def run(temperature, length):
        if length == 9:
            raise ValueError("draft length <9> does not fit")
        return drawing(temperature=temperature, length=length)
    box = live(run)
    box.controls["length"].value = 9
    assert "draft length &lt;9&gt; does not fit" in box.status.value and box.pane.value == ""
    box.controls["length"].value = 2
    assert "fit" not in box.status.value and drawing(temperature=0.0, length=2) in box.pane.value


def test_other_exceptions_of_a_run_are_faults_and_are_raised():
    with pytest.raises(ZeroDivisionError):
        live(lambda **values: 1 / 0)


def test_the_static_form_shows_the_first_values_whatever_was_set_since():
    box = live(examples=[{"length": 8}])
    before = box._repr_mimebundle_()
    assert img(drawing(temperature=0.0, length=3), "The round") in before["text/html"]
    assert img(drawing(temperature=0.0, length=8), "The round") in before["text/html"]
    assert "draft length: 8" in before["text/html"] and WIDGET in before
    box.controls["length"].value = 5
    after = box._repr_mimebundle_()
    assert after["text/html"] == before["text/html"]
    assert after["text/plain"] == before["text/plain"] == "The round (live controls: temperature, length)"


def test_the_static_form_of_an_impossible_first_value_is_its_message():
    def run(**values):
        raise ValueError("no <such> thing")
    bundle = live(run)._repr_mimebundle_()
    assert "no &lt;such&gt; thing" in bundle["text/html"] and "<img" not in bundle["text/html"]


# --- quiz -------------------------------------------------------------------------------------------------------------

def quiz():
    return Quiz("Is p < q?", ["yes", "no", "never & always"], 1, "Both sum to 1.")


def test_a_quiz_answers_only_when_it_is_asked_to_check():
    question = quiz()
    assert question.choice.value is None
    question.choice.value = 1
    assert question.feedback.value == ""
    question.button.click()
    assert "✓ Right. Both sum to 1." in question.feedback.value


def test_a_wrong_choice_says_so_and_does_not_give_the_answer_away():
    question = quiz()
    question.choice.value = 2
    question.button.click()
    assert "✗ Not C" in question.feedback.value and "sum" not in question.feedback.value
    question.choice.value = 0
    assert question.feedback.value == ""


def test_checking_without_a_choice_asks_for_one():
    question = quiz()
    question.button.click()
    assert "Choose an answer first" in question.feedback.value


def test_the_static_form_of_a_quiz_folds_the_answer_away():
    bundle = quiz()._repr_mimebundle_()
    shown, folded = bundle["text/html"].split("<details>")
    assert "Is p &lt; q?" in shown and "<li>never &amp; always</li>" in shown and "sum" not in shown
    assert "B. no. Both sum to 1." in folded
    assert bundle["text/plain"] == "Quiz: Is p < q?" and WIDGET in bundle


@pytest.mark.parametrize("options, answer",
                         [(["yes"], 0), (["yes", "yes"], 0), (["yes", "no"], 2), (["yes", "no"], -1)])
def test_a_question_that_cannot_be_answered_is_refused(options, answer):
    with pytest.raises(ValueError):
        Quiz("?", options, answer, "")


# --- figures and sources ----------------------------------------------------------------------------------------------

def test_a_shown_figure_is_an_image_with_its_alt_text():
    picture = viz.show("<svg/>", "A < B")
    bundle = picture._repr_mimebundle_()
    assert bundle == {"text/plain": "A < B", "text/html": img("<svg/>", "A < B")} and repr(picture) == "A < B"


def test_a_source_is_that_of_the_function_that_runs():
    shown = source(rules.Token)
    assert shown.text == inspect.getsource(rules.Token).rstrip()
    bundle = shown._repr_mimebundle_()
    assert bundle["text/plain"] == shown.text and "minispec.decoding.rules.token" in bundle["text/html"]
    method = source(rules.Token.__call__)
    assert method.text.startswith("def ") and "\n    " in method.text


def test_the_lessons_package_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'quizz'"):
        lessons.quizz
