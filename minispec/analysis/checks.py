"""The list behind `python -m minispec check`: every rule, on every kind of tree that it says it can judge."""

from __future__ import annotations

from typing import TypedDict

from ..decoding import rules
from .prove import prove

RULES = (rules.Token(), rules.Block(), rules.Recursive(), rules.Traversal(), rules.KSeq(), rules.Match(),
         rules.Typical())


class Row(TypedDict):
    rule: str
    origin: str                  # how children were picked
    cases: int                   # whole loops enumerated
    max_error: float             # largest difference in probability of any output
    exact: bool                  # what the rule claims
    passed: bool                 # the proof found just that: a lossy rule that turned out exact would not pass


def rows() -> list[Row]:
    """One row for each rule and origin. Takes some twenty seconds."""
    return [row(rule, origin) for rule in RULES for origin in rule.origins]


def row(rule: rules.Rule, origin: str) -> Row:
    proof = prove(rule, origin)
    return Row(rule=rule.name, origin=origin, cases=proof.cases, max_error=proof.max_error, exact=rule.exact,
               passed=proof.exact == rule.exact)
