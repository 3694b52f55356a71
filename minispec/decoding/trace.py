"""The trace: one record a round. Tests, tables, figures and widgets read it; nothing recomputes it.

A record keeps what can't be worked out afterwards: the tree, p and q at its nodes (the likeliest entries, or all of a
small vocabulary), every throw of the dice, the verdict, what was emitted, cache lengths and seconds. JSON in and out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from .dice import Outcome
from .drafter import Verdict
from .tree import TokenTree

TOP = 8                      # entries of p and q kept at a node of a large vocabulary
ALL = 64                     # vocabularies up to this size are kept whole


@dataclass(frozen=True)
class Round:
    """One round. `emitted` is what the reader got: path tokens and the target's own, cut at a stop or budget."""
    context: int                                    # committed tokens before the round
    tokens: list[int]                               # the tree: (N,)
    parents: list[int]                              # (N,)
    origin: str
    target_top: list[dict[int, float]]              # p at the root and at each node: {token: probability}, (1 + N,)
    draft_top: dict[int, dict[int, float]]          # q at each node that has children
    outcomes: list[Outcome]                         # dice of draft and acceptance, in order
    path: list[int]                                 # accepted nodes
    token: int                                      # correction or bonus
    bonus: bool
    emitted: list[int]
    target_cache: tuple[int, int, int]              # length before the pass, after it, after the rollback
    draft_cache: tuple[int | None, int | None, int | None]
    seconds: dict[str, float]                       # draft, verify, accept (rule and rollback)
    layer_tokens: list[int] | None = None           # rows that each layer processed, drafting and verifying: (L,)

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.path, self.token, self.bonus)

    @property
    def tree(self) -> TokenTree:
        """The tree's shape and tokens (without draft_probs, of which `draft_top` holds the likeliest entries)."""
        return TokenTree(tuple(self.tokens), tuple(self.parents), {}, self.origin)

    @property
    def cut(self) -> int:
        """Tokens of the verdict that were not emitted (a stop, the budget or the context came first)."""
        return len(self.path) + 1 - len(self.emitted)

    @property
    def accepted(self) -> int:
        """Proposed tokens that were emitted."""
        return min(len(self.path), len(self.emitted))

    def provenance(self) -> list[tuple[int, str]]:
        """(token, role) of each emitted token: "accepted" proposals, then the target's own, which is a "correction"
        after a rejection, a "bonus" after none, and just "target" where nothing was proposed (plain decoding)."""
        own = "target" if not self.tokens else "bonus" if self.bonus else "correction"
        return [(token, "accepted" if k < len(self.path) else own) for k, token in enumerate(self.emitted)]

    @property
    def proposed(self) -> int:
        """Proposed tokens, without those deeper than a cut."""
        if not self.cut:
            return len(self.tokens)
        return int((self.tree.depths()[1:] <= len(self.emitted)).sum())


@dataclass
class Trace:
    """All rounds of one generation, and the seconds that went by outside of them."""
    prompt_length: int
    method: str                                     # "plain" or "speculative"
    rounds: list[Round] = field(default_factory=list)
    prefill_seconds: float = 0.0
    total_seconds: float = 0.0                      # from the call to its end, prefill included

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read what `to_json` wrote. Raises ValueError where the text is no trace."""
        try:
            data = json.loads(text)
            data["rounds"] = [_round_from(record) for record in data["rounds"]]
            return cls(**data)
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is no trace: {error}") from None


@dataclass(frozen=True)
class Generation:
    """What `generate` and `speculate` return."""
    prompt: list[int]
    tokens: list[int]                               # the new tokens; a stop token that was met is the last of them
    stop_reason: str                                # "stop", "length" (max_new_tokens) or "context"
    trace: Trace

    @property
    def text_ids(self) -> list[int]:
        """Prompt and new tokens, for the tokenizer."""
        return self.prompt + self.tokens


def record(context: int, tree: TokenTree, target_probs: Tensor, outcomes: list[Outcome], verdict: Verdict,
           emitted: list[int], *, target_cache: tuple[int, int, int], draft_cache: tuple, clock: list[float],
           layer_tokens: list[int] | None = None) -> Round:
    """A Round from what the loop had in hand; clock: four readings in seconds, around draft, verify and accept;
    layer_tokens: None unless the target counts its rows, as a SharedBackbone does."""
    seconds = {name: stop - start for name, start, stop in zip(("draft", "verify", "accept"), clock, clock[1:])}
    return Round(context, list(tree.tokens), list(tree.parents), tree.origin, top(target_probs),
                 top_by_node(tree.draft_probs), outcomes, list(verdict.path), verdict.token, verdict.bonus, emitted,
                 target_cache, draft_cache, seconds, layer_tokens)


def top(probs: Tensor) -> list[dict[int, float]]:
    """Rows of (R, V) -> one {token: probability} each, likeliest first; tokens of probability 0 are left out."""
    values, ids = probs.topk(probs.shape[-1] if probs.shape[-1] <= ALL else TOP, dim=-1)
    return [{i: v for i, v in zip(row_ids, row_values) if v > 0}
            for row_ids, row_values in zip(ids.tolist(), values.tolist())]


def top_by_node(draft_probs: dict[int, Tensor]) -> dict[int, dict[int, float]]:
    return dict(zip(draft_probs, top(torch.stack(list(draft_probs.values()))))) if draft_probs else {}


def _round_from(record: dict) -> Round:
    """JSON turns integer keys into strings and tuples into lists; turn them back."""
    ids = lambda entry: {int(token): value for token, value in entry.items()}
    record["target_top"] = [ids(entry) for entry in record["target_top"]]
    record["draft_top"] = {int(node): ids(entry) for node, entry in record["draft_top"].items()}
    record["outcomes"] = [Outcome(*outcome) for outcome in record["outcomes"]]
    record["target_cache"], record["draft_cache"] = tuple(record["target_cache"]), tuple(record["draft_cache"])
    return Round(**record)
