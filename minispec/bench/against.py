"""The same weights in `transformers`: how long its plain and its assisted generation take beside ours.

Both sides decode the same prompts greedily to the same number of new tokens, in turns, and whole calls are timed,
prefill and all, since a foreign library shows no more than that. The pair is exported as `python -m minispec export`
does it; the assistant proposes a fixed number of tokens, as ours does. Equal weights, equal work: what differs is the
loop around the passes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..decoding import Sampling, generate, speculate
from ..decoding.request import as_batch
from ..drafters import LMDrafter
from ..model.gpt import GPT
from ..model.gpt2 import export_gpt2

Decode = Callable[[Sequence[int]], list[int]]            # prompt -> new tokens


def against_transformers(target: GPT, draft: GPT, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], *,
                         max_new_tokens: int = 128, draft_length: int = 5) -> list[dict]:
    """Rows {method, tokens_per_second, transformers_tokens_per_second, ratio, equal_outputs}, plain and speculative.

    equal_outputs: the share of prompts on which both sides gave the same tokens (near-ties aside: all of them).
    Raises ValueError where transformers is not installed.
    """
    ours = {"plain": lambda ids: generate(target, ids, max_new_tokens=max_new_tokens,
                                          sampling=Sampling(temperature=0)).tokens,
            "speculative": lambda ids: speculate(target, LMDrafter(draft, draft_length), ids,
                                                 max_new_tokens=max_new_tokens,
                                                 sampling=Sampling(temperature=0)).tokens}
    theirs = _transformers(target, draft, tokenizer, max_new_tokens, draft_length)
    sides = {("ours", name): decode for name, decode in ours.items()}
    sides |= {("theirs", name): decode for name, decode in theirs.items()}
    seconds, tokens = dict.fromkeys(sides, 0.0), {key: [] for key in sides}
    for decode in sides.values():
        decode(prompts[0])                                       # warm up
    for i, ids in enumerate(prompts):
        order = list(sides)[i % len(sides):] + list(sides)[:i % len(sides)]
        for key in order:
            started = time.perf_counter()
            tokens[key].append(sides[key](ids))
            seconds[key] += time.perf_counter() - started
    rate = {key: sum(map(len, tokens[key])) / seconds[key] for key in sides}
    return [{"method": name, "tokens_per_second": rate["ours", name],
             "transformers_tokens_per_second": rate["theirs", name], "ratio": rate["ours", name] / rate["theirs", name],
             "equal_outputs": sum(a == b for a, b in zip(tokens["ours", name], tokens["theirs", name])) / len(prompts)}
            for name in ours]


def _transformers(target: GPT, draft: GPT, tokenizer: Tokenizer, max_new_tokens: int, draft_length: int,
                  ) -> dict[str, Decode]:
    """Its plain and its assisted greedy generation with the weights of our pair."""
    try:
        from transformers import GPT2LMHeadModel, logging
    except ImportError:
        raise ValueError("the comparison needs transformers: pip install -r requirements.txt") from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    models = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("target", target), ("draft", draft)):
            export_gpt2(model, tokenizer, Path(folder) / name)
            loaded = GPT2LMHeadModel.from_pretrained(Path(folder) / name, dtype=model.wte.weight.dtype)
            loaded.generation_config.eos_token_id = None         # as ours: no stop before the last token
            models.append(loaded.to(model.device))
    theirs, assistant = models
    assistant.generation_config.update(num_assistant_tokens=draft_length, num_assistant_tokens_schedule="constant",
                                       assistant_confidence_threshold=0.0)

    def decode(ids: Sequence[int], **options: object) -> list[int]:
        prompt = as_batch(ids, target)
        out = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=max_new_tokens, **options)
        return out[0, len(ids):].tolist()

    return {"plain": decode, "speculative": lambda ids: decode(ids, assistant_model=assistant)}
