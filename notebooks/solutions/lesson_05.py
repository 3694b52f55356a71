"""Lesson 05, solved: both caches after a round, what the draft reads next, and which round broke the rule."""


def lengths_after(n: int, length: int, accepted: int) -> tuple[int, int]:
    """(target's length, draft's length) after a round that began with n committed tokens, drafted `length` of them and
    kept `accepted`.

    The draft never fed its last proposal, so it has one position less to keep after a full acceptance.
    """
    return n + accepted, min(n + accepted, n + length - 1)


def tokens_to_feed(ids: list[int], cache_length: int) -> list[int]:
    """The committed tokens that the draft has yet to read: one, or two after a full acceptance."""
    return ids[cache_length:]


def first_broken(trace) -> int | None:
    """The first round (counted from 0) after which a cache has another length than it must have, None if all are right.

    With n committed tokens the target's holds n - 1. The draft's holds as many, or one less after a full acceptance.
    """
    for index, r in enumerate(trace.rounds):
        n = r.context + len(r.emitted)
        behind = 1 if len(r.path) == len(r.tokens) else 0
        if r.target_cache[2] != n - 1 or r.draft_cache[2] != n - 1 - behind:
            return index
    return None
