"""Is this rule exact? `prove` takes any callable (tree, target_probs, dice) -> Verdict and puts it into the real loop.

A student's rule, a mutant and minispec's own rules go through the same door: small models (V = 2 or 3, a real GPT in
float64, with its caches, masks and positions), every way the dice can fall, two rounds or more, and the joint law of
all tokens against the target's own. A rule that is exact here to rounding could still be wrong on larger vocabularies
or deeper trees, but the faults that people really make show up within these few tokens.

    print(prove(my_rule, shapes=CHAINS))                                   a chain rule
    print(prove(rules.Recursive(), "sampled_without_replacement"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Drafter, Verdict
from ..decoding.loop import Speculation
from ..decoding.sampling import Sampling
from ..decoding.tree import SAMPLED, TokenTree, uniform_parents
from ..drafters.table import TableDrafter
from ..model.gpt import GPT, GPTConfig
from .exact import Law, Memoised, law_error, output_law_by_rounds, sequential_law

TOLERANCE = 1e-12
CHAINS = ((1, 1), (1, 1, 1))                     # children of every node, depth by depth
TREES = ((2, 1), (1, 2), (2, 2))
PROMPT = (1, 0)

AnyRule = Callable[[TokenTree, Tensor, Dice], Verdict]


class Setting(NamedTuple):
    """One whole loop. `draft` names one of `tables`; p is cut to its top_k tokens, so that zeros meet zeros."""
    shape: tuple[int, ...]
    vocab: int
    draft: str
    top_k: int | None


@dataclass(frozen=True)
class Departure:
    """The shortest emitted prefix after which the next token has another law than the target's."""
    setting: Setting
    prefix: tuple[int, ...]
    next_token: list[tuple[float, float]]        # by token id, given the prefix: (target's probability, the loop's)

    def __str__(self) -> str:
        shape, vocab, draft, _ = self.setting
        prompt, emitted = (" ".join(map(str, ids)) for ids in (PROMPT, self.prefix))
        lines = [f"it departs first with shape {shape}, a {draft} draft, V = {vocab}; prompt {prompt}, "
                 f"emitted: {emitted or 'nothing'}", "  next   target     loop"]
        for token, (wanted, got) in enumerate(self.next_token):
            both, more, less = (round(40 * max(0.0, x)) for x in (min(wanted, got), got - wanted, wanted - got))
            lines.append(f"  {token:4}   {wanted:.4f}   {got:.4f}   {'#' * both}{'+' * more}{'-' * less}".rstrip())
        return "\n".join([*lines, "  # both   + too often in the loop   - too rarely"])


@dataclass(frozen=True)
class Proof:
    """What `prove` found. max_error: the largest difference in probability of any output, over all loops."""
    rule: str
    origin: str
    cases: int                                   # whole loops enumerated
    max_error: float
    departure: Departure | None                  # None: the laws agree

    @property
    def exact(self) -> bool:
        return self.departure is None

    def __str__(self) -> str:
        verdict = "exact" if self.exact else "NOT exact"
        line = (f"{self.rule}, children {self.origin}: {verdict}, {self.cases} whole loops, "
                f"largest error {self.max_error:.2g}")
        return line if self.exact else f"{line}\n{self.departure}"


def prove(rule: AnyRule, origin: str = SAMPLED, shapes: Sequence[Sequence[int]] | None = None,
          drafter: Callable[..., Drafter] = TableDrafter) -> Proof:
    """Enumerate the whole loop with this rule and compare laws. Takes a few seconds.

    rule:    a Rule, or any function (tree, target_probs (1 + N, V), dice) -> Verdict.
    origin:  how the drafter picks children.
    shapes:  children of every node, depth by depth; default: CHAINS if rule.chains_only, otherwise TREES.
    drafter: called as drafter(table (V, V), branching=shape, origin=origin); for drafters that cheat.
    Raises ValueError where the rule refuses such trees.
    """
    shapes = shapes or (CHAINS if getattr(rule, "chains_only", False) else TREES)
    errors, first = [], None
    for setting in (s for shape in shapes for s in settings(tuple(shape))):
        loop, own = laws(rule, origin, setting, drafter)
        errors.append(law_error(loop, own))
        if first is None and errors[-1] > TOLERANCE:
            first = departure(loop, own, setting)
    name = getattr(rule, "name", None) or getattr(rule, "__name__", type(rule).__name__)
    return Proof(name, origin, len(errors), max(errors), first)


