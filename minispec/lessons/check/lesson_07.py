"""Checks of lesson 07, trees: mask and positions from parents, second chances at a node, expected tokens of a shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from ...analysis.shapes import tree_tokens as expected
from ...decoding.dice import Dice, EnumeratingDice
from ...decoding.tree import CHOSEN, TokenTree
from ...viz import law_bars, mask_faults, tree_view
from .base import Wrong, judged

NEAR = 1e-9
TYPED = {                                                # parents: (which rows each row sees, depth of each row)
    (): (["x"], [0]),
    (-1, 0, 1): (["x...", "xx..", "xxx.", "xxxx"], [0, 1, 2, 3]),
    (-1, -1, -1): (["x...", "xx..", "x.x.", "x..x"], [0, 1, 1, 1]),
    (-1, -1, 0, 1, 2): (["x.....", "xx....", "x.x...", "xx.x..", "x.x.x.", "xx.x.x"], [0, 1, 1, 2, 2, 3]),
}


def shapes() -> Iterator[tuple[tuple[int, ...], list[list[bool]], list[int]]]:
    """(parents, mask, depths): typed by hand first, then random ones by the library."""
    for parents, (rows, depths) in TYPED.items():
        yield parents, [[cell == "x" for cell in row] for row in rows], depths
    dice = random.Random(7)
    for _ in range(30):
        parents = tuple(dice.randint(-1, node - 1) for node in range(dice.randint(1, 9)))
        tree = tree_of(parents)
        yield parents, tree.mask().tolist(), tree.depths().tolist()


def tree_of(parents: Sequence[int]) -> TokenTree:
    return TokenTree(tuple(range(len(parents))), tuple(parents), origin=CHOSEN)


def node_name(tokens: Sequence[int]) -> str:
    return f"node {tokens[0]}"


@judged
def tree_mask(function: Callable[[Sequence[int]], Sequence[Sequence[bool]]]) -> Iterator[Wrong]:
    """parents (N,) -> who sees whom, (1 + N, 1 + N)."""
    for parents, right, _ in shapes():
        got = [[bool(cell) for cell in row] for row in function(parents)]
        if got == right:
            continue
        if [len(row) for row in got] != [len(right)] * len(right):
            yield Wrong(f"For parents {parents} it gives {len(got)} rows; a pass has {len(right)} rows and columns: "
                        f"the root, then the nodes.")
        else:
            row = next(r for r in range(len(right)) if got[r] != right[r])
            yield Wrong(f"For parents {parents} row {row} sees the rows {seen(got[row])}, expected {seen(right[row])}.",
                        mask_faults(tree_of(parents), got), "Your mask, with the cells that are wrong")


def seen(row: Sequence[bool]) -> list[int]:
    return [column for column, sees in enumerate(row) if sees]


@judged
def tree_positions(function: Callable[[Sequence[int], int], Sequence[int]]) -> Iterator[Wrong]:
    """(parents (N,), position of the root) -> position of each row, (1 + N,)."""
    for base, (parents, _, depths) in zip([7, 10, 0, 3, *range(30)], shapes()):
        got, right = [int(place) for place in function(parents, base)], [base + depth for depth in depths]
        if got != right:
            row = next((r for r, (a, b) in enumerate(zip(got, right)) if a != b), len(right) - 1)
            yield Wrong(f"For parents {parents} and a root at position {base} it gives {got}, expected {right}. "
                        f"Siblings share a position: each could come next.",
                        tree_view(tree_of(parents), node_name, row - 1, base=base),
                        "The tree with the right positions; the first row that you have otherwise is lit")


@judged
def second_chances(function: Callable[[Tensor, Tensor, Sequence[int], Dice], tuple]) -> Iterator[Wrong]:
    """(p (V,), q (V,), the children's tokens, dice) -> (index of the accepted child or None, what is left of p)."""
    half = torch.tensor([0.5, 0.5]).double()
    cases = [(half, torch.tensor([0.75, 0.25]).double(), 1), (half, half, 2)]
    generator = torch.Generator().manual_seed(7)
    for k in (1, 2, 2, 3):
        p, q = torch.rand(2, 3, generator=generator, dtype=torch.float64) + 0.05
        cases.append((p / p.sum(), q / q.sum(), k))
    for p, q, k in cases:
        law, accepted = law_at_a_node(function, p, q, k)
        best = law_at_a_node(recursive, p, q, k)[1]
        case = f"With p = {short(p)}, q = {short(q)} and {k} children"
        if not max(abs(a - b) for a, b in zip(law, p.tolist())) <= NEAR:
            yield Wrong(f"{case} the emitted token has the law {short(law)}, expected p itself.",
                        law_bars(p.tolist(), law, name="yours"), "The law of the emitted token against p")
        if not abs(accepted - best) <= NEAR:
            yield Wrong(f"{case} the law is right, but a child is accepted with probability {accepted:.4f}, not "
                        f"{best:.4f}.")


def law_at_a_node(judge: Callable, p: Tensor, q: Tensor, k: int) -> tuple[list[float], float]:
    """(law of the token that comes out of one node, P(a child is accepted)), over all ways to draw and to judge."""
    law, accepted = [0.0] * len(p), 0.0
    for tokens in product(range(len(p)), repeat=k):
        drawn = float(q[list(tokens)].prod())

        def run(dice: Dice) -> tuple[int | None, int]:
            child, left = judge(p.clone(), q.clone(), list(tokens), dice)
            return child, dice.draw(left) if child is None else tokens[child]

        for chance, (child, token) in EnumeratingDice().branches(run):
            law[token] += drawn * chance
            accepted += drawn * chance * (child is not None)
    return law, accepted


def recursive(p: Tensor, q: Tensor, tokens: Sequence[int], dice: Dice) -> tuple[int | None, Tensor]:
    """The library's own step, rules.Recursive.judge, for one node."""
    from ...decoding.rules import Recursive
    tree = TokenTree(tuple(tokens), (-1,) * len(tokens), {-1: q})
    return Recursive().judge(tree, -1, p, dice)


def short(law: Sequence[float]) -> str:
    return "(" + ", ".join(f"{float(x):.2f}" for x in law) + ")"


@judged
def tree_tokens(function: Callable[[Sequence[float], Sequence[int]], float]) -> Iterator[Wrong]:
    """(acceptance by child, parents (N,)) -> expected tokens a round."""
    typed = [([0.5], (), 1.0), ([0.5], (-1, 0), 1.75), ([0.5, 0.25], (-1, -1), 1.75),
             ([0.5, 0.25], (-1, -1, 0, 0), 2.125), ([0.6, 0.2], (-1, -1, 1), 1.92), ([0.5], (-1, -1), 1.5)]
    dice = random.Random(8)
    drawn = [([0.6, 0.2, 0.1], parents) for parents, _, _ in shapes()]
    drawn += [([dice.random() / 3 for _ in range(3)], parents) for parents, _, _ in shapes()]
    for acceptance, parents, right in [*typed, *((p, parents, expected(p, parents)) for p, parents in drawn)]:
        got = function(list(acceptance), parents)
        if not abs(got - right) <= NEAR:
            yield Wrong(f"For acceptance {short(acceptance)} and parents {parents} it gives {got:.4f}, expected "
                        f"{right:.4f}. In the picture each node carries the chance that it is accepted.",
                        tree_view(tree_of(parents), lambda tokens: f"{reach(acceptance, parents)[tokens[0]]:.3f}"),
                        "The tree, with the chance that each node is accepted")


def reach(acceptance: Sequence[float], parents: Sequence[int]) -> list[float]:
    """P(node accepted) for each node: what the node adds to the expected tokens."""
    return [expected(acceptance, parents[:node + 1]) - expected(acceptance, parents[:node])
            for node in range(len(parents))]
