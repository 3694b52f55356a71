"""Plain decoding: one target pass a token. The slow reference that `speculate` must equal in law, and beat in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from ..model.gpt import GPT
from .dice import Dice, SeededDice
from .drafter import Verdict
from .request import as_batch, check_request, end_of
from .sampling import Sampling
from .trace import Generation, Round, Trace, record
from .tree import TokenTree


@torch.inference_mode()
def generate(target: GPT, prompt: Sequence[int], *, max_new_tokens: int = 64, sampling: Sampling = Sampling(),
             dice: Dice | None = None, stop_tokens: Sequence[int] | None = (),
             on_round: Callable[[Round], None] | None = None) -> Generation:
    """Sample from the target one token at a time, with a KV cache.

    prompt: token ids, 1 <= length < context; a list or a 1-D tensor. Other arguments and errors as `speculate`.
    """
    started = time.perf_counter()
    ids = check_request(target, prompt, max_new_tokens, stop_tokens)
    dice, stops, prompt_length = dice or SeededDice(), frozenset(stop_tokens or ()), len(ids)
    trace = Trace(prompt_length, "plain")
    end, stop_reason = end_of(target, ids, max_new_tokens)
    cache = target.new_cache(end)
    if len(ids) > 1:
        target(as_batch(ids[:-1], target), cache)
    trace.prefill_seconds = time.perf_counter() - started

    while len(ids) < end:
        before, clock = cache.length, [time.perf_counter()] * 2       # nothing is drafted
        dice.take_outcomes()                                          # throws from before belong to no round
        probs = sampling.probs(target(as_batch(ids[-1:], target), cache)[0]).cpu()       # (1, V)
        clock.append(time.perf_counter())
        token = dice.draw(probs[0])
        ids.append(token)
        clock.append(time.perf_counter())
        trace.rounds.append(record(
            len(ids) - 1, TokenTree(), probs, dice.take_outcomes(), Verdict([], token, bonus=True), [token],
            target_cache=(before, cache.length, cache.length), draft_cache=(None, None, None), clock=clock))
        if on_round is not None:
            on_round(trace.rounds[-1])
        if token in stops:
            stop_reason = "stop"
            break
    trace.total_seconds = time.perf_counter() - started
    return Generation(ids[:prompt_length], ids[prompt_length:], stop_reason, trace)
