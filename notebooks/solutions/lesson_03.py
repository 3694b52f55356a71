"""Lesson 03, solved: the greedy loop, with models as functions.

model(ids) -> list: the model's greedy next token after every position. One call is one pass.
"""


def count_matches(drafted: list[int], wanted: list[int]) -> int:
    """How many drafted tokens equal the target's own, from the first on and without a gap.

    drafted (γ,), wanted (γ + 1,). Example: count_matches([5, 7, 2], [5, 6, 2, 1]) == 1.
    """
    count = 0
    while count < len(drafted) and drafted[count] == wanted[count]:
        count += 1
    return count


def greedy_round(target, draft, ids: list[int], length: int) -> list[int]:
    """One round after the committed `ids`: 1 to length + 1 tokens, from one target pass and `length` draft passes."""
    drafted = []
    for _ in range(length):
        drafted.append(draft(ids + drafted)[-1])
    wanted = target(ids + drafted)[len(ids) - 1:]            # after the last committed token, and after each drafted
    count = count_matches(drafted, wanted)
    return wanted[:count + 1]                                # what matched, and one token of the target's own


def greedy_decode(target, draft, ids: list[int], length: int, new_tokens: int) -> list[int]:
    """Exactly `new_tokens` new tokens, round by round."""
    out = []
    while len(out) < new_tokens:
        out += greedy_round(target, draft, ids + out, length)
    return out[:new_tokens]
