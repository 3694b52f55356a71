"""The suite: every method against plain decoding, interleaved in one run.

For each prompt plain decoding and all methods take turns, and the turn starts elsewhere for each prompt, so that a busy
or a hot machine favours none. Both sides are counted by analysis.metrics: tokens that were emitted, over seconds of
decoding (the prefill of target and draft aside, the first draft included), sums over sums. No stop tokens: every
generation has the same number of tokens, so that both sides do equal work.

    ratio_to_plain      tokens/s over plain decoding's tokens/s, in this run
    predicted_speedup   from the measured c, v(k) and acceptance: see `predict`
    efficiency          ratio_to_plain / predicted_speedup: what sampling, rule, trace and Python leave of it

Equal budgets: every tree has 8 nodes, as chain-8, block-8 and ngram-8 have, so that one target pass of 9 rows judges
each of them. `nodes` is the largest proposal that was made.

A new method is one more line in METHODS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..analysis.metrics import Metrics, metrics
from ..analysis.theory import speedup
from ..decoding import Drafter, Generation, Round, Sampling, SeededDice, generate, rules, speculate
from ..decoding.rules import Rule
from ..decoding.tree import CHOSEN, SAMPLED, WITHOUT_REPLACEMENT
from ..drafters import (AdaptiveDrafter, DynamicTreeDrafter, FallbackDrafter, LMDrafter, NgramDrafter, SuffixDrafter,
                        TreeDrafter)
from ..drafters.adaptive import Stopping, Survival, Threshold, entropy_bound
from ..model.gpt import GPT
from .timing import Passes

PLAIN = "plain"


# --- which draft passes a round took: the tokens fed in each, told from the trace -------------------------------------

Feeds = Callable[[Round], list[int]]


def no_pass(r: Round) -> list[int]:
    """No model but the target's is run."""
    return []


def one_each(r: Round) -> list[int]:
    """A pass for each token of a chain."""
    return [1] * len(r.tokens)


def by_depth(r: Round) -> list[int]:
    """What the cache had yet to read, then one depth's nodes with children at a time; nothing where the draft's cache
    did not move: then another than the model proposed."""
    before, after, _ = r.draft_cache
    if after == before:
        return []
    depths = r.tree.depths()[1:].tolist()
    fed = Counter(depths[node] for node in range(len(r.tokens)) if node in r.parents)
    return [r.context - before, *(fed[depth] for depth in sorted(fed))]


def pruned(frontier: int) -> Feeds:
    """Depth by depth, `frontier` nodes each, some of which the tree no longer holds: the draft's cache does."""
    def feeds(r: Round) -> list[int]:
        before, after, _ = r.draft_cache
        full, rest = divmod(after - r.context, frontier)
        return [r.context - before] + [frontier] * full + [rest] * (rest > 0)
    return feeds


def one_pass(r: Round) -> list[int]:
    """One pass over what the cache had yet to read and a mask token for each further token."""
    return [r.context - r.draft_cache[0] + len(r.tokens) - 1]


@dataclass(frozen=True)
class Method:
    """drafter: made from the draft model, anew for each generation. draft_length: the longest path of a proposal."""
    drafter: Callable[[GPT], Drafter]
    rule: Rule
    draft_length: int
    fixed_chain: bool = False      # always proposes a chain of draft_length: the textbook formula holds
    feeds: Feeds = by_depth        # the draft passes of a round that proposed something
    passes: Passes | None = None   # what its passes cost, where it drafts with another model than the pair's
    target: GPT | None = None      # another of the same size, where the method needs its own: it writes another text

    def draft_passes(self, r: Round) -> list[int]:
        """Tokens fed in each draft pass of a round."""
        return self.feeds(r) if r.tokens else []


def chain(length: int, rule: Rule | None = None, *, of: GPT | None = None, passes: Passes | None = None) -> Method:
    """A chain of `length` tokens from the draft, or from the model `of`, whose passes are given."""
    return Method(lambda draft: LMDrafter(of or draft, length), rule or rules.Token(), length, fixed_chain=True,
                  passes=passes)


def _tree(origin: str, rule: Rule) -> Method:
    return Method(lambda draft: TreeDrafter(draft, (2, 1, 1, 1), origin=origin), rule, 4)


def _adaptive(stopping: Stopping) -> Method:
    return Method(lambda draft: AdaptiveDrafter(draft, stopping, 8), rules.Token(), 8)


METHODS: dict[str, Method] = {
    **{f"chain-{length}": chain(length) for length in range(1, 9)},
    "block-5": chain(5, rules.Block()),
    "block-8": chain(8, rules.Block()),
    "ngram-8": Method(lambda draft: NgramDrafter(8), rules.Match(), 8, feeds=no_pass),
    "suffix-16": Method(lambda draft: SuffixDrafter(16), rules.Match(), 16, feeds=no_pass),
    "suffix/chain-5": Method(lambda draft: FallbackDrafter(SuffixDrafter(16, shortest=3), LMDrafter(draft, 5)),
                             rules.ByOrigin(rules.Token(), rules.Match()), 16),
    "confidence-8": _adaptive(Threshold()),
    "survival-8": _adaptive(Survival(least=0.3)),
    "entropy-8": _adaptive(Threshold(entropy_bound)),
    "tree-recursive": _tree(WITHOUT_REPLACEMENT, rules.Recursive()),
    "tree-traversal": _tree(WITHOUT_REPLACEMENT, rules.Traversal()),
    "tree-kseq": _tree(SAMPLED, rules.KSeq()),
    "tree-match": _tree(CHOSEN, rules.Match()),
    "tree-dynamic": Method(lambda draft: DynamicTreeDrafter(draft, nodes=8, depth=5, width=2), rules.Match(), 5,
                           feeds=pruned(2)),
}


