"""Lesson 04, solved: accept, residual, one step by enumeration, and the whole rule. The first three need numpy only."""

import numpy as np


def accept_chance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The chance to keep each drafted token. p, q (V,), every q(x) > 0 -> (V,)."""
    return np.minimum(1, p / q)


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The law of the correction: what p still lacks after acceptance, normalised. p, q (V,) -> (V,).

    Where p equals q nothing is lacking, and a rejection has probability 0: p itself, never 0 / 0.
    """
    lacking = np.maximum(p - q, 0)
    return lacking / lacking.sum() if lacking.sum() > 0 else p


def law_of_one_step(q: np.ndarray, chance: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """The law of the token that comes out, summed over every way one step can go. All (V,) -> (V,)."""
    law = np.zeros(len(q))
    for x in range(len(q)):                                  # x is drafted with probability q[x]
        law[x] += q[x] * chance[x]                           # and kept
        for y in range(len(q)):
            law[y] += q[x] * (1 - chance[x]) * correction[y]             # or replaced by y
    return law


def token_rule(tree, target_probs, dice):
    """rules.Token for a chain: tree.tokens (N,), target_probs (1 + N, V) -> Verdict."""
    from minispec.decoding import Verdict, rules

    for k, x in enumerate(tree.tokens):
        p, q = target_probs[k], tree.draft_probs[k - 1]
        if not dice.accept(min(1.0, float(p[x] / q[x]))):
            return Verdict(list(range(k)), dice.draw(rules.residual(p, q)), bonus=False)
    return Verdict(list(range(len(tree))), dice.draw(target_probs[-1]), bonus=True)
