"""Solutions to the exercises of lesson 07, trees."""

from collections.abc import Sequence

from torch import Tensor

from minispec.decoding.dice import Dice
from minispec.decoding.rules import residual


def tree_mask(parents: Sequence[int]) -> list[list[bool]]:
    """A row sees what its parent sees, and itself. Row 0 is the root, row i + 1 is node i. -> (1 + N, 1 + N)"""
    rows = len(parents) + 1
    mask = [[False] * rows for _ in range(rows)]
    mask[0][0] = True
    for node, parent in enumerate(parents):
        mask[node + 1] = list(mask[parent + 1])
        mask[node + 1][node + 1] = True
    return mask


def tree_positions(parents: Sequence[int], base: int) -> list[int]:
    """One more than the parent's position. -> (1 + N,)"""
    positions = [base]
    for parent in parents:
        positions.append(positions[parent + 1] + 1)
    return positions


def second_chances(p: Tensor, q: Tensor, tokens: Sequence[int], dice: Dice) -> tuple[int | None, Tensor]:
    """Each child is judged against what the rejected ones before it have left of p. p, q: (V,)."""
    for child, x in enumerate(tokens):
        if dice.accept(min(1.0, float(p[x] / q[x]))):
            return child, p
        p = residual(p, q)
    return None, p


def tree_tokens(acceptance: Sequence[float], parents: Sequence[int]) -> float:
    """A node is accepted if its parent is, and if it is the child that gets accepted there."""
    reached = [1.0]                                              # by row: the root is always reached
    for node, parent in enumerate(parents):
        elder = list(parents[:node]).count(parent)               # siblings before this one
        chance = acceptance[elder] if elder < len(acceptance) else 0.0
        reached.append(reached[parent + 1] * chance)
    return sum(reached)                                          # the root's 1 is the target's own token
