"""Drafts that speak another vocabulary than their target (Timor et al. 2502.05202).

    SharedTokensDrafter    proposes only tokens whose *string* both have, drawn from q as it is once all others are
                           ruled out: an ordinary sampled chain, so every chain rule is exact. Acceptance is at most
                           p(shared tokens).
    TextDrafter            writes text in its own tokens; the target's tokenizer cuts that text into the target's.
                           What q says of the result nobody knows: the tree is "chosen", and rules.Match is exact.

Two mistakes are easy here. Ruling tokens out *after* they were drawn leaves a q that was never sampled. And tokenising
committed text again can change tokens that were emitted already; so committed tokens are only ever spelled out, each by
itself, in the draft's vocabulary, and appended to what the draft has read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..decoding.dice import Dice
from ..decoding.drafter import Verdict
from ..decoding.sampling import Sampling
from ..decoding.tree import CHOSEN, TokenTree
from ..model.cache import KVCache
from ..model.gpt import GPT
from .lm import LMDrafter


class Vocabularies:
    """A draft's and a target's vocabulary as strings, draft[id] and target[id]; a special token's string is its name.

    shared: {draft id: target id} for every string that both have. Raises ValueError if there is none.
    """

    def __init__(self, draft: Sequence[bytes], target: Sequence[bytes]):
        self.draft, self.target = tuple(draft), tuple(target)
        ids = {string: token for token, string in reversed(list(enumerate(self.draft)))}     # the lowest of equals
        places = {string: token for token, string in reversed(list(enumerate(self.target)))}
        self.shared = {ids[string]: places[string] for string in ids if string in places}
        self._ids, self._longest = ids, max(map(len, ids))
        if not self.shared:
            raise ValueError(f"draft and target share no token: the draft's are {self.draft[:3]}, ..., "
                             f"the target's {self.target[:3]}, ...")

    def check_same(self) -> None:
        """Raise ValueError, naming the first difference, unless both are one vocabulary (as LMDrafter needs it)."""
        for token, (a, b) in enumerate(zip(self.draft, self.target)):
            if a != b:
                raise ValueError(f"token {token} is {a!r} to the draft and {b!r} to the target: "
                                 f"use SharedTokensDrafter or TextDrafter")
        if len(self.draft) != len(self.target):
            raise ValueError(f"the draft has {len(self.draft)} tokens, the target {len(self.target)}: "
                             f"use SharedTokensDrafter or TextDrafter")

    def text(self, tokens: Sequence[int]) -> bytes:
        """What the target's `tokens` say."""
        return b"".join(self.target[token] for token in tokens)

    def spell(self, text: bytes) -> list[int]:
        """Text in the draft's tokens, the longest that fits first; what it has no token for is left out."""
        tokens, place = [], 0
        while place < len(text):
            size = next((n for n in range(self._longest, 0, -1) if text[place:place + n] in self._ids), 0)
            tokens += [self._ids[text[place:place + size]]] if size else []
            place += size or 1
        return tokens


class OtherVocabularyDrafter(LMDrafter):
    """What both have in common: `ids`, `proposed` and the cache hold the draft's tokens, `offered` the target's.

    The draft's context counts in its own tokens; where it is full, nothing more is proposed.
    """

    def __init__(self, draft: GPT, words: Vocabularies, length: int, sampling: Sampling | None):
        if draft.config.vocab_size != len(words.draft):
            raise ValueError(f"the draft has {draft.config.vocab_size} tokens, {len(words.draft)} strings were given")
        super().__init__(draft, length, sampling)
        self.words = words

    def start(self, prompt: Sequence[int], sampling: Sampling) -> None:
        super().start([token for one in prompt for token in self.words.spell(self.words.text([one]))], sampling)
        self.offered: tuple[int, ...] = ()

    def reach(self, room: int) -> int:
        return super().reach(room) if self.ids else 0            # it has read nothing yet that it could spell

    def commit(self, verdict: Verdict) -> None:
        text, kept = self.words.text([*(self.offered[node] for node in verdict.path), verdict.token]), 0
        for token in self.proposed:                              # its own tokens, as far as they say what was committed
            if not text.startswith(self.words.draft[token]):
                break
            text, kept = text[len(self.words.draft[token]):], kept + 1
        right = len(self.ids) + kept
        self.ids = [*self.ids, *self.proposed[:kept], *self.words.spell(text)]
        self.cache.rollback(max(0, min(self.cache.length, right, len(self.ids) - 1)))        # the last one is to be fed
        self.proposed = self.offered = ()