def chosen(names: Iterable[str] | None = None) -> dict[str, Method]:
    """The methods of these names, default all. Raises ValueError for an unknown one."""
    return {name: METHODS[name] for name in known(names, METHODS)}


def known(names: Iterable[str] | None, offered: Iterable[str]) -> list[str]:
    """These names, default all that are offered. Raises ValueError for one that is not."""
    for name in names or ():
        if name not in offered:
            raise ValueError(f"unknown method {name!r}: choose from {', '.join(offered)}")
    return list(names or offered)


def interleave(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], methods: dict[str, Method], *,
               sampling: Sampling = Sampling(), max_new_tokens: int = 128, stop_tokens: Sequence[int] = (),
               seed: int = 0, on_generation: Callable[[int, str], None] | None = None) -> dict[str, list[Generation]]:
    """Decode each prompt plainly and with each method -> {"plain" or method: one Generation for each prompt}.

    Prompt number i has the seed `seed` + i on all sides. on_generation(i, name) is called as each one is done.
    """
    def decode(name: str, i: int, tokens: int) -> Generation:
        common = dict(max_new_tokens=tokens, sampling=sampling, dice=SeededDice(seed + i), stop_tokens=stop_tokens)
        if name == PLAIN:
            return generate(target, prompts[i], **common)
        method = methods[name]
        return speculate(method.target or target, method.drafter(draft), prompts[i], rule=method.rule, **common)

    names = [PLAIN, *methods]
    done: dict[str, list[Generation]] = {name: [] for name in names}
    for name in names:
        decode(name, 0, min(8, max_new_tokens))                  # warm up: first calls pay for memory and kernels
    for i in range(len(prompts)):
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            done[name].append(decode(name, i, max_new_tokens))
            if on_generation is not None:
                on_generation(i, name)
    return done


def predict(method: Method, measured: Metrics, rounds: Sequence[Round], passes: Passes) -> float:
    """Speedup over plain decoding if nothing but model passes took time.

    A chain of fixed length: the textbook formula, analysis.theory.speedup, with acceptance by position and v(k).
    Anything else: tokens_per_pass over the mean cost of the rounds as they were, each one target pass over its nodes
    and the root, and the draft passes that it took, at the measured cost of their widths.
    """
    if method.fixed_chain and measured.acceptance_by_position:
        return speedup(measured.acceptance_by_position, method.draft_length, passes.cost, passes.verify)
    cost = sum(sum(map(passes.draft, method.draft_passes(r))) + passes.verify(1 + len(r.tokens)) for r in rounds)
    return measured.tokens / cost


def row(name: str, method: Method | None, workload: str, temperature: float, generations: Sequence[Generation],
        plain: Sequence[Generation], passes: Passes) -> dict:
    """One line of the table; method None: plain decoding itself."""
    measured = metrics(*(g.trace for g in generations))
    ratio = measured.tokens_per_second / metrics(*(g.trace for g in plain)).tokens_per_second
    rounds = [r for g in generations for r in g.trace.rounds]
    predicted = 1.0 if method is None else predict(method, measured, rounds, method.passes or passes)
    return {
        "method": name, "workload": workload, "temperature": temperature,
        "draft_length": 0 if method is None else method.draft_length,
        "nodes": max(len(r.tokens) for r in rounds),
        "tokens_per_second": measured.tokens_per_second, "ratio_to_plain": ratio, "predicted_speedup": predicted,
        "efficiency": ratio / predicted, "acceptance_rate": measured.acceptance_rate,
        "tokens_per_pass": measured.tokens_per_pass,
        "draft_passes_per_round": sum(len(method.draft_passes(r)) for r in rounds) / len(rounds) if method else 0.0,
        "acceptance_by_position": measured.acceptance_by_position,
        "ratio_by_prompt": [metrics(a.trace).tokens_per_second / metrics(b.trace).tokens_per_second
                            for a, b in zip(generations, plain)],
    }


def run(target: GPT, draft: GPT, workloads: dict[str, Sequence[Sequence[int]]], methods: dict[str, Method],
        passes: Passes, *, temperatures: Sequence[float] = (0.0, 1.0), max_new_tokens: int = 128, seed: int = 0,
        on_generation: Callable[[str, float, int, str], None] | None = None) -> list[dict]:
    """All rows: workloads {name: prompts as token ids} x temperatures x (plain and all methods)."""
    rows = []
    for workload, prompts in workloads.items():
        for temperature in temperatures:
            report = on_generation and (lambda i, name: on_generation(workload, temperature, i, name))
            done = interleave(target, draft, prompts, methods, sampling=Sampling(temperature),
                              max_new_tokens=max_new_tokens, seed=seed, on_generation=report)
            rows += [row(name, methods.get(name), workload, temperature, generations, done[PLAIN], passes)
                     for name, generations in done.items()]
    return rows
