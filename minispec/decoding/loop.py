"""The loop: speculative decoding. It has plain decoding's output law and needs fewer target passes.

One round:
    1) draft     the drafter proposes a tree of tokens (a chain is a tree with one branch)
    2) verify    one target pass over the last committed token and all nodes gives p at every node
    3) accept    a rule keeps a path from the root and adds one token of the target's own
    4) emit      cut at a stop token (the budget and the context never let a proposal grow past them)
    5) roll back both caches keep the accepted path only

With n committed tokens, the target cache holds n - 1 positions before every round: the last committed token has not
been fed yet. It is row 0 of the next pass, and yields p for the first proposed token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..model.cache import KVCache
from ..model.gpt import GPT
from .dice import Dice, SeededDice
from .drafter import Drafter, Verdict
from .request import as_batch, check_proposal, check_request, cut_at_stop, end_of
from .rules import Rule, Token
from .sampling import Sampling
from .trace import Generation, Round, Trace, record
from .tree import TokenTree


@torch.inference_mode()
def speculate(target: GPT, drafter: Drafter, prompt: Sequence[int], *, max_new_tokens: int = 64,
              rule: Rule | None = None, sampling: Sampling = Sampling(), dice: Dice | None = None,
              stop_tokens: Sequence[int] | None = (), on_round: Callable[[Round], None] | None = None) -> Generation:
    """Speculative decoding (Leviathan et al. 2211.17192) with any drafter, tree and rule.

    prompt:       token ids, 1 <= length < context; a list or a 1-D tensor.
    rule:         default rules.Token().
    stop_tokens:  generation ends after the first of them, which is kept.
    on_round:     called with each Round when it is done, for streaming.
    Raises ValueError on bad input, and where the rule can't judge the drafter's trees.
    """
    started, dice = time.perf_counter(), dice or SeededDice()
    run = Speculation(target, drafter, prompt, max_new_tokens=max_new_tokens, rule=rule, sampling=sampling,
                      stop_tokens=stop_tokens)
    trace = Trace(run.prompt_length, "speculative", prefill_seconds=time.perf_counter() - started)
    while not run.stop_reason:
        trace.rounds.append(run.round(dice))
        if on_round is not None:
            on_round(trace.rounds[-1])
    trace.total_seconds = time.perf_counter() - started
    return Generation(run.ids[:run.prompt_length], run.ids[run.prompt_length:], run.stop_reason, trace)


class Speculation:
    """A generation in progress: committed tokens, the target's cache, the drafter. `round(dice)` takes it one round on.

    stop_reason is "" until the end, then "stop", "length" (max_new_tokens) or "context".
    """

    @torch.inference_mode()
    def __init__(self, target: GPT, drafter: Drafter, prompt: Sequence[int], *, max_new_tokens: int = 64,
                 rule: Rule | None = None, sampling: Sampling = Sampling(), stop_tokens: Sequence[int] | None = ()):
        self.ids = check_request(target, prompt, max_new_tokens, stop_tokens)
        self.target, self.drafter, self.rule, self.sampling = target, drafter, rule or Token(), sampling
        self.stops, self.prompt_length, self.stop_reason = frozenset(stop_tokens or ()), len(self.ids), ""
        self.end, self.reason_at_end = end_of(target, self.ids, max_new_tokens)
        self.cache = target.new_cache(self.end + drafter.max_nodes)
        if len(self.ids) > 1:
            target(as_batch(self.ids[:-1], target), self.cache)
        drafter.start(self.ids, sampling)

    @torch.inference_mode()
    def round(self, dice: Dice) -> Round:
        """One round. `self.ids` grows by 1 to depth + 1 tokens. Raises ValueError after the end."""
        if self.stop_reason:
            raise ValueError(f"the generation has ended ({self.stop_reason}): start another")
        count = getattr(self.target, "take_layer_tokens", lambda: None)      # a shared backbone counts its rows
        clock = [time.perf_counter()]
        dice.take_outcomes()                                     # throws from before belong to no round,
        count()                                                  # nor do rows
        context, base, drafted_from = len(self.ids), self.cache.length, self.drafter.cache_length()
        room = self.end - context - 1
        # 1) draft: the target's own token comes on top, so one less than the tokens still wanted
        tree = self.drafter.propose(dice, room)
        check_proposal(tree, room, self.target)
        drafted_to = self.drafter.cache_length()
        clock.append(time.perf_counter())
        # 2) verify
        target_probs = verify(self.target, self.cache, self.ids[-1], tree, self.sampling)      # (1 + N, V)
        verified_to = self.cache.length
        clock.append(time.perf_counter())
        # 3) accept
        verdict = self.rule(tree, target_probs, dice)
        # 4) emit
        emitted = cut_at_stop([tree.tokens[node] for node in verdict.path] + [verdict.token], self.stops)
        self.ids += emitted
        # 5) roll back: row 0 of the pass was the last committed token, node i was row i + 1
        kept = verdict.path[:len(emitted) - 1]                   # the whole path, unless a stop token cut it
        self.cache.keep(base, [0] + [node + 1 for node in kept])
        self.drafter.commit(Verdict(kept, emitted[-1], verdict.bonus))
        clock.append(time.perf_counter())

        if self.ids[-1] in self.stops:
            self.stop_reason = "stop"
        elif len(self.ids) == self.end:
            self.stop_reason = self.reason_at_end
        return record(context, tree, target_probs, dice.take_outcomes(), verdict, emitted,
                      target_cache=(base, verified_to, self.cache.length),
                      draft_cache=(drafted_from, drafted_to, self.drafter.cache_length()), clock=clock,
                      layer_tokens=count())


def verify(target: GPT, cache: KVCache, last: int, tree: TokenTree, sampling: Sampling) -> Tensor:
    """One target pass over the last committed token and all nodes -> p at the root and each node, (1 + N, V) float64.

    The result lies on the CPU: it is the round's one transfer from an accelerator.
    """
    rows = as_batch([last, *tree.tokens], target)                            # (1, 1 + N)
    positions = (tree.depths() + cache.length).to(rows.device)               # (1 + N,)
    logits = target(rows, cache, positions=positions, mask=tree.mask().to(rows.device))      # (1, 1 + N, V)
    return sampling.probs(logits[0]).cpu()
