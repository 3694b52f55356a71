"""Charts of what was measured: acceptance by position, the verify curve with its roofline, and the exactness meter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..analysis.exact import Law, total_variation
from ..analysis.metrics import positions
from ..decoding.trace import Trace
from . import svg as draw
from .charts import STYLES, Axes, decades, frame, key, series, ticks

PLAIN = "#595959"                                        # lines that are theory, not data


def acceptance_chart(traces: Mapping[str, Sequence[Trace]]) -> str:
    """P(position k accepted, given that it was reached) for each named set of traces, with one constant alpha for
    comparison.

    Bars are 95 % Wilson intervals: the deeper the position, the fewer rounds reach it. The dashed line is what
    "acceptance" as one number would say: accepted / judged, over all positions. Raises ValueError if nothing was
    proposed.
    """
    counts = {name: positions(r for trace in group for r in trace.rounds) for name, group in traces.items()}
    deepest = max((len(reached) for reached, _ in counts.values()), default=0)
    if not deepest:
        raise ValueError("nothing was proposed in these traces: there is no acceptance to draw")
    axes = Axes(60, 80, 880, 300, (0.5, deepest + 0.5), (0, 1))
    body = frame(axes, range(1, deepest + 1), ticks(0, 1), "position in the proposal", "accepted, given reached")
    entries = []
    for k, (name, (reached, kept)) in enumerate(counts.items()):
        style, shift = STYLES[k % len(STYLES)], (k - (len(counts) - 1) / 2) * 0.12
        points = [(i + 1 + shift, a / n) for i, (n, a) in enumerate(zip(reached, kept))]
        for (x, _), n, a in zip(points, reached, kept):
            low, high = wilson(a, n)
            body.append(draw.line(*axes.at((x, low)), *axes.at((x, high)), style.colour, 2))
        mean = sum(kept) / sum(reached)
        body += [draw.line(*axes.at((0.5, mean)), *axes.at((deepest + 0.5, mean)), style.colour, 1.5, "3 5"),
                 *series(axes, points, style, title=name)]
        entries.append((f"{name} (n = {reached[0]} … {reached[-1]})", style, True))
    means = ", ".join(f"{name}: {sum(kept) / sum(reached):.2f}" for name, (reached, kept) in counts.items())
    note = f"thin line: one α for all positions ({means})"
    body += [*key(26, 24, entries), draw.text(940, 66, note, 14, "end", fill=draw.MUTED)]
    return draw.svg(436, body, "Acceptance by position", f"Acceptance by position, 1 to {deepest}. Overall: {means}.")


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a proportion; z = 1.96 covers 95 %."""
    centre = (successes + z * z / 2) / (trials + z * z)
    half = z / (trials + z * z) * math.sqrt(successes * (trials - successes) / trials + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def verify_chart(curves: Mapping[str, Mapping[int, float]], ridge: float | None = None, note: str = "") -> str:
    """Measured verify curves v(k), by name, between the textbook's (always 1) and proportional cost (k).

    ridge: the k at which a pass stops being bound by memory, from the machine's roofline: peak FLOP/s over bandwidth,
    over the FLOPs that each byte of weights serves per token (Williams et al. 2009). note: provenance of the
    measurement.
    """
    longest, top = max(map(max, curves.values())), max(max(curve.values()) for curve in curves.values())
    axes = Axes(60, 80, 880, 270, (1, longest), (0, max(2.0, math.ceil(top * 1.1))))
    theory = [("textbook: v(k) = 1", "2 4", [(1, 1), (longest, 1)]),
              ("no gain: v(k) = k", "9 5", [(1, 1), (min(longest, axes.y_range[1]), min(longest, axes.y_range[1]))])]
    marks = sorted({1, *(round(t) for t in ticks(0, longest, 8) if t >= 1)})
    body, x = frame(axes, marks, ticks(*axes.y_range), "tokens in one target pass, k", "v(k): cost of the pass"), 26.0
    for name, dash, points in theory:
        body.append(draw.path([axes.at(point) for point in points], PLAIN, 2, dash))
    for k, (name, curve) in enumerate(curves.items()):
        body += series(axes, sorted(curve.items()), STYLES[k], title=name)
    styles = [(name, STYLES[k], True) for k, name in enumerate(curves)] + [
        (name, STYLES[4]._replace(colour=PLAIN, dash=dash), False) for name, dash, _ in theory]
    body += [*key(x, 24, styles), *(roofline(axes, ridge) if ridge else []),
             draw.text(940, 66, note, draw.SMALL, "end", fill=draw.MUTED)]
    alt = "; ".join(f"{name}: {longest_of(curve)}" for name, curve in curves.items())
    alt = f"Cost of a target pass over k tokens, in passes over one. {alt}."
    return draw.svg(456 if ridge else 410, body, "The verify curve", alt)


def longest_of(curve: Mapping[int, float]) -> str:
    return f"{curve[max(curve)]:.2f} at {max(curve)} tokens"


def roofline(axes: Axes, ridge: float) -> list[str]:
    """A strip under the chart: where the weights' way from memory is the bound, and where arithmetic is."""
    y, cut, parts = axes.y + axes.h + 58, axes.at((ridge, 0))[0], []
    free = ("✓ memory is the bound: more tokens are free", "✓ memory-bound: free", "✓")
    paid = ("✗ arithmetic is the bound: every token costs", "✗ compute-bound", "✗")
    for start, stop, role, words in ((axes.x, cut, "accepted", free), (cut, axes.x + axes.w, "rejected", paid)):
        if stop - start < 1:
            continue
        longest = next((w for w in words if draw.text_width(w, 14, bold=True) < stop - start), "")
        parts += [draw.chip(start, y, stop - start, 34, role, glyph=False),
                  draw.text((start + stop) / 2, y + 22, longest, 14, "middle", bold=True)]
    return parts


def noise_limit(law: Law, count: int, miss: float = 0.01) -> float:
    """What chance alone explains: `count` exact samples lie farther from their law than this with probability < `miss`.

    E[TV] <= sum_x sqrt(p(1 - p) / count) / 2 (Jensen), and a sample moves TV by at most 1 / count (McDiarmid).
    """
    expected = 0.5 * sum(math.sqrt(p * (1 - p) / count) for p in law.values())
    return min(1.0, expected + math.sqrt(math.log(1 / miss) / (2 * count)))


def distances(samples: Sequence[tuple[int, ...]], law: Law, counts: Sequence[int]) -> list[tuple[int, float]]:
    """(n, total variation between the first n samples' frequencies and the law) for each n of counts."""
    found, seen = [], {}
    for n, sample in enumerate(samples, 1):
        seen[sample] = seen.get(sample, 0) + 1
        if n in counts:
            found.append((n, total_variation({key: count / n for key, count in seen.items()}, law)))
    return found


def exactness_meter(runs: Mapping[str, Sequence[tuple[int, float]]], law: Law, miss: float = 0.01) -> str:
    """Distance of samples from the target's law against their number, both logarithmic. runs: {name: `distances`}.

    An exact sampler falls as 1 / sqrt(n) for ever and stays in the shaded region; one that isn't exact comes to rest
    above it.
    """
    counts = sorted({n for run in runs.values() for n, _ in run})
    lows = [tv for run in runs.values() for _, tv in run if tv > 0] + [noise_limit(law, counts[-1], miss) / 4]
    axes = Axes(80, 80, 860, 300, (counts[0], counts[-1]), (10 ** math.floor(math.log10(min(lows))), 1.0), log=True)
    grid = [counts[0] * (counts[-1] / counts[0]) ** (i / 40) for i in range(41)]
    limit = [axes.at((n, noise_limit(law, max(1, round(n)), miss))) for n in grid]
    low, chance = axes.y + axes.h, draw.ROLES["accepted"]
    body = [draw.path([*limit, (axes.x + axes.w, low), (axes.x, low)], chance.colour, fill=chance.tint),
            *frame(axes, decades(*axes.x_range), decades(*axes.y_range), "samples", "distance from p (TV)")]
    for k, (name, run) in enumerate(runs.items()):
        body += series(axes, run, STYLES[k % len(STYLES)], title=name)
    body += [*key(26, 24, [(name, STYLES[k % len(STYLES)], True) for k, name in enumerate(runs)]),
             *draw.legend(424, 60, [("accepted", f"chance alone explains this region (all but {miss:.0%})")])]
    outside = [name for name, run in runs.items() if run[-1][1] > noise_limit(law, run[-1][0], miss)]
    ends = ", ".join(f"{name} {run[-1][1]:.4f}" for name, run in runs.items())
    alt = (f"Distance from the target's law after {counts[-1]} samples: {ends}. "
           f"Outside of what chance explains: {', '.join(outside) or 'none'}.")
    return draw.svg(436, body, "Exactness meter", alt)
