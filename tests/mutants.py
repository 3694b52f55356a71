"""Faults that were found in public speculative decoding code, each as a change of one line in minispec.

A mutant replaces `old` by `new` in the source of one function, for as long as its `with` block lasts. `case` numbers
the fault in the project's collection: A law, B zero mass and NaN, C stops and budgets, D caches, E trees. `caught_by`
names the check in test_mutants.py that fails on it.

Some rows of A to D have no mutant. Misconceptions, not faults: A9 A10 A22 A23 A29 D12. Features that are not here
(penalties, stop strings, batches, rotating and recurrent caches): A20 A26 A27 A30 B8 C9 C10 C18 D10 D11 D15. The rest
have tests without a one-line fault to plant: A21 A24 B6 B10 C14 C15 D5 D16 D17.
"""

from __future__ import annotations

import __future__
import inspect
import textwrap
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

from minispec.analysis import metrics
from minispec.decoding import Round, Sampling, SeededDice, Speculation
from minispec.decoding.loop import verify
from minispec.decoding.request import cut_at_stop
from minispec.decoding.rules import Block, KSeq, Match, Recursive, Token, Traversal, left_over, ratio, residual
from minispec.decoding.rules.base import siblings
from minispec.decoding.sampling import _one_hot_of_first
from minispec.decoding.tree import _geometry
from minispec.drafters import DynamicTreeDrafter, LMDrafter, NgramDrafter
from minispec.drafters.lm_tree import GrowingDrafter
from minispec.model.cache import KVCache


@dataclass(frozen=True)
class Mutant:
    name: str
    case: str
    where: Callable                     # a function, a method, or a property's getter
    old: str                            # stands in its source exactly once
    new: str
    caught_by: str

    @contextmanager
    def applied(self):
        """Only the function's code object is exchanged, so everyone who imported the function meets the mutant."""
        function, forget = inspect.unwrap(self.where), getattr(self.where, "cache_clear", lambda: None)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{function.__qualname__} does not hold {self.old!r} once"
        code = compile(source.replace(self.old, self.new), f"<{self.name}>", "exec",
                       __future__.annotations.compiler_flag)
        exec(code, function.__globals__, scope := {})
        mutated = scope[function.__name__]
        sound = function.__code__
        function.__code__ = inspect.unwrap(getattr(mutated, "fget", mutated)).__code__
        forget()
        try:
            yield
        finally:
            function.__code__ = sound
            forget()


ROLLBACK = "self.cache.rollback(min(self.cache.length, right))"
KEEP = "self.cache.keep(base, [0] + [node + 1 for node in kept])"

