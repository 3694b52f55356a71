"""The list behind `python -m minispec check`: every rule, on every kind of tree that it says it can judge."""

from __future__ import annotations

from ..decoding import rules
from .prove import prove

RULES = (rules.Token(), rules.Block(), rules.Recursive(), rules.Traversal(), rules.KSeq(), rules.Match(), rules.Typical())


def rows() -> list[dict]:
    """One row {rule, origin, cases, max_error, exact, passed} for each rule and origin.

    exact: what the rule claims; passed: the proof found just that. A lossy rule that turned out exact would not pass.
    """
    return [row(rule, origin) for rule in RULES for origin in rule.origins]


def row(rule: rules.Rule, origin: str) -> dict:
    proof = prove(rule, origin)
    return dict(rule=rule.name, origin=origin, cases=proof.cases, max_error=proof.max_error, exact=rule.exact,
                passed=proof.exact == rule.exact)
