"""Retrieve first, fall back to a model: two drafters behind one face.

Where the text repeats itself, looking up what followed last time costs nothing and is often right for many tokens;
where it doesn't, nothing is found, and a model drafts. Each round has one author, whose tree goes out as it is. The
tree's `origin` says how it must be judged: rules.Match is exact for both kinds, and
rules.ByOrigin(rules.Token(), rules.Match()) is exact too and keeps more of the model's tokens.

The one who didn't propose must still learn what was committed, or its cache and memory would tell of another text. The
protocol has the words for that: a round without room, in which nothing is proposed and one token comes from the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decoding.dice import Dice
from ..decoding.drafter import Drafter, Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import TokenTree

NO_DICE = Dice()                                         # where there is no room, nothing is thrown: these would raise


class FallbackDrafter:
    """Asks `first`, and `then` only where `first` proposes nothing.

    Who is asked may depend on the committed tokens alone. Letting the model draw, and looking something up instead
    where its token seems a bad one, would be a peek: the tokens that remain would no longer have the law q.
    """

    def __init__(self, first: Drafter, then: Drafter):
        self.first, self.then = first, then
        self.max_nodes = max(first.max_nodes, then.max_nodes)

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.first.start(prompt, sampling)
        self.then.start(prompt, sampling)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        self.tree = self.first.propose(dice, room)
        self.fell_back = not len(self.tree)
        if self.fell_back:
            self.tree = self.then.propose(dice, room)
        return self.tree

    def commit(self, verdict: Verdict) -> None:
        author, other = (self.then, self.first) if self.fell_back else (self.first, self.then)
        author.commit(verdict)
        tell(other, [*(self.tree.tokens[node] for node in verdict.path), verdict.token])

    def cache_length(self) -> int | None:
        """The model's, or whoever of the two has a cache."""
        lengths = (self.then.cache_length(), self.first.cache_length())
        return next((length for length in lengths if length is not None), None)


def tell(drafter: Drafter, tokens: Sequence[int]) -> None:
    """Tokens were committed that `drafter` did not propose. A model reads them when it next drafts, in one pass."""
    for token in tokens:
        drafter.propose(NO_DICE, 0)
        drafter.commit(Verdict([], token, bonus=True))
