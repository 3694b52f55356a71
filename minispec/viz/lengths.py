"""How many proposed tokens a round keeps: counted, and as one constant acceptance alpha would have it.

If every token were accepted with the same alpha, whatever came before, accepted lengths would follow a geometric law
cut off at the draft length: P(k) = alpha^k (1 - alpha) below it, alpha^gamma at it. Real text has easy and hard places,
so that both ends come out more often than this.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.trace import Trace
from . import svg as draw
from .charts import STYLES, Axes, frame, key, series, ticks
from .curves import wilson


def accepted_counts(traces: Sequence[Trace], length: int) -> list[int]:
    """How many rounds kept 0, 1, ..., `length` tokens, of those that proposed a chain of `length` and were not cut."""
    counts = [0] * (length + 1)
    for r in (r for trace in traces for r in trace.rounds):
        if len(r.tokens) == length and r.tree.is_chain and not r.cut:
            counts[len(r.path)] += 1
    return counts


def constant_alpha(counts: Sequence[int]) -> float:
    """The alpha that fits the counts best if it is one number: accepted / judged, a rejected token being judged too."""
    accepted = sum(k * n for k, n in enumerate(counts))
    rejections = sum(counts[:-1])
    return accepted / (accepted + rejections)


def geometric(alpha: float, length: int) -> list[float]:
    """P(k accepted) for k = 0..length under one alpha. Example: geometric(0.5, 2) == [0.5, 0.25, 0.25]."""
    return [alpha ** k * (1 - alpha) for k in range(length)] + [alpha ** length]


def lengths_chart(traces: Sequence[Trace], length: int) -> str:
    """Share of rounds by accepted length as bars with 95 % intervals, the geometric law as diamonds.

    Raises ValueError where no round proposed a chain of `length`.
    """
    counts = accepted_counts(traces, length)
    rounds = sum(counts)
    if not rounds:
        raise ValueError(f"no round of these traces proposed a chain of {length} tokens")
    shares, alpha = [n / rounds for n in counts], constant_alpha(counts)
    theory = geometric(alpha, length)
    intervals = [wilson(n, rounds) for n in counts]
    highest = max([*theory, *(high for _, high in intervals)])
    axes = Axes(64, 76, 866, 290, (-0.6, length + 0.6), (0, min(1.0, highest * 1.1)))
    body = frame(axes, range(length + 1), ticks(*axes.y_range), "accepted tokens in a round", "share of rounds")
    look, low = draw.ROLES["accepted"], axes.y + axes.h
    for k, (share, (least, most)) in enumerate(zip(shares, intervals)):
        x, y = axes.at((k, share))
        wide = 0.5 * axes.w / (length + 1.2)
        body += [draw.rect(x - wide / 2, y, wide, low - y, look.tint, look.colour, width=2,
                           title=f"{k} accepted: {counts[k]} of {rounds} rounds"),
                 draw.line(*axes.at((k, least)), *axes.at((k, most)), draw.INK, 2)]
    body += series(axes, list(enumerate(theory)), STYLES[3], title="one α")
    means = [sum(k * share for k, share in enumerate(law)) for law in (shares, theory)]
    body += [*draw.legend(26, 22, [("accepted", f"measured: {rounds} rounds, mean {means[0]:.2f}")]),
             *key(460, 22, [(f"one α = {alpha:.2f} for all: mean {means[1]:.2f}", STYLES[3], True)])]
    alt = (f"Share of rounds by accepted tokens, 0 to {length}. Measured: " + ", ".join(f"{s:.2f}" for s in shares)
           + f". With one α = {alpha:.2f}: " + ", ".join(f"{s:.2f}" for s in theory) + ".")
    return draw.svg(axes.y + axes.h + 58, body, "Accepted lengths", alt)
