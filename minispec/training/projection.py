"""Fitting a projected KV cache, and saying how far off it is (see model/projected.py).

The maps are ridge regressions in closed form: one pass of both models over some text, no gradient, no step size. A row
of the draft holds K and V of one position, both linear in the same C_d numbers, so its 2 C_d numbers span at most C_d
directions: without the ridge the equations would have no unique answer.

Two meters: R^2 says how well keys and values are guessed, `tv_per_token` what that does to the next token's law. Over n
tokens drawn from p the law drifts by at most the sum of the expected distances, n times the meter:
TV(p^n, p~^n) <= n TV.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model.gpt import GPT
from ..model.projected import LossyProjectedTarget, Projection, flat, sources
from . import losses


@torch.no_grad()
def rows(model: GPT, window: Tensor) -> list[Tensor]:
    """What the model's cache holds after a window (T,): for each layer (T, 2 C), float64."""
    cache = model.new_cache(len(window))
    model.hidden(window[None].to(model.device), cache)
    return [flat(keys, values)[0].double() for keys, values in zip(cache.keys, cache.values)]


def fit_projection(draft: GPT, target: GPT, windows: Tensor, ridge: float = 1e-4) -> Projection:
    """The maps of least squared error over windows (B, T) of text, in the target's dtype.

    ridge: penalty on squared weights (not on the bias), in units of the draft rows' mean square.
    """
    source = sources(draft.config, target.config)
    gram, cross = [0.0] * draft.config.n_layer, [0.0] * target.config.n_layer
    for window in windows:                                            # sums over windows: nothing else stays in memory
        x = [F.pad(row, (0, 1), value=1.0) for row in rows(draft, window)]                   # (T, 2 C_d + 1): the bias
        gram = [so_far + row.mT @ row for so_far, row in zip(gram, x)]
        cross = [so_far + x[s].mT @ y for so_far, s, y in zip(cross, source, rows(target, window))]
    weights, biases = [], []
    for s, product in zip(source, cross):                             # product: (2 C_d + 1, 2 C)
        penalty = torch.full_like(gram[s][0], ridge * float(gram[s].diagonal()[:-1].mean()))
        penalty[-1] = 0.0
        solution = torch.linalg.solve(gram[s] + penalty.diag(), product)
        weights.append(solution[:-1].mT)
        biases.append(solution[-1])
    projection = Projection(torch.stack(weights), torch.stack(biases), target.config.n_head)
    return projection.to(target.wte.weight.dtype)


def r_squared(projection: Projection, draft: GPT, target: GPT, windows: Tensor) -> Tensor:
    """Explained share of the variance on windows (B, T), which the fit should not have read: (L, 2), for K and for V.

    1 is a perfect guess, 0 no better than the mean of each number.
    """
    source, count = sources(draft.config, target.config), windows.numel()
    weight, bias = projection.weight.double(), projection.bias.double()
    missed, total, square = 0.0, 0.0, 0.0
    for window in windows:
        y = torch.stack(rows(target, window))                                                # (L, T, 2 C)
        x = torch.stack(rows(draft, window))[source]                                         # (L, T, 2 C_d)
        guess = x @ weight.mT + bias[:, None]
        missed = missed + (y - guess).square().sum(1)                                        # (L, 2 C)
        total, square = total + y.sum(1), square + y.square().sum(1)
    spread = square - total.square() / count                                                 # (L, 2 C)
    per_side = lambda sums: sums.unflatten(-1, (2, -1)).sum(-1)                              # (L, 2)
    return 1 - per_side(missed) / per_side(spread)


@torch.no_grad()
def tv_per_token(target: GPT, lossy: LossyProjectedTarget, windows: Tensor) -> float:
    """Mean TV(p~, p) of the next token over all positions of windows (B, T), both models reading the same text."""
    apart = [losses.tv(lossy(window), target(window)).mean() for window in windows.to(target.device)[:, None]]
    return float(torch.stack(apart).mean())
