"""Solutions to the exercises of lesson 08, better verifiers."""

from collections.abc import Sequence

from torch import Tensor

from minispec.decoding import Dice, TokenTree, Verdict
from minispec.decoding.tree import ROOT


def keep_masses(ratios: Sequence[float]) -> list[float]:
    """[P_1, ..., P_n]: cut to 1 at every step, for a surplus can't be saved for later."""
    masses, mass = [], 1.0
    for ratio in ratios:
        mass = min(1.0, mass * ratio)
        masses.append(mass)
    return masses


def longest_kept(chances: Sequence[float], dice: Dice) -> int:
    """Throw every coin; the largest that falls right counts, whatever the shorter ones did."""
    passed = [i for i, chance in enumerate(chances, 1) if dice.accept(chance)]
    return max(passed, default=0)


def match(tree: TokenTree, target_probs: Tensor, dice: Dice) -> Verdict:
    """One draw of the target's a node: go on where a child holds it, stop where none does."""
    node, path = ROOT, []
    while True:
        y = dice.draw(target_probs[node + 1])
        same = [child for child in tree.children(node) if tree.tokens[child] == y]
        if not same:
            return Verdict(path, y, bonus=not tree.children(node))
        node = same[0]
        path.append(node)


def typical_law(p: Tensor, q: Tensor, bar: float) -> Tensor:
    """What q proposes and p finds likely enough stays; all other mass goes to p's likeliest token. (V,)"""
    law = q * (p > bar)
    law[p.argmax()] += 1 - law.sum()
    return law