def settings(shape: tuple[int, ...]) -> list[Setting]:
    """A dense draft, with V = 3 where that takes about a second, otherwise 2; and a sparse one with V = 3, of which
    the first row alone is full, against a p with zeros."""
    dense = 3 if len(uniform_parents(shape)) <= 4 and len(shape) <= 2 else 2
    return [Setting(shape, dense, "dense", None), Setting(shape, 3, "sparse", 2)]


def laws(rule: AnyRule, origin: str, setting: Setting, drafter: Callable[..., Drafter]) -> tuple[Law, Law]:
    """(the loop's law, the target's own) over enough tokens that no round can emit them all."""
    new_tokens, sampling = len(setting.shape) + 2, Sampling(temperature=1.5, top_k=setting.top_k)
    table, target = tables(setting.vocab)[setting.draft], tiny_target(setting.vocab)
    loop = output_law_by_rounds(lambda: Speculation(
        target, drafter(table, branching=setting.shape, origin=origin), PROMPT,
        max_new_tokens=new_tokens, rule=rule, sampling=sampling))
    return loop, _own_law(setting.vocab, new_tokens, sampling)


def departure(loop: Law, own: Law, setting: Setting) -> Departure:
    """The first prefix, shortest first, whose next token has another law in the loop than under the target."""
    both = {}                                                              # prefix: [(target, loop)] by next token
    for size in range(max(map(len, own))):
        for prefix in sorted({key[:size] for key in own}):
            both[prefix] = list(zip(*(_next_token(law, prefix, setting.vocab) for law in (own, loop))))
    gaps = {prefix: max(abs(a - b) for a, b in pairs) for prefix, pairs in both.items()}
    first = next((prefix for prefix, gap in gaps.items() if gap > TOLERANCE), max(gaps, key=gaps.get))
    return Departure(setting, first, both[first])


def _next_token(law: Law, prefix: tuple[int, ...], vocab: int) -> list[float]:
    """P(next token | prefix) by token id."""
    by_token = [sum(chance for key, chance in law.items() if key[:len(prefix) + 1] == (*prefix, token))
                for token in range(vocab)]
    total = sum(by_token)
    return [chance / total for chance in by_token] if total else by_token


# --- small models ----------------------------------------------------------------------------------------------------

def tables(vocab: int) -> dict[str, Tensor]:
    """Draft models as tables (V, V), row = last token. Sparse: the row of 0 is full, of 1 one-hot, of 2 has a zero.

    They like the last token too much. What p has left is then spread over several tokens, where a wrong residual shows.
    """
    dice = torch.Generator().manual_seed(vocab)
    dense = torch.rand(vocab, vocab, generator=dice, dtype=torch.float64) + 0.1
    dense[:, -1] += 0.5
    sparse = dense.clone()
    sparse[1, 1:] = 0
    sparse[2:, 0] = 0
    return {"dense": dense / dense.sum(-1, keepdim=True), "sparse": sparse / sparse.sum(-1, keepdim=True)}


@lru_cache(maxsize=None)
def tiny_target(vocab: int, seed: int = 0) -> Memoised:
    """A GPT of two layers in float64, its weights random and large enough that laws depend on the whole context."""
    with torch.random.fork_rng(devices=[]):                               # building a module draws from the global dice
        model = GPT(GPTConfig(vocab_size=vocab, context=16, n_layer=2, n_head=1, n_embd=8)).double().eval()
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            weight.copy_(centre + 0.5 * torch.randn(weight.shape, generator=dice, dtype=torch.float64))
    return Memoised(model)


@lru_cache(maxsize=None)
def _own_law(vocab: int, new_tokens: int, sampling: Sampling) -> Law:
    return sequential_law(tiny_target(vocab).model, PROMPT, new_tokens, sampling=sampling)
