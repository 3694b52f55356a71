"""A tree of proposed tokens. A chain is a tree with one branch, so one verification path serves both.

Node i holds one token; parents[i] is the node before it, -1 meaning the last committed token (the root, which is not
stored). Parents stand before their children, and siblings stand in the order in which they were chosen: rules depend on it.

A pass over the tree feeds 1 + N rows: row 0 is the last committed token, row i + 1 is node i. Row r may attend to
everything committed, to itself and to its ancestors; its position is that of the root plus its *depth* (siblings share a
position). That is all there is to tree attention (Miao et al. 2023, 2305.09781, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

ROOT = -1
SAMPLED = "sampled"                                           # each child drawn from q at its parent (with replacement)
WITHOUT_REPLACEMENT = "sampled_without_replacement"           # siblings drawn one after another from what q has left
CHOSEN = "chosen"                                             # picked by any rule that doesn't look at the target's dice
ORIGINS = (SAMPLED, WITHOUT_REPLACEMENT, CHOSEN)


@dataclass(frozen=True)
class TokenTree:
    """tokens (N,), parents (N,), draft_probs {node with children: q (V,)}, origin: how children were chosen.

    Two trees are equal if tokens, parents and origin are.
    """
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    draft_probs: dict[int, Tensor] = field(default_factory=dict, compare=False)
    origin: str = SAMPLED

    def __post_init__(self):
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if any(not ROOT <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError(f"parents must stand before their children (-1 is the root), got {self.parents}")
        if self.origin not in ORIGINS:
            raise ValueError(f"unknown origin {self.origin!r}: choose from {', '.join(ORIGINS)}")

    @classmethod
    def chain(cls, tokens: Sequence[int], draft_probs: Sequence[Tensor] = (), origin: str = SAMPLED) -> TokenTree:
        """One branch: tokens[k] follows tokens[k-1]; draft_probs[k] (V,) is the q that tokens[k] came from."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), {k - 1: q for k, q in enumerate(draft_probs)}, origin)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self) - 1))

    def children(self, node: int) -> list[int]:
        """The children of a node (ROOT for the root) in the order they were chosen."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`. path(ROOT) is []."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def depth_first(self) -> list[int]:
        """All nodes in drawing order: each stands right before its own subtree, siblings in the order chosen."""
        order, waiting = [], self.children(ROOT)[::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += self.children(order[-1])[::-1]
        return order

    def draw(self, labels: Sequence[object] | None = None) -> str:
        """The tree in plain characters, one node a line; labels (N,), default: the tokens.

        Example: print(TokenTree((5, 7, 2, 9), (-1, -1, 0, 0)).draw("abcd"))
            |- a
            |  |- c
            |  `- d
            `- b
        """
        labels, lines = self.tokens if labels is None else labels, []
        for node in self.depth_first():
            last = [step == self.children(self.parents[step])[-1] for step in self.path(node)]
            bars = "".join("   " if end else "|  " for end in last[:-1])
            lines.append(f"{bars}{'`- ' if last[-1] else '|- '}{labels[node]}")
        return "\n".join(lines)

    __str__ = draw

    def depths(self) -> Tensor:
        """Depth of each row of a pass, (1 + N,) int64: 0 for the root, 1 for its children."""
        return _geometry(self.parents)[0]

    def mask(self) -> Tensor:
        """Ancestor-or-self mask of a pass, (1 + N, 1 + N) bool: row r may attend to row c."""
        return _geometry(self.parents)[1]


def uniform_parents(branching: Sequence[int]) -> tuple[int, ...]:
    """Parents of the tree in which every node of depth d has branching[d] children, one depth after another.

    Raises ValueError unless all are whole numbers >= 1. Example: uniform_parents([2, 1]) == (-1, -1, 0, 1).
    """
    if not all(isinstance(count, int) and count >= 1 for count in branching):
        raise ValueError(f"branching must hold whole numbers >= 1, one for each depth, got {branching}")
    parents, level = [], [ROOT]
    for count in branching:
        start = len(parents)
        parents += [node for node in level for _ in range(count)]
        level = range(start, len(parents))
    return tuple(parents)


@lru_cache(maxsize=64)
def _geometry(parents: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Depths and mask, built once for each shape. A row sees what its parent sees, and itself."""
    with torch.inference_mode(False):
        rows = len(parents) + 1
        depths, mask = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, rows, dtype=torch.bool)
        mask[0, 0] = True
        for node, parent in enumerate(parents):
            row, above = node + 1, parent + 1
            mask[row] = mask[above]
            mask[row, row] = True
            depths[row] = depths[above] + 1
        return depths, mask
