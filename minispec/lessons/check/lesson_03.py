"""Checks of lesson 03: the greedy loop. Models are plain functions here, so that passes can be counted.

model(ids) -> list: the model's greedy next token after every position. One call is one pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch

from ...decoding import SeededDice, TokenTree, rules
from ...decoding.tree import CHOSEN
from ...viz import token_rows
from .base import Wrong, judged

VOCAB = 8


def decode(ids: Sequence[int]) -> str:
    """Token ids of the small cases as letters."""
    return "".join("abcdefgh"[token] if 0 <= token < VOCAB else "?" for token in ids)


class Counted:
    """A greedy model made of arithmetic, whose next token depends on all tokens before it. It counts its passes.

    astray: it gives another token than its twin without `astray` after every such number of tokens; 0: never.
    """

    def __init__(self, astray: int = 0):
        self.astray, self.passes = astray, 0

    def __call__(self, ids: Sequence[int]) -> list[int]:
        self.passes += 1
        return [self.after(ids[:k + 1]) for k in range(len(ids))]

    def after(self, ids: Sequence[int]) -> int:
        token = sum((k + 2) * (token + 1) for k, token in enumerate(ids)) % VOCAB
        return (token + 1) % VOCAB if self.astray and len(ids) % self.astray == 0 else token

    def text(self, ids: Sequence[int], count: int) -> list[int]:
        """`count` tokens of plain greedy decoding; its passes aren't counted."""
        ids = list(ids)
        for _ in range(count):
            ids.append(self.after(ids))
        return ids[len(ids) - count:]


def kept(drafted: Sequence[int], wanted: Sequence[int]) -> int:
    """How many rules.Match keeps of a drafted chain, if the target is sure of `wanted`, one token longer."""
    p = torch.nn.functional.one_hot(torch.tensor(wanted), VOCAB).double()                # (1 + N, V)
    return len(rules.Match()(TokenTree.chain(drafted, origin=CHOSEN), p, SeededDice()).path)


@judged
def count_matches(function: Callable) -> Iterator[Wrong]:
    """function(drafted, wanted) -> how many drafted tokens are kept; wanted is one token longer."""
    dice = random.Random(0)
    table = [([5, 7, 2], [5, 7, 2, 1]), ([5, 7, 2], [5, 6, 2, 1]), ([4, 4], [3, 4, 4]), ([], [3])]
    table += [([dice.randrange(3) for _ in range(4)], [dice.randrange(3) for _ in range(5)]) for _ in range(40)]
    for drafted, wanted in table:
        right, got = kept(drafted, wanted), function(list(drafted), list(wanted))
        if got != right:
            message = (f"drafted {drafted}, the target's own {wanted}: {right} may be kept, yours says {got!r}. "
                       f"Only the first tokens count, up to the first that differs.")
            rows = token_rows({"target": wanted, "drafted": drafted}, decode)
            yield Wrong(message, rows, "The drafted tokens against the target's own")


@judged
def greedy_round(function: Callable) -> Iterator[Wrong]:
    """function(target, draft, ids, length) -> the tokens of one round."""
    for astray in (3, 0, 2, 1):
        for length in (4, 2, 1):
            for prompt in ([7, 7, 1, 2, 5], [3, 0, 2], [1]):
                target, draft, ids = Counted(), Counted(astray), list(prompt)
                drafted = draft.text(prompt, length)
                right = target.text(prompt, kept(drafted, target([*prompt, *drafted])[len(prompt) - 1:]) + 1)
                target.passes = draft.passes = 0
                got = function(target, draft, ids, length)
                case = f"after {decode(prompt)} with {length} drafted ({decode(drafted)})"
                if got != right:
                    yield compared(f"{case}: the round gives {decode(right)}, yours gives {shown(got)}.", right, got)
                if ids != prompt:
                    yield Wrong(f"{case}: your function changed the list `ids` of its caller. Work on a copy.")
                if target.passes != 1:
                    yield Wrong(f"{case}: your round took {target.passes} target passes. One is enough: it answers for "
                                f"all positions at once, and that is where the speed comes from.")
                if draft.passes != length:
                    yield Wrong(f"{case}: your round took {draft.passes} draft passes, {length} are needed: one for "
                                f"each drafted token.")


@judged
def greedy_decode(function: Callable) -> Iterator[Wrong]:
    """function(target, draft, ids, length, new_tokens) -> exactly new_tokens tokens."""
    for astray in (3, 0, 1):
        for length in (3, 1):
            for count in (6, 9, 1):
                target, draft, ids = Counted(), Counted(astray), [2, 5]
                got = function(target, draft, ids, length, count)
                right = target.text([2, 5], count)
                case = f"{count} new tokens, {length} drafted a round, a draft that is {QUALITY[astray]}"
                if got != right:
                    message = f"{case}: plain decoding gives {decode(right)}, yours gives {shown(got)}."
                    yield compared(message, right, got)
                rounds = passes(astray, length, count)
                if target.passes != rounds:
                    yield Wrong(f"{case}: the text is right, but you needed {target.passes} target passes. With one a "
                                f"round, and every round's tokens kept, it takes {rounds}.")


QUALITY = {0: "always right", 1: "always wrong", 3: "mostly right"}


def passes(astray: int, length: int, count: int) -> int:
    """Target passes of the loop that keeps what it can."""
    target, draft, ids, rounds = Counted(), Counted(astray), [2, 5], 0
    while len(ids) < 2 + count:
        drafted = draft.text(ids, length)
        ids += target.text(ids, kept(drafted, target([*ids, *drafted])[len(ids) - 1:]) + 1)
        rounds += 1
    return rounds


def compared(message: str, right: list[int], got: object) -> Wrong:
    """A wrong text, drawn below the right one where it is a list of tokens."""
    if not (isinstance(got, list) and all(isinstance(token, int) for token in got)):
        return Wrong(f"{message} It must be a list of token ids.")
    rows = token_rows({"plain decoding": right, "yours": got}, decode)
    return Wrong(message, rows, "Your tokens against those of plain decoding")


def shown(got: object) -> str:
    return decode(got) or "nothing" if isinstance(got, list) and all(isinstance(t, int) for t in got) else repr(got)
