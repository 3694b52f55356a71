"""Training a draft with another vocabulary: it reads what its target reads, spelled in its own tokens.

The shipped one knows single bytes, the smallest vocabulary that can spell everything. Its text is the draft's mixture,
the target's own continuations included: with another vocabulary there is no law to compare at each position, so what
the target wrote is all that can be learned from it (sequence-level distillation, Kim & Rush 1606.07947). The recipe's
`loss` is there for the card, the loss is the cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..drafters.vocab import Vocabularies, token_strings
from ..model.gpt import GPT, GPTConfig
from . import losses
from .data import Mixture, cache_dir
from .distill import DRAFT, Distillation, training_data
from .tokenizer import byte_tokenizer
from .train import Schedule, fast_dtype, fit

BYTE = Distillation(
    "byte", GPTConfig(vocab_size=260, context=1536, n_layer=2, n_head=4, n_embd=128), DRAFT.weights,
    Schedule(steps=800, batch_tokens=12288, length=1536, short_length=512, short_until=0.25), loss="cross-entropy")


class Spelled:
    """A mixture's windows in another vocabulary: each token is spelled by itself, as the drafters do (vocab.py)."""

    def __init__(self, mixture: Mixture, words: Vocabularies):
        self.mixture = mixture
        self.spelled = [words.spell(words.text([token])) for token in range(len(words.target))]

    def batch(self, seed: int, step: int, size: int, length: int) -> Tensor:
        """-> (size, length + 1) int64 of the draft's tokens. Every token gives one or more, so the windows are full."""
        rows = self.mixture.batch(seed, step, size, length)                                  # (size, length + 1)
        spelled = [list(chain.from_iterable(self.spelled[token] for token in row)) for row in rows.tolist()]
        return torch.tensor([row[:length + 1] for row in spelled])


def byte_words(tokenizer: Tokenizer) -> Vocabularies:
    """The byte draft's vocabulary beside the target's."""
    return Vocabularies(token_strings(byte_tokenizer()), token_strings(tokenizer))


def train_byte(recipe: Distillation, target: GPT, tokenizer: Tokenizer,
               report: Callable[[str], None] = print) -> GPT:
    """Train the recipe's draft, from scratch or on from its checkpoint in the cache folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        draft = GPT(recipe.config).to(target.device)
    data = Spelled(training_data(recipe, target, tokenizer, report), byte_words(tokenizer))
    fit(draft, lambda batch, _: losses.cross_entropy(draft(batch[:, :-1]), batch[:, 1:]), data, recipe.schedule,
        cache_dir() / f"{recipe.name}.pt", seed=recipe.seed, report=report, autocast=fast_dtype(target.device))
    return draft
