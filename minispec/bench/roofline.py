"""The roofline: what a machine could do at best, measured, and what it says about a pass (Williams et al. 2009).

A pass over k tokens reads every weight once and uses it k times, two floating point operations each. It takes at least
the time to read the weights, and at least the time to do the arithmetic:

    seconds(k) >= max(weights x bytes / bandwidth, 2 x weights x k / peak)

The k at which the two are equal is the ridge. Below it tokens are free, beyond it each one costs.

Left out on purpose: the embedding table's rows that are not read, the cache's bytes, attention's own operations, and
the fixed price of starting a kernel. All are small beside the weights of a model that is large; the last is not small
beside a model that is small, which is one reason why a measured curve lies above its roof.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch

from .timing import timed

READ_BYTES = 64 * 2**20              # of the matrix that is read, unless it should be as large as a model
SIDE = 1024                          # of the square product


@dataclass(frozen=True)
class Machine:
    """bandwidth: bytes/s read from memory; peak: floating point operations/s of a large product."""
    bandwidth: float
    peak: float

    def ridge(self, bytes_per_weight: float) -> float:
        """Tokens in a pass at which reading the weights and computing with them take equally long."""
        return self.peak / self.bandwidth * bytes_per_weight / 2

    def seconds(self, weights: float, bytes_per_weight: float, k: float) -> float:
        """The least time of a pass over k tokens through so many weights."""
        return max(weights * bytes_per_weight / self.bandwidth, 2 * weights * k / self.peak)

    def curve(self, bytes_per_weight: float, ks: list[int]) -> dict[int, float]:
        """The roofline's own verify curve {k: v(k)}: flat up to the ridge, then proportional."""
        one = self.seconds(1.0, bytes_per_weight, 1)
        return {k: self.seconds(1.0, bytes_per_weight, k) / one for k in ks}


@torch.inference_mode()
def measure_machine(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, *,
                    read_bytes: int = READ_BYTES, repeats: int = 9) -> Machine:
    """Time a matrix-vector product (it only reads) and a square product (it only computes); medians.

    read_bytes: size of the matrix that is read. Take the size of a model's weights: one that fits the processor's own
    cache is read faster than memory would allow, and so is a matrix of that size.
    """
    device = torch.device(device)
    columns = 2048
    rows = max(1, read_bytes // (columns * dtype.itemsize))
    wide = torch.ones(rows, columns, dtype=dtype, device=device)                 # (rows, columns)
    vector, square = torch.ones(columns, 1, dtype=dtype, device=device), torch.ones(SIDE, SIDE, dtype=dtype,
                                                                                    device=device)
    read, compute = (lambda: wide @ vector), (lambda: square @ square)
    seconds: dict[str, list[float]] = {"read": [], "compute": []}
    for repeat in range(repeats + 1):
        for name, run in (("read", read), ("compute", compute)):
            took = timed(run, device)
            if repeat:                                                           # the first time round warms up
                seconds[name].append(took)
    return Machine(wide.numel() * dtype.itemsize / median(seconds["read"]), 2 * SIDE**3 / median(seconds["compute"]))