MUTANTS = [
    # --- A: the law ---------------------------------------------------------------------------------------------------
    Mutant("greedy draft, sampled q", "A1 A3", LMDrafter.propose, "dice.draw(q)", "int(q.argmax())", "token law"),
    Mutant("q before temperature and top-k", "A4", LMDrafter.propose,
           "draft_probs.append(q)", "draft_probs.append(logits[0, -1].softmax(-1))", "token law"),
    Mutant("draft drawn from rounded q", "A6", LMDrafter.propose,
           "dice.draw(q)", "dice.draw(q.bfloat16())", "token law"),
    Mutant("p before temperature and top-k", "A2 A16", verify,
           "sampling.probs(logits[0])", "logits[0].softmax(-1)", "token law"),
    Mutant("always greedy", "A19", verify, "sampling.probs(logits[0])", "Sampling(0.0).probs(logits[0])", "token law"),
    Mutant("residual by softmax", "A5", residual, "excess / mass", "excess.softmax(-1)", "token law"),
    Mutant("residual is p", "A5", residual, "(p - q)", "p", "token law"),
    Mutant("residual is |p - q|", "A5", residual, ".clamp_min(0)", ".abs()", "token law"),
    Mutant("residual is q - p", "A5", residual, "(p - q)", "(q - p)", "token law"),
    Mutant("argmax of the residual", "A15", Token.__call__,
           "dice.draw(residual(p, q))", "int(residual(p, q).argmax())", "token law"),
    Mutant("p and q swapped in the ratio", "A15", Token.__call__, "ratio(p, q, x)", "ratio(q, p, x)", "token law"),
    Mutant("q taken for one-hot", "A18", Token.__call__, "ratio(p, q, x)", "float(p[x])", "token law"),
    Mutant("everything accepted", "A11", Token.__call__, "min(1.0, ratio(p, q, x))", "1.0", "token law"),
    Mutant("p one row too late", "A15", Token.__call__,
           "p, q = target_probs[node + 1]", "p, q = target_probs[node + 2]", "token law"),
    Mutant("argmax for the bonus", "A14", Token.__call__, "dice.draw(target_probs[node + 1])",
           "int(target_probs[node + 1].argmax())", "token law"),
    Mutant("bonus from the row before", "A14", Token.__call__, "dice.draw(target_probs[node + 1])",
           "dice.draw(target_probs[node])", "token law"),
    Mutant("a fresh sample for every child", "A11", Match.__call__, "tree.tokens[child] == y",
           "tree.tokens[child] == dice.draw(target_probs[node + 1])", "law of siblings"),
    Mutant("a uniform used twice", "A11", SeededDice.draw, "self.uniform(), float",
           "self.outcomes[-1].u if self.outcomes else self.uniform(), float", "seeded law"),

    # --- B: zero mass and NaN -----------------------------------------------------------------------------------------
    Mutant("0 / 0 in the residual", "B1", residual, "if mass > 1e-14", "if True", "forced rejection"),
    Mutant("epsilon in the residual", "B9", residual, "/ mass if mass > 1e-14", "/ (mass + 1e-9) if True",
           "forced rejection"),
    Mutant("logits / 0", "B2", Sampling.probs, "if self.temperature == 0:", "if False:", "temperature near zero"),
    Mutant("NaN goes through", "B3 B4", Sampling.probs,
           "if not bool(highest.isfinite().all()):", "if False:", "NaN refused"),
    Mutant("the last of tied ids", "H3", _one_hot_of_first, "torch.where(winners, ids, winners.shape[-1]).amin(",
           "torch.where(winners, ids, -1).amax(", "lowest of ties"),

    # --- C: stops and budgets -----------------------------------------------------------------------------------------
    Mutant("only the last token may stop", "C1 C2", cut_at_stop, "enumerate(tokens)",
           "enumerate(tokens) if k + 1 == len(tokens)", "stops"),
    Mutant("the stop token is lost", "C2", cut_at_stop, "tokens[:k + 1]", "tokens[:k]", "stops"),
    Mutant("stop_tokens must not be None", "C3", Speculation.__init__, "stop_tokens or ()", "stop_tokens", "no stops"),
    Mutant("the bonus is not in the budget", "C4 C5", Speculation.round, "self.end - context - 1", "self.end - context",
           "budget"),
    Mutant("0 / 0 for the rate", "C6", metrics, "accepted / proposed if proposed else None", "accepted / proposed",
           "no proposals"),
    Mutant("length comes before stop", "C8", Speculation.round, "if self.ids[-1] in self.stops:",
           "if self.ids[-1] in self.stops and len(self.ids) < self.end:", "stop at the end"),
    Mutant("the tail is accepted", "C16", Round.accepted.fget,
           "min(len(self.path), len(self.emitted))", "len(self.path)", "counts"),
    Mutant("the tail is proposed", "C16", Round.proposed.fget, "if not self.cut:", "if True:", "counts"),

    # --- D: caches ----------------------------------------------------------------------------------------------------
    Mutant("the draft misses a token after full acceptance", "D1", LMDrafter.propose,
           "self.ids[self.cache.length:]", "self.ids[-1:]", "draft == target"),
    Mutant("the draft rolls back one too far", "D2", LMDrafter.commit, "right))", "right) - 1)", "caches"),
    Mutant("the draft rolls back one too little", "D2 D4", LMDrafter.commit, "right))", "right + 1))", "caches"),
    Mutant("the draft never rolls back", "D2 D20", LMDrafter.commit, ROLLBACK, "pass", "caches"),
    Mutant("the draft starts over", "D14 D17", LMDrafter.commit, ROLLBACK, "self.cache.rollback(0)", "caches"),
    Mutant("the target never rolls back", "D5", Speculation.round, KEEP, "pass", "token law"),
    Mutant("the target rolls back one too far", "D2", Speculation.round,
           KEEP, "self.cache.keep(base, kept)", "token law"),
    Mutant("the target rolls back one too little", "D2", KVCache.keep, "self.rollback(base + len(path))",
           "self.rollback(min(self.length, base + len(path) + 1))", "token law"),
    Mutant("the target keeps what a stop cut off", "C1 D2", Speculation.round, "verdict.path[:len(emitted) - 1]",
           "verdict.path", "caches at a stop"),
    Mutant("positions one too high", "D6", verify, "tree.depths() + cache.length", "tree.depths() + cache.length + 1",
           "token law"),
    Mutant("stale slots are attended", "D7", KVCache.write,
           "self.keys[layer][:, :, :stop], self.values[layer][:, :, :stop]", "self.keys[layer], self.values[layer]",
           "caches"),
    Mutant("a rollback allocates", "D7", KVCache.rollback, "self.length = length",
           "self.length, self.keys = length, [rows.clone() for rows in self.keys]", "memory"),
    Mutant("the rows of another path are kept", "D14", KVCache.keep, "device=self.keys[0].device) + base",
           "device=self.keys[0].device)", "tree law"),
    Mutant("values stay behind", "D14", KVCache.keep, "(*self.keys, *self.values)", "self.keys", "caches of a tree"),
    Mutant("a drafter remembers the last call", "D19", NgramDrafter.start, "self.ends: dict[tuple[int, ...], int] = {}",
           "self.ends = getattr(self, 'ends', {})", "second call"),
    Mutant("the dice read the global generator", "J5", SeededDice.uniform,
           "generator=self.generator, ", "", "global dice"),

    # --- E: trees -----------------------------------------------------------------------------------------------------
    Mutant("positions in order of nodes", "E1", verify, "tree.depths()", "torch.arange(len(tree) + 1)", "tree law"),
    Mutant("siblings are visible", "E2", _geometry, "mask[row] = mask[above]", "mask[row, :row] = True", "tree law"),
    Mutant("a tree without a mask", "E2", verify, "mask=tree.mask().to(rows.device)", "mask=None", "tree law"),
    Mutant("the draft sees siblings", "E2", GrowingDrafter.feed, "fed in path for fed", "True for fed", "tree drafter"),
    Mutant("the draft's positions in order of rows", "E1", GrowingDrafter.feed, "len(self.ids) - 1 + len(path)",
           "self.cache.length + len(path)", "tree drafter"),
    Mutant("the draft keeps the row beside the right one", "D14", GrowingDrafter.feed, "len(tree.rows) + k",
           "len(tree.rows) + k ^ 1", "tree drafter"),
    Mutant("on a tie the younger node wins", "E", DynamicTreeDrafter.best, "(-score[node], node)",
           "(-score[node], -node)", "ties in a dynamic tree"),

    # --- rules that judge more than one token at a time ---------------------------------------------------------------
    Mutant("every child is judged against p", "E7 E11", Recursive.judge, "p = residual(p, q)", "pass", "recursive law"),
    Mutant("every child is judged against q", "E7", siblings,
           "left_over(q, taken) if tree.origin == WITHOUT_REPLACEMENT else q", "q", "law without replacement"),
    Mutant("an exhausted draft tries a token twice", "E7", left_over, "left[list(taken)] = 0\n    return", "return",
           "exhausted draft"),
    Mutant("p / 0 accepts", "B4", ratio, "if not q[x] > 0:", "if False:", "what q cannot have drawn"),
    Mutant("block forgets the mass in the residual", "A5", Block.__call__,
           "residual(P[longest] * p[longest], q[longest])", "residual(p[longest], q[longest])", "block law"),
    Mutant("block saves up more than one", "A11", Block.__call__, "min(1.0, P[i] * ratio(p[i], q[i], x))",
           "P[i] * ratio(p[i], q[i], x)", "block law"),
    Mutant("block throws the last prefix's coin for all", "A11", Block.__call__,
           "dice.accept(h[i])", "dice.accept(P[i])", "block law"),
    Mutant("a failed child costs its parent nothing", "E7", Traversal.__call__,
           "p, mass = residual(mass * p, q), kept_there(mass, p, q)", "p = residual(mass * p, q)", "traversal law"),
    Mutant("a failed child leaves its parent's p alone", "E7", Traversal.__call__,
           "p, mass = residual(mass * p, q), kept_there(mass, p, q)", "mass = kept_there(mass, p, q)", "traversal law"),
    Mutant("k children at the price of one", "E7", KSeq.judge, "price(p, q, len(children))", "1.0", "kseq law"),
    Mutant("the residual of one child after k", "E7", KSeq.judge, "residual(p, rho * q)", "residual(p, q)", "kseq law"),
]
