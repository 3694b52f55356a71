"""Checks of lesson 08, better verifiers: block masses, the longest prefix that passes, matching, typical acceptance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ...analysis.optimal import acceptance_of
from ...analysis.prove import AnyRule, prove
from ...decoding.dice import Dice, EnumeratingDice
from ...decoding.rules import Match, Typical
from ...decoding.tree import CHOSEN, SAMPLED, TokenTree
from ...viz import departure_view, lines_chart
from .base import Wrong, judged

NEAR = 1e-9


@judged
def keep_masses(function: Callable[[Sequence[float]], Sequence[float]]) -> Iterator[Wrong]:
    """ratios p/q of the drafted tokens -> [P_1, ..., P_n], how surely each prefix may be kept."""
    typed = [([], []), ([0.5, 2.0], [0.5, 1.0]), ([2.0, 0.5], [1.0, 0.5]), ([0.5, 0.5, 8.0], [0.5, 0.25, 1.0]),
             ([4.0, 0.5, 0.5], [1.0, 0.5, 0.25]), ([0.0, 3.0], [0.0, 0.0])]
    dice = random.Random(8)
    drawn = [[dice.uniform(0.2, 2.0) for _ in range(dice.randint(1, 7))] for _ in range(30)]
    for ratios, right in [*typed, *((ratios, masses(ratios)) for ratios in drawn)]:
        got = list(function(list(ratios)))
        if not same(got, right):
            yield Wrong(f"For p/q = {numbers(ratios)} it gives {numbers(got)}, expected {numbers(right)}.",
                        *against(got, right, "tokens in the prefix", "may be kept with", first=1))


def masses(ratios: Sequence[float]) -> list[float]:
    found = [1.0]
    for ratio in ratios:
        found.append(min(1.0, found[-1] * ratio))
    return found[1:]


@judged
def longest_kept(function: Callable[[Sequence[float], Dice], int]) -> Iterator[Wrong]:
    """(chances h_1..h_n, dice) -> the largest i whose coin falls right, 0 if none does."""
    dice = random.Random(9)
    cases = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]
    for chances in [*cases, *([dice.random() for _ in range(dice.randint(1, 4))] for _ in range(15))]:
        right, got = [0.0] * (len(chances) + 1), [0.0] * (len(chances) + 1)
        none_longer = 1.0
        for i, chance in reversed(list(enumerate(chances, 1))):
            right[i], none_longer = none_longer * chance, none_longer * (1 - chance)
        right[0] = none_longer
        for weight, kept in EnumeratingDice().branches(lambda dice: function(list(chances), dice)):
            if kept not in range(len(right)):
                yield Wrong(f"Of {len(chances)} prefixes it keeps number {kept!r}: allowed are 0 to {len(chances)}.")
                return
            got[kept] += weight
        if not same(got, right):
            yield Wrong(f"With the chances {numbers(chances)} it keeps 0, 1, ... tokens with probabilities "
                        f"{numbers(got)}, expected {numbers(right)}. A longer prefix can rescue a shorter one.",
                        *against(got, right, "tokens kept", "probability"))


@judged
def match(function: AnyRule) -> Iterator[Wrong]:
    """A rule (tree, target_probs (1 + N, V), dice) -> Verdict that is exact for chosen tokens."""
    for origin, shapes in ((CHOSEN, [(2, 1)]), (SAMPLED, [(1, 1)])):
        proof = prove(function, origin, shapes)
        if not proof.exact:
            after = " ".join(map(str, proof.departure.prefix)) or "nothing"
            yield Wrong(f"It is not exact for children that were {origin}: after {after} was emitted, the next token "
                        f"has another law than the target's.", departure_view(proof),
                        "The first place where its law departs from the target's")
    generator = torch.Generator().manual_seed(8)
    p, q = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    for k in (1, 2, 3):
        got, right = (acceptance_of(rule, p / p.sum(), q / q.sum(), k, CHOSEN) for rule in (function, Match()))
        if not abs(got - right) <= NEAR:
            yield Wrong(f"It is exact, but of {k} chosen children it accepts one with probability {got:.4f}: the "
                        f"target's own sample is among them with {right:.4f}.")


@judged
def typical_law(function: Callable[[Tensor, Tensor, float], Tensor]) -> Iterator[Wrong]:
    """(p (V,), q (V,), bar) -> the law (V,) of the first token that typical acceptance emits."""
    generator, rule = torch.Generator().manual_seed(9), Typical()
    for size in (2, 3, 3, 5, 8):
        p, q = (1.5 * torch.randn(2, size, generator=generator, dtype=torch.float64)).softmax(-1)
        got, right = [float(x) for x in function(p.clone(), q.clone(), rule.bar(p))], typical_by_rule(rule, p, q)
        if not same(got, right):
            yield Wrong(f"For p = {numbers(p)}, q = {numbers(q)} and a bar of {rule.bar(p):.3f} it gives "
                        f"{numbers(got)}, expected {numbers(right)}.", *against(got, right, "token", "emitted with"))


def typical_by_rule(rule: Typical, p: Tensor, q: Tensor) -> list[float]:
    """The same law from the library's rule, token by token."""
    law = [0.0] * len(p)
    for x, chance in enumerate(q.tolist()):
        verdict = rule(TokenTree.chain([x], [q]), torch.stack([p, p]), EnumeratingDice())
        law[x if verdict.path else verdict.token] += chance
    return law


def same(got: Sequence[float], right: Sequence[float]) -> bool:
    """Equal to rounding; a NaN is equal to nothing."""
    return len(got) == len(right) and all(abs(a - b) <= NEAR for a, b in zip(got, right))


def against(got: Sequence[float], right: Sequence[float], x_label: str, y_label: str,
            first: int = 0) -> tuple[str, str]:
    """(SVG, alt): both as lines over their index. What is missing, or no number, is not drawn."""
    lines = {name: [(i, y) for i, y in enumerate(values, first) if math.isfinite(y)]
             for name, values in (("yours", got), ("right", right))}
    shown = {name: points for name, points in lines.items() if points}
    title = "Yours against the right one"
    return (lines_chart(shown, x_label, y_label, title), title) if shown else ("", "")


def numbers(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{float(value):.3f}" for value in values) + "]"
