"""What the slots of the two KV caches hold at each step of a round: the data behind cache_grid.py and frames.py.

A slot is named by its position. With n committed tokens the target's cache holds n - 1 of them before a round, since
the last one was never fed. The draft's holds as many, or one less after a full acceptance: its last proposal was
sampled, but not fed.
"""

from __future__ import annotations

from typing import NamedTuple

from ..decoding.trace import Round, Trace
from ..decoding.tree import ROOT

STEPS = ("draft", "verify", "accept", "roll back")

# kept         there before the round, or accepted in it
# written      fed in this round, but committed before it: certain
# speculative  a proposal, not judged yet
# accepted, rejected, unjudged    what became of it (unjudged: an earlier one had failed)
# stale        rolled back: the slot still holds the old entry, past the length, and nothing reads it


class Cache(NamedTuple):
    """A cache at one step: its length, and the state of every slot written so far."""
    length: int
    slots: list[str]


def fates(r: Round) -> list[str]:
    """What became of each proposed node: "accepted", "rejected" (its turn came and it failed) or "unjudged"."""
    reached, found = [ROOT, *r.path][:len(r.emitted)], []
    for node, parent in enumerate(r.parents):
        taken = next((child for child in r.path if r.parents[child] == parent), len(r.parents))
        if node in r.path[:r.accepted]:
            found.append("accepted")
        else:
            found.append("rejected" if parent in reached and node < taken else "unjudged")
    return found


def cache_states(r: Round) -> dict[str, tuple[Cache, Cache | None]]:
    """{step: (the target's cache, the draft's or None where the drafter has none)} for the four steps of a round."""
    target = _states(*r.target_cache, certain=r.target_cache[0] + 1, judged=fates(r))
    target["draft"] = Cache(r.target_cache[0], ["kept"] * r.target_cache[0])             # its pass comes one step later
    if r.draft_cache[0] is None:
        return {step: (target[step], None) for step in STEPS}
    judged = fates(r) if r.tree.is_chain else None       # rows of a tree lie in the order in which they were fed
    draft = _states(*r.draft_cache, certain=r.context, judged=judged)
    return {step: (target[step], draft[step]) for step in STEPS}


def _states(before: int, full: int, after: int, certain: int, judged: list[str] | None) -> dict[str, Cache]:
    """A cache that went from `before` slots to `full` and back to `after`; below `certain` lie committed tokens."""
    sure = min(max(certain, before), full)
    known, guess = ["kept"] * before + ["written"] * (sure - before), ["speculative"] * (full - sure)
    written = Cache(full, known + guess)
    return {"draft": written, "verify": written,
            "accept": written if judged is None else Cache(full, known + judged[:len(guess)]),
            "roll back": Cache(after, ["kept"] * after + ["stale"] * (full - after))}


def slot_tokens(trace: Trace, index: int, step: str, model: str = "target") -> dict[int, int]:
    """{slot: token} where the trace knows it (it doesn't hold the prompt). model: "target" or "draft"."""
    r, position, tokens = trace.rounds[index], trace.prompt_length, {}
    for earlier in trace.rounds[:index]:
        tokens |= enumerate(earlier.emitted, position)
        position += len(earlier.emitted)
    if model == "target" or r.tree.is_chain:             # node i lies i slots after the last committed token
        tokens |= enumerate(r.tokens, r.context)
    if step == "roll back":                              # a tree's accepted path has moved together
        length = (r.target_cache if model == "target" else r.draft_cache)[2]
        tokens |= {slot: token for slot, token in enumerate(r.emitted, r.context) if slot < length}
    return tokens
