"""Language-model drafters that propose trees: second and third guesses, judged in the same target pass.

A chain is lost at its first wrong token. A tree keeps other candidates open, for more rows in the target's pass and
wider (not more) passes of the draft: one for each depth, over all nodes that will have children.

    TreeDrafter          a fixed shape, filled with drawn or chosen tokens (SpecInfer 2305.09781, Sequoia 2402.12374)
    DynamicTreeDrafter   the shape follows the draft's confidence (EAGLE-2, 2406.16858)

The draft's cache holds its own rows of the tree, in the order in which they were fed. A node without children is never
fed; where such a node is accepted, the cache lags by one as after a chain's full acceptance (see lm.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.request import as_batch
from ..decoding.sampling import Sampling
from ..decoding.tree import CHOSEN, ROOT, SAMPLED, WITHOUT_REPLACEMENT, TokenTree, uniform_parents
from ..model.gpt import GPT
from .lm import LMDrafter


class Growth:
    """A tree while it grows. rows {node: its place among the tree's rows in the draft's cache}, in order of feeding."""

    def __init__(self):
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.draft_probs: dict[int, Tensor] = {}                 # {fed node or ROOT: q (V,)}
        self.rows: dict[int, int] = {}

    def add(self, parent: int, token: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def path(self, node: int) -> list[int]:
        return TokenTree(tuple(self.tokens), tuple(self.parents)).path(node)

    def keep(self, nodes: list[int]) -> None:
        """Drop all other nodes and number these anew. `nodes` must hold the parent of each of them."""
        new = {ROOT: ROOT} | {node: k for k, node in enumerate(nodes)}
        self.tokens, parents = [self.tokens[node] for node in nodes], [self.parents[node] for node in nodes]
        self.parents = [new[parent] for parent in parents]
        self.draft_probs = {new[node]: q for node, q in self.draft_probs.items() if node in parents}
        self.rows = {new[node]: row for node, row in self.rows.items() if node in new}


class GrowingDrafter(LMDrafter):
    """What all tree drafters share. A subclass sets `origin`, and `grow` fills a tree of at most `depth` depths."""

    origin: str

    def grow(self, tree: Growth, dice: Dice, depth: int) -> None:
        raise NotImplementedError

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        super().start(prompt, sampling)
        self.rows: dict[int, int] = {}

    def propose(self, dice: Dice, room: int) -> TokenTree:
        tree = Growth()
        self.grow(tree, dice, self.reach(room))
        self.proposed, self.rows = tuple(tree.tokens), tree.rows
        return TokenTree(self.proposed, tuple(tree.parents), tree.draft_probs, self.origin)

    def feed(self, tree: Growth, nodes: list[int]) -> Tensor:
        """One draft pass over nodes of one depth -> q after each, (F, V). [ROOT]: over what the cache has yet to read.

        Tree attention as in the target's pass: a node sees what is committed and its own path; its depth is its place.
        """
        if nodes == [ROOT]:
            logits = self.draft(as_batch(self.ids[self.cache.length:], self.draft), self.cache)[:, -1:]      # (1, 1, V)
        else:
            tree.rows |= {node: len(tree.rows) + k for k, node in enumerate(nodes)}
            paths = [tree.path(node) for node in nodes]
            mask = torch.tensor([[fed in path for fed in tree.rows] for path in paths])                      # (F, K)
            positions = torch.tensor([len(self.ids) - 1 + len(path) for path in paths])                      # (F,)
            logits = self.draft(as_batch([tree.tokens[node] for node in nodes], self.draft), self.cache,
                                positions=positions.to(self.draft.device), mask=mask.to(self.draft.device))  # (1, F, V)
        probs = self.sampling.probs(logits[0]).cpu()                                                         # (F, V)
        tree.draft_probs |= zip(nodes, probs)
        return probs

    def commit(self, verdict: Verdict) -> None:
        base = min(self.cache.length, len(self.ids))             # the rows before the tree's
        self.cache.keep(base, [self.rows[node] for node in verdict.path if node in self.rows])
        self.rows = {}
        super().commit(verdict)


class TreeDrafter(GrowingDrafter):
    """Fills one fixed shape in every round.

    branching: children of every node, depth by depth; or instead
    parents:   any shape, as in TokenTree (analysis.best_tree finds one).
    origin:    "sampled": children drawn from q independently, so that siblings may hold the same token;
               "sampled_without_replacement": each drawn from what its elder siblings left of q (the order and the law
               of Gumbel-top-k); "chosen": the likeliest tokens, the lower id first on a tie.
    sampling:  default: the target's own; for "chosen" temperature 1, since a one-hot q has no second choice to rank.
    Raises ValueError for a shape without nodes or out of order, and for an unknown origin.
    """

    def __init__(self, draft: GPT, branching: Sequence[int] = (3, 2, 1, 1), *, parents: Sequence[int] | None = None,
                 origin: str = SAMPLED, sampling: Sampling | None = None):
        parents = uniform_parents(branching) if parents is None else tuple(parents)
        shape = TokenTree((0,) * len(parents), parents, origin=origin)       # refuses bad parents and origins
        if not parents:
            raise ValueError("a tree needs at least one node: decode without a drafter instead")
        super().__init__(draft, int(shape.depths().max()), sampling or (Sampling() if origin == CHOSEN else None))
        self.max_nodes = self.spare = len(parents)
        self.origin, self.children = origin, {place: shape.children(place) for place in range(ROOT, len(parents))}

    def grow(self, tree: Growth, dice: Dice, depth: int) -> None:
        level, place = [ROOT], {ROOT: ROOT}                      # place: where in the shape a node stands
        for _ in range(depth):
            inner = [node for node in level if self.children[place[node]]]
            if not inner:
                return
            level = []
            for node, q in zip(inner, self.feed(tree, inner)):
                places = self.children[place[node]]
                for token, where in zip(pick(q, len(places), self.origin, dice), places):
                    level.append(tree.add(node, token))
                    place[level[-1]] = where


class DynamicTreeDrafter(GrowingDrafter):
    """Grows where the draft is sure: at each depth the `width` likeliest nodes get their `width` likeliest children,
    and in the end the `nodes` likeliest of all are kept. Likely: product of q from the root, a guess at P(accepted).

    sampling: default: temperature 1. Raises ValueError unless all three sizes are whole numbers >= 1.
    """

    origin = CHOSEN

    def __init__(self, draft: GPT, nodes: int = 16, depth: int = 6, width: int = 4, sampling: Sampling | None = None):
        for name, value in dict(nodes=nodes, depth=depth, width=width).items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
        super().__init__(draft, depth, sampling or Sampling())
        self.max_nodes, self.width, self.spare = nodes, width, width * depth

    def grow(self, tree: Growth, dice: Dice, depth: int) -> None:
        level, score = [ROOT], {ROOT: 1.0}
        for _ in range(depth):
            frontier = self.best(level, score, self.width)
            level = []
            for node, q in zip(frontier, self.feed(tree, frontier)):
                for token in pick(q, self.width, CHOSEN, dice):
                    level.append(tree.add(node, token))
                    score[level[-1]] = score[node] * float(q[token])
        tree.keep(self.best(range(len(tree.tokens)), score, self.max_nodes))

    @staticmethod
    def best(nodes: Sequence[int], score: dict[int, float], count: int) -> list[int]:
        """The `count` nodes of highest score, in order of age. On a tie the older node wins: where q is 1 a child
        scores what its parent does, and without its parent it would hang in the air."""
        return sorted(sorted(nodes, key=lambda node: (-score[node], node))[:count])


def pick(q: Tensor, count: int, origin: str, dice: Dice) -> list[int]:
    """Tokens for `count` children in order, from q (V,); fewer where q has no other token of positive probability."""
    if origin == CHOSEN:
        return [token for token in q.sort(descending=True, stable=True).indices[:count].tolist() if q[token] > 0]
    tokens, left = [], q.clone()
    while len(tokens) < count and bool(left.any()):
        tokens.append(dice.draw(left))
        if origin == WITHOUT_REPLACEMENT:
            left[tokens[-1]] = 0
    return tokens
