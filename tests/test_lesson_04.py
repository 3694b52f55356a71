"""Lesson 04: solutions pass, an untouched stub is not attempted, and the mistakes that students make are caught."""

import subprocess
import sys

import numpy as np
import pytest
from lesson_tools import answers, cells, rejected, solved, stubs, untouched

from minispec.decoding import Verdict, rules
from minispec.lessons import check
from minispec.lessons.execute import source_of

NAMES = ("accept_chance", "residual", "law_of_one_step", "token_rule")
solution = solved("04")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_a_stub_is_not_attempted(name):
    assert getattr(check, name)(getattr(solution, name)).passed
    assert getattr(check, name)(untouched).status == "not attempted yet"


def test_the_lesson_asks_for_what_the_solutions_give():
    assert stubs("04") == answers(solution, NAMES)


WITHOUT_TORCH = """
import sys
from unittest.mock import MagicMock
sys.modules["torch"] = None                              # importing it fails
for name in ("minispec", "minispec.decoding", "minispec.decoding.dice", "minispec.lessons", "minispec.viz"):
    sys.modules[name] = MagicMock()
"""
FACTS = """
assert abs(alpha - 0.7) < 1e-12 and abs(law - [2 / 3, 1 / 3, 0, 0]).max() < 1e-12
assert abs(again.sum() - 1) < 1e-12 and coin is not None and y == 0
"""


def test_the_lesson_computes_with_numpy_alone_up_to_the_enumeration():
    """Its cells run where there is no torch; what draws and checks is replaced by stand-ins."""
    end = next(k for k, cell in enumerate(cells("04")) if source_of(cell).startswith("## 6 · From here on: torch"))
    program = [source_of(cell) for cell in cells("04")[:end] if cell["cell_type"] == "code"]
    assert len(program) > 8
    subprocess.run([sys.executable, "-c", "\n".join([WITHOUT_TORCH, *program, FACTS])], check=True, timeout=120)


@pytest.mark.parametrize("wrong, picture", [
    (lambda p, q: p, True),                                  # q taken for one-hot
    (lambda p, q: (p >= q) * 1.0, True),                     # keep only what the target likes better
    (lambda p, q: np.ones(len(p)), True),                    # keep everything
    (lambda p, q: np.minimum(p, q), True),                   # the mass that is kept, not the chance
    (lambda p, q: p / q, False),                             # a chance above 1
    (lambda p, q: float(np.minimum(p, q).sum()), False),     # alpha: one number for all tokens
])
def test_accept_chance(wrong, picture):
    rejected(check.accept_chance(wrong), picture)


def softmax_of_what_is_lacking(p, q):
    weights = np.exp(np.maximum(p - q, 0))
    return weights / weights.sum()


def zero_by_zero(p, q):
    with np.errstate(invalid="ignore"):
        return np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()


@pytest.mark.parametrize("wrong, picture", [
    (lambda p, q: p, True),                                  # asks the target anew
    (softmax_of_what_is_lacking, True),
    (lambda p, q: abs(p - q) / abs(p - q).sum() if abs(p - q).sum() else p, True),
    (lambda p, q: np.maximum(p - q, 0), True),               # not normalised
    (lambda p, q: solution.residual(q, p), True),            # p and q swapped
    (lambda p, q: np.eye(len(p))[(p - q).argmax()], True),   # the argmax of what is lacking
    (zero_by_zero, False),
])
def test_residual(wrong, picture):
    rejected(check.residual(wrong), picture)


@pytest.mark.parametrize("wrong", [
    lambda q, chance, correction: q * chance,                                            # rejections are lost
    lambda q, chance, correction: q * chance + (1 - chance) * correction,                # own rejections only
    lambda q, chance, correction: q * chance + correction,                               # as if all were rejected
    lambda q, chance, correction: q * chance + (1 - chance.mean()) * correction,         # tokens counted, not weighed
])
def test_law_of_one_step(wrong):
    rejected(check.law_of_one_step(wrong), picture=True)


def chain_rule(accept=lambda p, q, x: min(1.0, float(p[x] / q[x])), correction=rules.residual, row=0):
    def rule(tree, target_probs, dice):
        for k, x in enumerate(tree.tokens):
            p, q = target_probs[k], tree.draft_probs[k - 1]
            if not dice.accept(accept(p, q, x)):
                return Verdict(list(range(k)), dice.draw(correction(p, q)), bonus=False)
        return Verdict(list(range(len(tree))), dice.draw(target_probs[len(tree) - row]), bonus=True)
    return rule


def never_accepts(tree, target_probs, dice):
    return Verdict([], dice.draw(target_probs[0]), bonus=False)


@pytest.mark.parametrize("wrong, picture", [
    (chain_rule(accept=lambda p, q, x: 1.0), True),                                      # everything is kept
    (chain_rule(correction=lambda p, q: p), True),                                       # the residual is p
    (chain_rule(row=1), True),                                                           # the bonus of the row before
    (never_accepts, False),                                                              # exact, and no use
    (rules.Match(), False),                                                              # exact, and keeps less
])
def test_token_rule(wrong, picture):
    rejected(check.token_rule(wrong), picture)
