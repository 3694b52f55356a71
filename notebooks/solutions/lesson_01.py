"""Solutions of lesson 01: what a pass reads and computes, the roofline, and where a curve stops being flat."""


def intensity(k: int, bytes_per_weight: float) -> float:
    """Operations for each byte: a weight is read once and serves k tokens, a multiplication and an addition each."""
    return 2 * k / bytes_per_weight


def pass_seconds(weights: float, bytes_per_weight: float, k: int, bandwidth: float, peak: float) -> float:
    """Reading and computing happen at the same time, so the slower of the two decides."""
    return max(weights * bytes_per_weight / bandwidth, 2 * weights * k / peak)


def flat_until(curve: dict[int, float], slack: float) -> int:
    """The last measured k before the curve first rises above 1 + slack; v(1) is 1, so there is always one."""
    flat = 1
    for k in sorted(curve):
        if curve[k] > 1 + slack:
            break
        flat = k
    return flat
