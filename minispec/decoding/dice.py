"""The dice: the only door through which randomness enters.

Drafters and rules never touch a global generator; they ask the dice two questions:

    accept(prob) -> bool     a coin that is True with probability `prob`
    draw(probs)  -> token    a token with probability probs[token]

`SeededDice` answers from one seeded CPU generator, so a CPU and a GPU run take the same tokens. `EnumeratingDice` takes
*every* answer in turn and knows its probability: running the real loop under it gives the loop's exact output law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class Outcome(NamedTuple):
    """One throw, for the trace. `chance` is the probability of True, or of the token drawn; u the uniform behind it."""
    kind: str                    # "accept" or "draw"
    chance: float
    result: int                  # 1 or 0 for a coin; a token id for a draw
    u: float | None = None       # None where every branch is visited


class Dice:
    """Base of all dice: subclasses answer; `outcomes` collects what was thrown since it was last taken."""

    def __init__(self):
        self.outcomes: list[Outcome] = []

    def accept(self, prob: float) -> bool:
        """Raises ValueError for NaN."""
        raise NotImplementedError

    def draw(self, probs: Tensor) -> int:
        """probs: (V,), on any device, need not sum to exactly one."""
        raise NotImplementedError

    def take_outcomes(self) -> list[Outcome]:
        taken, self.outcomes = self.outcomes, []
        return taken


class SeededDice(Dice):
    """Reproducible dice. The same seed gives the same throws; no global random state is read or written."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.generator = torch.Generator(device="cpu").manual_seed(seed)

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def accept(self, prob: float) -> bool:
        prob, u = _no_nan(prob), self.uniform()
        self.outcomes.append(Outcome("accept", prob, int(u < prob), u))
        return u < prob                                        # u < 1 always: probability 1 never fails, 0 never passes

    def draw(self, probs: Tensor) -> int:
        """Inverse CDF: the first token whose cumulated probability exceeds u. A token of probability 0 is never drawn."""
        cdf = probs.to("cpu", torch.float64).cumsum(0)         # (V,)
        u, total = self.uniform(), float(cdf[-1])
        if not 0 < total < float("inf"):
            raise ValueError(f"cannot draw from probabilities that sum to {total}")
        token = int(torch.searchsorted(cdf, min(u * total, total * (1 - 2**-53)), right=True))
        chance = float(cdf[token] - (cdf[token - 1] if token else 0.0)) / total
        self.outcomes.append(Outcome("draw", chance, token, u))
        return token


class EnumeratingDice(Dice):
    """Dice that take every branch. Use through `branches`, which replays `run` once for each complete branch."""

    def __init__(self):
        super().__init__()
        self._path: list[tuple[list[tuple[float, int]], int]] = []     # (options with a probability > 0, which one now)
        self._depth = 0

    def branches(self, run: Callable[[Dice], Result]) -> Iterator[tuple[float, Result]]:
        """Yield (probability, run(dice)) for every way the dice can fall. `run` must depend on nothing but the dice.

        Example: list(EnumeratingDice().branches(lambda dice: dice.accept(0.25))) == [(0.25, True), (0.75, False)]
        """
        self._path = []
        while True:
            self._depth, self.outcomes = 0, []
            result = run(self)
            probability = 1.0
            for options, chosen in self._path:
                probability *= options[chosen][0]
            yield probability, result
            while self._path and self._path[-1][1] + 1 == len(self._path[-1][0]):
                self._path.pop()                                       # this choice is exhausted: go back
            if not self._path:
                return
            options, chosen = self._path[-1]
            self._path[-1] = (options, chosen + 1)

    def _choose(self, kind: str, options: list[tuple[float, int]]) -> int:
        options = [(chance, result) for chance, result in options if chance > 0]
        if self._depth == len(self._path):
            self._path.append((options, 0))
        if self._path[self._depth][0] != options:
            raise RuntimeError("the run asked the dice something else on replay: it depends on more than the dice")
        chance, result = options[self._path[self._depth][1]]
        self._depth += 1
        self.outcomes.append(Outcome(kind, chance, result))
        return result

    def accept(self, prob: float) -> bool:
        prob = min(1.0, max(0.0, _no_nan(prob)))
        return bool(self._choose("accept", [(prob, 1), (1 - prob, 0)]))

    def draw(self, probs: Tensor) -> int:
        total = float(probs.sum())
        if not 0 < total < float("inf"):
            raise ValueError(f"cannot draw from probabilities that sum to {total}")
        return self._choose("draw", [(chance / total, token) for token, chance in enumerate(probs.tolist())])


def _no_nan(prob: float) -> float:
    """Comparisons with NaN are all False: a rule that divided 0 by 0 would just reject, and nobody would know."""
    if prob != prob:
        raise ValueError(f"the chance of a coin is {float(prob)}")
    return float(prob)
