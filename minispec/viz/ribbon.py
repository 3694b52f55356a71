"""The token ribbon: the generated text, token by token, with where each token came from.

Accepted tokens were proposed by the draft and kept by the target. A correction replaces a rejected proposal; a bonus
comes free after a full acceptance. Both are the target's own. A number stands where a round, one target pass, begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..decoding.trace import Round, Trace
from . import svg as draw

Decode = Callable[[Sequence[int]], str]                  # token ids -> text, as a tokenizer's decode

HEIGHT, ROW = 46, 76                                     # of a chip; of a line of chips with its round numbers

WORDS = {"accepted": "accepted", "correction": "correction", "bonus": "bonus", "target": "nothing drafted"}


def ribbon(trace: Trace, decode: Decode, width: float = draw.WIDTH) -> str:
    """All generated tokens of a trace, in lines as long as the figure is wide."""
    lines = layout(trace.rounds, decode, width - 20)
    counts = count_roles(trace.rounds)
    entries = [(role, f"{WORDS[role]}: {counts[role]}") for role in WORDS if counts[role]]
    tokens = sum(counts.values())
    told = ", ".join(f"{counts[role]} {WORDS[role]}" for role in counts)
    alt = (f"{tokens} tokens from {len(trace.rounds)} rounds: {told}. Text: "
           + draw.visible(decode([token for r in trace.rounds for token in r.emitted])))
    body = [*draw.legend(10, 20, entries),
            draw.text(width - 10, 25, f"{tokens} tokens, {len(trace.rounds)} target passes", 14, "end", bold=True),
            *(draw.group(10, 42 + k * ROW, parts) for k, parts in enumerate(lines))]
    return draw.svg(50 + ROW * len(lines), body, "Token ribbon", alt, width)


def count_roles(rounds: Sequence[Round]) -> dict[str, int]:
    roles = [role for r in rounds for _, role in r.provenance()]
    return {role: roles.count(role) for role in WORDS}


def layout(rounds: Sequence[Round], decode: Decode, room: float, first: int = 1) -> list[list[str]]:
    """Chips with separators and round numbers, in lines at most `room` wide and ROW high. first: the number of
    rounds[0].
    """
    lines, x = [[]], 0.0
    for number, r in enumerate(rounds, first):
        for k, (token, role) in enumerate(r.provenance()):
            label = draw.visible(decode([token]))
            w = chip_width(label)
            if x and x + w + 6 > room:
                lines.append([])
                x = 0.0
            if k == 0:
                lines[-1] += [draw.line(x + 1, 2, x + 1, 20 + HEIGHT, draw.INK, 2),
                              draw.text(x + 6, 14, str(number), 14, bold=True)]
                x += 6
            title = f"round {number}: {draw.ROLES[role].name}, token {token}"
            lines[-1].append(draw.chip(x, 20, w, HEIGHT, role, label, title=title))
            x += w + 4
    return lines


def chip_width(label: str) -> float:
    return max(26.0, draw.text_width(label, mono=True) + 10)


def round_width(r: Round, decode: Decode) -> float:
    """The room a round takes in a line of the ribbon."""
    return 6 + sum(chip_width(draw.visible(decode([token]))) + 4 for token, _ in r.provenance())