class SharedTokensDrafter(OtherVocabularyDrafter):
    """Token-level intersection: a chain of up to `length` shared tokens, each drawn from q over the shared ones."""

    def __init__(self, draft: GPT, words: Vocabularies, length: int = 5, sampling: Sampling | None = None):
        super().__init__(draft, words, length, sampling)
        self.draft = Restricted(draft, list(words.shared))
        self.draft_ids, self.target_ids = map(torch.tensor, zip(*words.shared.items()))              # (S,), (S,)

    def propose(self, dice: Dice, room: int) -> TokenTree:
        chain = super().propose(dice, room)
        self.offered = tuple(self.words.shared[token] for token in chain.tokens)
        return TokenTree.chain(self.offered, [self.translate(chain.draft_probs[k - 1]) for k in range(len(chain))])

    def translate(self, q: Tensor) -> Tensor:
        """A law over the draft's vocabulary (Vd,) -> over the target's (V,)."""
        translated = q.new_zeros(len(self.words.target))
        translated[self.target_ids] = q[self.draft_ids]
        return translated


class Restricted:
    """A draft that cannot say all of its tokens: the logits of the others are -inf, before anything is sampled."""

    def __init__(self, model: GPT, allowed: Sequence[int]):
        self.model, self.config, self.device = model, model.config, model.device
        self.banned = torch.ones(model.config.vocab_size, dtype=torch.bool, device=model.device)     # (V,)
        self.banned[list(allowed)] = False

    def new_cache(self, capacity: int | None = None) -> KVCache:
        return self.model.new_cache(capacity)

    def __call__(self, tokens: Tensor, cache: KVCache, **where: Tensor) -> Tensor:
        return self.model(tokens, cache, **where).masked_fill(self.banned, float("-inf"))            # (1, T, V)


class TextDrafter(OtherVocabularyDrafter):
    """String-level matching: `length` tokens of the draft's own as text, and the target's tokens for that text.

    encode:   text -> the target's tokens, see `text_encoder`. It is only ever given proposed text.
    sampling: default: the likeliest text. (Matching accepts a drawn token less often than the likeliest.)
    """

    def __init__(self, draft: GPT, words: Vocabularies, encode: Callable[[bytes], Sequence[int]], length: int = 16,
                 sampling: Sampling = Sampling(temperature=0.0)):
        super().__init__(draft, words, length, sampling)
        self.encode = encode

    def propose(self, dice: Dice, room: int) -> TokenTree:
        super().propose(dice, self.length if room else 0)
        text = b"".join(self.words.draft[token] for token in self.proposed)
        self.offered = tuple(self.encode(text)[:min(room, self.max_nodes)]) if text else ()
        return TokenTree.chain(self.offered, origin=CHOSEN)


# --- from the `tokenizers` library ------------------------------------------------------------------------------------

def token_strings(tokenizer: Tokenizer) -> list[bytes]:
    """The string of every token of a byte-level BPE tokenizer, by id.

    Its vocabulary is written in GPT-2's alphabet: printable bytes as themselves, the others as characters from 256 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + k): byte for k, byte in enumerate(others)}
    special = tokenizer.get_added_tokens_decoder()
    names = (tokenizer.id_to_token(token) for token in range(tokenizer.get_vocab_size()))
    return [name.encode() if token in special else bytes(byte_of[c] for c in name) for token, name in enumerate(names)]


def text_encoder(tokenizer: Tokenizer) -> Callable[[bytes], list[int]]:
    """encode(text) for TextDrafter: whole characters only, a text that ends inside one is cut before it."""
    def encode(text: bytes) -> list[int]:
        try:
            return tokenizer.encode(text.decode(), add_special_tokens=False).ids
        except UnicodeDecodeError as error:
            return tokenizer.encode(text[:error.start].decode(), add_special_tokens=False).ids

    return encode
