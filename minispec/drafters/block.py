"""The block drafter: all tokens of a proposal in one draft pass (PARD, 2504.18583).

A chain of γ tokens costs a language-model drafter γ passes, since each token waits for the one before. Here the draft
reads what was committed and γ - 1 copies of one *mask token*, which stands for "a token not known yet":

    input    x5  x6  [m] [m] [m]            x6 is the last committed token
    output       q1  q2  q3  q4             laws of the next four tokens, given x1 .. x6 only

No guess sees the guess before it, so q factorises: later places are guessed less well than by a chain, for one pass
instead of γ. The tokens are drawn from exactly these q's, so chain rules (Token, Block) stay exact.

The masks' keys and values must not stay in the cache: the next round would attend to tokens that never were. The cache
holds committed tokens only, never a proposal, so a rejection leaves nothing to roll back.
"""

from __future__ import annotations

import torch

from ..decoding.dice import Dice
from ..decoding.request import as_batch
from ..decoding.tree import TokenTree
from ..model.gpt import GPT, GPTConfig
from .lm import LMDrafter


class BlockDrafter(LMDrafter):
    """Proposes a chain of `length` tokens from one pass of `draft`, whose last token id is the mask token.

    `draft` is trained for this (training/block.py); its vocabulary is the target's and one more. Errors as LMDrafter.
    """

    def propose(self, dice: Dice, room: int) -> TokenTree:
        length, mask = self.reach(room), self.draft.config.vocab_size - 1
        if length < 1:
            return TokenTree()
        rows = self.ids[self.cache.length:] + [mask] * (length - 1)
        logits = self.draft(as_batch(rows, self.draft), self.cache)[0, -length:, :mask]      # (length, V)
        self.cache.rollback(len(self.ids))                                                   # drop the masks' rows
        draft_probs = self.sampling.probs(logits).cpu()
        self.proposed = tuple(dice.draw(q) for q in draft_probs)
        return TokenTree.chain(self.proposed, list(draft_probs))


def with_mask_token(draft: GPT) -> GPT:
    """A copy of `draft` with one more token, the mask: V -> V + 1. Its vector starts as the mean of all others."""
    old = draft.state_dict()
    with torch.random.fork_rng(devices=[]):                      # building a module draws from the global dice
        model = GPT(GPTConfig(**{**vars(draft.config), "vocab_size": draft.config.vocab_size + 1}))
    model.load_state_dict(old | {"wte.weight": torch.cat([old["wte.weight"], old["wte.weight"].mean(0, keepdim=True)])})
    return model.to(draft.device, draft.wte.weight.dtype)
