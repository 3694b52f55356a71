"""Solutions of lesson 00: who made each token, and how many tokens a target pass yields."""

from minispec.decoding import Round


def roles(r: Round) -> list[str]:
    """The role of each emitted token. A stop token may cut the round: then the rest is not emitted."""
    own = "target" if not r.tokens else "bonus" if r.bonus else "correction"
    return (["accepted"] * len(r.path) + [own])[:len(r.emitted)]


def tokens_per_pass(rounds: list[Round]) -> float:
    """Sum over sum: emitted tokens, the target's own included, over target passes, one a round."""
    return sum(len(r.emitted) for r in rounds) / len(rounds)
