"""Which tree to draft: the shape that a measured acceptance asks for (Sequoia, Chen et al. 2402.12374, section 4).

Acceptance by child, p[b]: how often child b (0 = the first) of a reached node is the one that gets accepted. It belongs
to one pair of models, one rule and one way of choosing children; measure it with the rule you will use. If it were the
same everywhere, a node would be accepted with the product of p along its path, and a tree would yield

    tokens_per_pass = 1 + sum over nodes of that product         (1: the target's own token)

`best_tree` maximises that for a given number of nodes, `best_size` picks the number that the clock likes best.
A shape is a tuple of parents, as in TokenTree; drafters.TreeDrafter(draft, parents=...) fills it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..decoding.trace import Trace
from ..decoding.tree import ROOT, TokenTree
from .theory import VerifyCurve, flat


Search = Callable[[int, int, int], tuple[float, int]]


class Shape(NamedTuple):
    """parents (N,), and what theory expects of it: tokens a round, and the speedup where costs were given."""
    parents: tuple[int, ...]
    tokens_per_pass: float
    speedup: float | None = None

    @property
    def depth(self) -> int:
        return int(TokenTree((0,) * len(self.parents), self.parents).depths().max())


def child_acceptance(*traces: Trace) -> tuple[list[float], list[int]]:
    """(p, reached): how often child b of a reached node was accepted, and how often one had a child b: the sample size.

    Not all nodes have equally many children, so p[b] = P(child b | no elder one) P(no elder one), each from the nodes
    that can tell; where all have equally many this is accepted / reached. So p sums to 1 at most, as best_tree asks.
    Nodes past a cut (a stop, the budget) don't count: what was decided there is not in what the reader got.
    """
    reached: list[int] = []
    asked: list[int] = []                                         # child b was there, and no elder one was accepted
    accepted: list[int] = []
    for r in (r for trace in traces for r in trace.rounds):
        path = r.path[:len(r.emitted)]
        for node, taken in zip([ROOT, *path], path if r.cut else [*path, None]):
            children = r.tree.children(node)
            for b, child in enumerate(children):
                if b == len(reached):
                    for count in (reached, asked, accepted):
                        count.append(0)
                reached[b] += 1
                asked[b] += taken not in children[:b]
                accepted[b] += child == taken
    p, no_elder = [], 1.0
    for a, n in zip(accepted, asked):
        p.append(no_elder * a / n if n else 0.0)
        no_elder -= p[-1]
    return p, reached


def tree_tokens(acceptance: Sequence[float], parents: Sequence[int]) -> float:
    """Expected tokens a round of any shape, (N,) parents. Children past the end of `acceptance` are never accepted.

    Example: tree_tokens([0.5, 0.25], (-1, -1, 0)) == 1 + 0.5 + 0.25 + 0.5 * 0.5.
    """
    _check(acceptance)
    reach, born = {ROOT: 1.0}, dict.fromkeys(range(ROOT, len(parents)), 0)       # P(node accepted), children so far
    for node, parent in enumerate(parents):
        b, born[parent] = born[parent], born[parent] + 1
        reach[node] = reach[parent] * (acceptance[b] if b < len(acceptance) else 0.0)
    return sum(reach.values())


def best_tree(acceptance: Sequence[float], nodes: int, max_depth: int | None = None,
              max_width: int | None = None) -> Shape:
    """The tree of at most `nodes` nodes with the most expected tokens, by dynamic programming.

    max_width: children of one node (never more than len(acceptance)). Nodes that add nothing are left out.
    Raises ValueError for an acceptance that is no list of probabilities, or sums to more than 1.
    """
    _check(acceptance)
    return _tree(_search(list(acceptance)[:max_width]), nodes, nodes if max_depth is None else max_depth, acceptance)


def _search(p: list[float]) -> Search:
    """The recursion, with its memory: best(nodes, depth, b) -> (value, size).

    With `nodes` nodes for child b, its younger siblings and all below them, in `depth` depths: the most tokens that can
    be accepted there, and the size of child b's subtree in doing so (0: there is no child b).
    """
    @lru_cache(maxsize=None)
    def best(nodes: int, depth: int, b: int) -> tuple[float, int]:
        options = [(0.0, 0)]
        if depth > 0 and b < len(p):
            for size in range(1, nodes + 1):
                below, beside = best(size - 1, depth - 1, 0)[0], best(nodes - size, depth, b + 1)[0]
                options.append((p[b] * (1 + below) + beside, size))
        return max(options, key=lambda option: (option[0], -option[1]))

    return best


def _tree(best: Search, nodes: int, depth: int, acceptance: Sequence[float]) -> Shape:
    """Read the best tree off the recursion, one depth after another."""
    parents: list[int] = []
    waiting = deque([(ROOT, nodes, depth)])                       # (node, nodes below it, depths below it)
    while waiting:
        node, left, depth = waiting.popleft()
        b = 0
        while size := best(left, depth, b)[1]:
            parents.append(node)
            waiting.append((len(parents) - 1, size - 1, depth - 1))
            left, b = left - size, b + 1
    return Shape(tuple(parents), tree_tokens(acceptance, parents))


def best_first(acceptance: Sequence[float], nodes: int, max_depth: int | None = None,
               max_width: int | None = None) -> Shape:
    """The same optimum where no child is accepted more often than an elder sibling: take the likeliest node next.

    A node opens two others, its first child and its next sibling, neither likelier than itself: so nothing better is
    ever hidden behind something worse. The first n nodes are therefore the best tree of n nodes, for every n.
    """
    p, depth_limit = list(acceptance)[:max_width], nodes if max_depth is None else max_depth
    _check(acceptance)
    parents: list[int] = []
    heap: list[tuple[float, int, int, int, float]] = []           # (-P(accepted), depth, parent, b, P(parent accepted))

    def offer(parent: int, b: int, depth: int, reach: float) -> None:
        if b < len(p) and depth <= depth_limit and reach * p[b] > 0:
            heapq.heappush(heap, (-reach * p[b], depth, parent, b, reach))

    offer(ROOT, 0, 1, 1.0)
    while heap and len(parents) < nodes:
        minus, depth, parent, b, reach = heapq.heappop(heap)
        parents.append(parent)
        offer(len(parents) - 1, 0, depth + 1, -minus)
        offer(parent, b + 1, depth, reach)
    return Shape(tuple(parents), tree_tokens(p, parents))


def best_size(acceptance: Sequence[float], cost: float, verify: VerifyCurve = flat,
              sizes: Iterable[int] = (1, 2, 4, 8, 16, 32, 64), max_depth: int = 16,
              max_width: int | None = None) -> Shape:
    """The shape with the highest predicted speedup, E[tokens] / (depth * c + v(1 + nodes)), over all sizes and depths.

    cost:   c, one draft pass in units of a one-token target pass. A tree takes one for each depth, however wide: so
            measure c at the width you will draft with.
    verify: v(k), a target pass over k tokens in the same unit.
    The empty shape, with speedup 1, means that no tree of these sizes pays.
    """
    _check(acceptance)
    best, search = Shape((), 1.0, 1.0), _search(list(acceptance)[:max_width])
    for size in sizes:
        for depth in range(1, min(size, max_depth) + 1):
            shape = _tree(search, size, depth, acceptance)
            speedup = shape.tokens_per_pass / (shape.depth * cost + verify(1 + len(shape.parents)))
            if speedup > best.speedup:
                best = shape._replace(speedup=speedup)
    return best


def _check(acceptance: Sequence[float]) -> None:
    if not acceptance or not all(0 <= p <= 1 for p in acceptance) or sum(acceptance) > 1 + 1e-9:
        raise ValueError(f"acceptance must be probabilities of children that exclude each other, got {acceptance}")
