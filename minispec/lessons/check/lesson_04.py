"""Checks of lesson 04: the chance to accept, the residual, one step by enumeration, the whole rule.

A wrong half of the rule is shown by the law that it leads to, with the other half done right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from ...analysis.prove import CHAINS, prove
from ...decoding import EnumeratingDice, TokenTree, rules
from ...viz import departure_view, law_bars
from .base import Wrong, judged

TABLE = (([0.4, 0.3, 0.2, 0.1], [0.2, 0.2, 0.5, 0.1]), ([0.5, 0.5], [0.75, 0.25]), ([0.6, 0.4, 0.0], [0.1, 0.3, 0.6]),
         ([0.0, 1.0], [0.9, 0.1]))
ROUNDING = 1e-9


def cases() -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs p, q (V,), every q(x) > 0: those of TABLE, then random ones."""
    dice = np.random.default_rng(0)
    drawn = [(dice.dirichlet(np.ones(size)), dice.dirichlet(np.ones(size))) for size in (2, 3, 5, 8) for _ in range(5)]
    return [(np.array(p), np.array(q)) for p, q in TABLE] + drawn


def letters(token: object) -> str:
    return "abcdefgh"[int(token)]


def vector(got: object, size: int) -> tuple[np.ndarray | None, str]:
    """What a function returned as an array (V,), or None and why it is none."""
    try:
        found = np.asarray(got, dtype=float)
    except (TypeError, ValueError):
        return None, f"yours returned a {type(got).__name__}: return an array of {size} numbers"
    if found.shape != (size,):
        return None, f"yours has the shape {found.shape}, it should be ({size},): one number for each token"
    return (found, "") if np.isfinite(found).all() else (None, f"yours holds {found.round(3).tolist()}")


def given(p: np.ndarray, q: np.ndarray) -> str:
    return f"p = {p.round(3).tolist()}, q = {q.round(3).tolist()}"


def right_residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return rules.residual(torch.from_numpy(p), torch.from_numpy(q)).numpy()


def drawn_as(p: np.ndarray, law: np.ndarray, **names: str) -> tuple[str, str]:
    """(picture, alt) of a law against the right one; none where the masses are no law."""
    if law.min() < -ROUNDING:
        return "", ""
    return law_bars(p, law.clip(0), letters, **names), "The law that your answer leads to, against the right one"


@judged
def accept_chance(function: Callable) -> Iterator[Wrong]:
    """function(p, q) -> the chance to keep each token, (V,)."""
    for p, q in cases():
        got, fault = vector(function(p.copy(), q.copy()), len(p))
        right = np.minimum(1, p / q)
        if got is None or got.min() < 0 or got.max() > 1:
            fault = fault or f"a chance lies between 0 and 1, yours gives {got.round(3).tolist()}"
            yield Wrong(f"{given(p, q)}: {fault}.")
        elif abs(got - right).max() > ROUNDING:
            law = q * got + (1 - q @ got) * right_residual(p, q)
            yield Wrong(f"{given(p, q)}: yours gives {got.round(3).tolist()}, right is {right.round(3).tolist()}. "
                        f"It keeps {q @ got:.3f} of the drafts, {q @ right:.3f} can be kept. "
                        f"With the right residual yours leads to this law:", *drawn_as(p, law))


@judged
def residual(function: Callable) -> Iterator[Wrong]:
    """function(p, q) -> the law of the correction, (V,)."""
    same = np.array([0.5, 0.25, 0.25])
    for p, q in [*cases(), (same, same.copy())]:
        got, fault = vector(function(p.copy(), q.copy()), len(p))
        right, kept = right_residual(p, q), np.minimum(p, q)
        if got is None:
            hint = " Where p equals q nothing is left over: return p." if np.array_equal(p, q) else ""
            yield Wrong(f"{given(p, q)}: {fault}.{hint}")
        elif abs(got - right).max() > ROUNDING:
            yield Wrong(f"{given(p, q)}: yours gives {got.round(3).tolist()}, right is {right.round(3).tolist()}. "
                        f"With the right acceptance yours leads to this law:",
                        *drawn_as(p, kept + (1 - kept.sum()) * got))


@judged
def law_of_one_step(function: Callable) -> Iterator[Wrong]:
    """function(q, chance, correction) -> the law of the token that comes out, (V,)."""
    dice = np.random.default_rng(1)
    for p, q in cases():
        for chance, correction in ((np.minimum(1, p / q), right_residual(p, q)),
                                   (dice.random(len(p)), dice.dirichlet(np.ones(len(p))))):
            got, fault = vector(function(q.copy(), chance.copy(), correction.copy()), len(q))
            right = enumerated(q, chance, correction)
            case = (f"q = {q.round(3).tolist()}, chance = {chance.round(3).tolist()}, "
                    f"correction = {correction.round(3).tolist()}")
            if got is None:
                yield Wrong(f"{case}: {fault}.")
            elif abs(got - right).max() > ROUNDING:
                yield Wrong(f"{case}: yours sums to {got.sum():.3f} and gives {got.round(3).tolist()}, "
                            f"right is {right.round(3).tolist()}.",
                            *drawn_as(right, got, name="your sum", reference="what is right"))


def enumerated(q: np.ndarray, chance: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """The law of one step, with the library's dice taking every branch. (V,)."""
    laws = torch.from_numpy(q), torch.from_numpy(correction)

    def step(dice: EnumeratingDice) -> int:
        x = dice.draw(laws[0])
        return x if dice.accept(chance[x]) else dice.draw(laws[1])

    law = np.zeros(len(q))
    for probability, token in EnumeratingDice().branches(step):
        law[token] += probability
    return law


@judged
def token_rule(function: Callable) -> Iterator[Wrong]:
    """function(tree, target_probs, dice) -> Verdict; chains only."""
    proof = prove(function, shapes=CHAINS)
    if not proof.exact:
        where, *_ = str(proof.departure).splitlines()
        yield Wrong(f"the loop's law is not the target's: {where}.", departure_view(proof),
                    "The law of the next token where the loop departs from the target first")
        return
    got, best = expected_kept(function), expected_kept(rules.Token())
    if got < best - ROUNDING:
        yield Wrong(f"exact, but of a chain of three tokens it keeps {got:.3f} on average, and {best:.3f} can be kept: "
                    f"accept with min(1, p/q), not less.")


def expected_kept(rule: Callable) -> float:
    """E[accepted] on chains of three tokens drawn from one q, against one p at every position."""
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.3, 0.5]).double()

    def play(dice: EnumeratingDice) -> int:
        chain = [dice.draw(q) for _ in range(3)]
        return len(rule(TokenTree.chain(chain, [q] * 3), p.expand(4, 3), dice).path)

    return sum(probability * kept for probability, kept in EnumeratingDice().branches(play))
