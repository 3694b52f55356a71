"""The KV cache: memory for what attention has already computed, with a length that can move back.

Every position's keys and values are written once and read by all later positions. Speculative decoding writes
positions that may turn out wrong, so two moves matter here:

* `rollback(length)` forgets the tail. Only the length moves: a stale slot is never read (attention sees
  `[:length]`) and the next write overwrites it. O(1), nothing is copied.
* `keep(path)` keeps a *path* of a verified tree: its rows are gathered to the front of the speculative region.

All memory is allocated once, so a generation never reallocates (GPT-2 style absolute positions make a gathered row
valid where it lands: its position is baked into the key, and a path's positions are consecutive).

Left out on purpose: paging, batching of sequences with different lengths, quantised entries.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor


class KVCache:
    """Keys and values of every layer for one batch of equally long sequences.

    keys[l], values[l]: (B, H, M, D) with M = capacity in positions; only `[:, :, :length]` means anything.
    """

    def __init__(self, n_layer: int, n_head: int, head_dim: int, capacity: int, *, batch: int = 1,
                 dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"):
        shape = (batch, n_head, capacity, head_dim)                                  # (B, H, M, D)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(n_layer)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(n_layer)]
        self.capacity = capacity
        self.length = 0

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write T new positions from `start` on; return everything attention may look at.

        keys, values: (B, H, T, D) -> two views (B, H, start + T, D). The length doesn't move: a pass writes all of
        its layers first and then calls `advance` once.
        """
        stop = start + keys.shape[2]
        if stop > self.capacity:
            raise ValueError(f"cache full: positions {start}..{stop - 1} do not fit a capacity of {self.capacity}")
        self.keys[layer][:, :, start:stop] = keys
        self.values[layer][:, :, start:stop] = values
        return self.keys[layer][:, :, :stop], self.values[layer][:, :, :stop]

    def advance(self, count: int) -> None:
        """`count` positions have been written in every layer: they now belong to the sequence."""
        self.length += count

    def rollback(self, length: int) -> None:
        """Forget every position from `length` on. Raises ValueError unless 0 <= length <= current length."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to length {length}: the cache holds {self.length} positions")
        self.length = length

    def keep(self, base: int, path: list[int]) -> None:
        """Of the rows from `base` on, keep only those in `path`; the length becomes base + len(path).

        `path` holds increasing offsets from `base` (a root-to-leaf path of a tree stored parents first). Raises
        ValueError if it is not increasing, or leaves the rows that the cache holds.
        Example: base=10, rows 10..13 hold nodes 0..3, path=[0, 2] -> rows 10, 11 hold nodes 0 and 2, length 12.
        """
        if any(a >= b for a, b in pairwise([-1, *path, self.length - base])):
            raise ValueError(f"path {path} must increase and stay within the {self.length - base} rows from {base} on")
        if path != list(range(len(path))):                       # a chain's path is already in place: nothing to move
            index = torch.tensor(path, device=self.keys[0].device) + base
            for rows in (*self.keys, *self.values):              # (B, H, M, D)
                rows[:, :, base:base + len(path)] = rows[:, :, index]
        self.rollback(base + len(path))
