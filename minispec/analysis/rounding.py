"""Why greedy output may differ between two correct decoders: a pass over k tokens rounds otherwise than one over 1.

Matrix products take another path through the hardware for another number of rows, and sum in another order. In exact
arithmetic all widths agree; in float64 they agree to 1e-12 or so; in bfloat16 to two or three digits. Where the two
largest logits lie closer than that, the widths may disagree about which is the largest.

    promised       every token emitted at temperature 0 has the largest logit in the pass that judged it, the lowest id
                   on a tie; so in passes of any other width it lies within twice their difference of the largest
    not promised   that passes of different width agree about near-ties: speculative and plain output then part ways,
                   both greedy, neither wrong
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..decoding.request import as_batch
from ..model.gpt import GPT


@torch.inference_mode()
def logits_by_width(model: GPT, ids: Sequence[int], width: int) -> Tensor:
    """Logits after each of the T ids, read through a cache in passes over `width` tokens -> (T, V) float64."""
    cache = model.new_cache(len(ids))
    rows = [model(as_batch(ids[start:start + width], model), cache)[0] for start in range(0, len(ids), width)]
    return torch.cat(rows).double().cpu()


def width_gap(model: GPT, ids: Sequence[int], width: int) -> float:
    """The largest difference of any logit between passes over `width` tokens and passes over one."""
    return float((logits_by_width(model, ids, width) - logits_by_width(model, ids, 1)).abs().max())


def margins(model: GPT, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """How far each of `tokens` lies below the largest logit, in passes over one token. 0: plain decoding's own choice.

    Teacher-forced: each is judged after the tokens that really stand before it.
    """
    logits = logits_by_width(model, [*prompt, *tokens][:-1], 1)[len(prompt) - 1:]                  # (T, V)
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]                                 # (T,)
    return (logits.amax(1) - chosen).tolist()
