"""A trace as a film: draft, verify, accept, roll back, for every round. Notebooks and the HTML player show the same
frames.
"""

from __future__ import annotations

from typing import NamedTuple

from ..decoding.trace import Round, Trace
from ..decoding.tree import ROOT
from . import svg as draw
from .cache_grid import ROW as CACHE
from .cache_grid import caches
from .cache_states import STEPS, fates
from .ribbon import Decode, layout, round_width
from .stage import stage, stage_height


class Frame(NamedTuple):
    title: str
    caption: str                                         # what to see, in a sentence or two
    svg: str
    alt: str                                             # title, caption and progress, for who can't see the picture


def frames(trace: Trace, decode: Decode) -> list[Frame]:
    """Four frames a round; two (verify, accept) where nothing was proposed. decode: token ids -> text."""
    height = max((stage_height(r) for r in trace.rounds), default=0)
    total, found = sum(len(r.emitted) for r in trace.rounds), []
    for index, r in enumerate(trace.rounds):
        so_far = sum(len(earlier.emitted) for earlier in trace.rounds[:index])
        for step in STEPS if r.tokens else ("verify", "accept"):
            title, caption = f"Round {index + 1} of {len(trace.rounds)}: {step}", CAPTIONS[step](r, decode)
            tokens = so_far + (len(r.emitted) if step in ("accept", "roll back") else 0)
            alt = f"{title}. {caption} {tokens} of {total} tokens."
            found.append(Frame(title, caption, picture(trace, index, step, decode, height, alt), alt))
    return found


def picture(trace: Trace, index: int, step: str, decode: Decode, height: float, alt: str) -> str:
    """Header, the text so far, the proposal, both caches."""
    done = trace.rounds[:index + (step in ("accept", "roll back"))]
    body = [draw.text(10, 32, f"Round {index + 1} of {len(trace.rounds)}", 22, bold=True), *pills(step),
            draw.group(10, 52, text_so_far(done, decode, trace.prompt_length)),
            draw.line(10, 142, draw.WIDTH - 10, 142, draw.GRID, 1),
            draw.group(0, 156, stage(trace.rounds[index], step, decode, height)),
            draw.line(10, 170 + height, draw.WIDTH - 10, 170 + height, draw.GRID, 1),
            draw.text(10, 193 + height, "KV cache", 15, fill=draw.MUTED),
            draw.group(0, 181 + height, caches(trace, index, step, decode))]
    drafts = any(r.draft_cache[0] is not None for r in trace.rounds)
    return draw.svg(210 + height + CACHE * (1 + drafts), body, f"Round {index + 1}: {step}", alt)


def pills(step: str) -> list[str]:
    """The four steps in a row, the current one dark and pointed at."""
    parts, x = [], 430.0
    for name in STEPS:
        now = name == step
        parts += [draw.rect(x, 10, 124, 32, draw.INK if now else draw.PAPER, draw.INK if now else draw.GRID, round_=16),
                  draw.text(x + 62, 31, f"▸ {name}" if now else name, 16, "middle", bold=now,
                            fill=draw.PAPER if now else draw.MUTED)]
        x += 132
    return parts


def text_so_far(rounds: list[Round], decode: Decode, prompt_length: int) -> list[str]:
    """The latest rounds that fit one line of the ribbon."""
    if not rounds:
        return [draw.text(0, 50, f"prompt: {prompt_length} tokens, nothing generated yet", fill=draw.MUTED)]
    first, room = len(rounds) - 1, 900 - round_width(rounds[-1], decode)
    while first and (wide := round_width(rounds[first - 1], decode)) <= room:
        first, room = first - 1, room - wide
    lines = layout(rounds[first:], decode, 910, first + 1)
    return [draw.text(0, 48, "…", bold=True) if first or len(lines) > 1 else "", draw.group(20, 0, lines[-1])]


def caption_draft(r: Round, decode: Decode) -> str:
    count = len(r.tokens)
    if not r.tree.is_chain:
        shape = f"a tree of {count} tokens, {int(r.tree.depths().max())} deep"
    else:
        shape = "1 token" if count == 1 else f"{count} tokens in a row"
    cache = "" if r.draft_cache[0] is None else f" Its cache grows from {r.draft_cache[0]} to {r.draft_cache[1]} slots."
    return f"The draft proposes {shape}.{cache}"


def caption_verify(r: Round, decode: Decode) -> str:
    rows = f"the last committed token and all {len(r.tokens)} proposals" if len(r.tokens) > 1 else (
        "the last committed token and the proposal" if r.tokens else "the last committed token")
    before, after, _ = r.target_cache
    return f"One target pass over {rows} gives p after each of them. Its cache grows from {before} to {after} slots."


def caption_accept(r: Round, decode: Decode) -> str:
    own = f"“{draw.visible(decode([r.token]))}”"
    if r.cut:
        return f"{len(r.path)} proposed tokens would stay, but a stop token ends the text at number {len(r.emitted)}."
    if not r.tokens:
        return f"The target's own token is {own}."
    if r.bonus:
        kept = "A whole path stays" if not r.tree.is_chain else f"All {len(r.path)} stay"
        kept = "The proposal stays" if len(r.tokens) == 1 else kept
        return f"{kept}, and the same pass gives one more token for free: the bonus {own}."
    last = r.path[-1] if r.path else ROOT
    failed = [node for node, fate in enumerate(fates(r)) if fate == "rejected" and r.parents[node] == last]
    named = " and ".join(f"“{draw.visible(decode([r.tokens[node]]))}”" for node in failed)
    verb = "are" if len(failed) > 1 else "is"
    return f"{len(r.path)} of {len(r.tokens)} stay. {named} {verb} rejected: the target's correction is {own}."


def caption_roll_back(r: Round, decode: Decode) -> str:
    moves = [("the target's", *r.target_cache[1:]), ("the draft's", *r.draft_cache[1:])]
    caches = ", ".join(f"{whose} goes back from {full} to {kept} slots" if kept < full else f"{whose} stays at {full}"
                       for whose, full, kept in moves if full is not None)
    behind = r.draft_cache[0] is not None and r.target_cache[2] - r.draft_cache[2] == 1
    lag = " The draft has yet to feed its last proposal." if behind else ""
    count = len(r.emitted)
    out = "1 token" if count == 1 else f"{count} tokens"
    return f"The caches keep what was accepted: {caches}. {out} came out of one target pass.{lag}"


CAPTIONS = {"draft": caption_draft, "verify": caption_verify, "accept": caption_accept, "roll back": caption_roll_back}
