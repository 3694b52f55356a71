"""What is asked for, checked once: the same for plain and for speculative decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..model.gpt import GPT
from .tree import TokenTree


def check_request(target: GPT, prompt: Sequence[int] | Tensor, max_new_tokens: int,
                  stop_tokens: Sequence[int] | None) -> list[int]:
    """The prompt as a list. Raises ValueError that says what was given and what is allowed."""
    if isinstance(prompt, Tensor) and prompt.ndim == 2 and len(prompt) > 1:
        raise ValueError(f"a batch of {len(prompt)} prompts was given: decode one sequence at a time")
    ids = prompt.flatten().tolist() if isinstance(prompt, Tensor) else list(prompt)
    if any(isinstance(token, (list, tuple, Tensor)) for token in ids):
        raise ValueError(f"a list of {len(ids)} prompts was given: decode one sequence at a time")
    size, context = target.config.vocab_size, target.config.context
    if not ids:
        raise ValueError("the prompt is empty: give at least one token (the end-of-text token starts a text)")
    for token in [*ids, *(stop_tokens or ())]:
        if not isinstance(token, int) or not 0 <= token < size:
            raise ValueError(f"token {token!r} is out of range: ids are whole numbers from 0 to {size - 1}")
    if len(ids) >= context:
        raise ValueError(f"the prompt has {len(ids)} tokens: at most {context - 1} fit a context of {context}")
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be a whole number >= 1, got {max_new_tokens!r}")
    return ids


def check_proposal(tree: TokenTree, room: int, target: GPT) -> None:
    """Raise ValueError if a drafter went past its room, or does not speak the target's vocabulary."""
    size, depth = target.config.vocab_size, int(tree.depths().max())
    if depth > room:
        raise ValueError(f"the drafter proposed {depth} tokens in a row: there is room for {room}")
    for q in tree.draft_probs.values():
        if len(q) != size:
            raise ValueError(f"the draft has a vocabulary of {len(q)} tokens, the target one of {size}: "
                             f"they must share one")
    if any(not 0 <= token < size for token in tree.tokens):
        raise ValueError(f"the drafter proposed {tree.tokens}: the target's ids are whole numbers from 0 to {size - 1}")


def end_of(target: GPT, ids: Sequence[int], max_new_tokens: int) -> tuple[int, str]:
    """(length at which the sequence ends if no stop token comes first, the stop_reason this end has)."""
    wanted, context = len(ids) + max_new_tokens, target.config.context
    return (wanted, "length") if wanted <= context else (context, "context")


def as_batch(ids: Sequence[int], model: GPT) -> Tensor:
    """Token ids -> (1, T) int64 on the model's device."""
    return torch.tensor([ids], dtype=torch.int64, device=model.device)


def cut_at_stop(tokens: list[int], stops: frozenset[int]) -> list[int]:
    """The tokens up to and including the first stop token."""
    return next((tokens[:k + 1] for k, token in enumerate(tokens) if token in stops), tokens)
