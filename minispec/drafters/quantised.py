"""int8 drafts: a draft may be wrong, so it may be rough. Exactness is the verifier's business, in full precision.

`int8(model)` is a copy whose matrix products run in 8-bit whole numbers: weights are rounded once, each output channel
to its own scale, activations on the fly, each row to its own ("dynamic quantisation"; Dettmers et al. 2208.07339,
section 2, without the outlier columns). On a processor with int8 instructions a pass costs less, and q moves a little.

Two drafts come of it, both LMDrafter's: int8(draft), and int8(target), a draft for the target that nobody had to train.

Left out on purpose: torch's own eager quantisation (it is on its way out of torch), int4, quantised caches, GPUs.
"""

from __future__ import annotations

import copy

import torch
import torch.nn as nn
from torch import Tensor

from ..model.gpt import GPT


class Int8Linear(nn.Module):
    """y = x W^T + b, with W (out, in) and x (..., in) rounded to whole numbers in -127..127 and summed up in int32."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        rounded, scale = to_int8(weight)                                     # (out, in), (out, 1)
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        rows, scale = to_int8(x.flatten(0, -2))                              # (N, in), (N, 1)
        y = torch._int_mm(rows, self.weight.t()) * (scale * self.scale)      # (N, out)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], -1)                                     # (..., out)


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(N, K) -> (N, K) int8 and the scale of each row (N, 1): x is about rounded * scale. A row of zeros stays one.

    Example: to_int8([[0.5, -1.27]]) == ([[50, -127]], [[0.01]]).
    """
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (x / scale).round().to(torch.int8), scale


class Int8GPT(GPT):
    """A GPT whose layers and head are Int8Linear; embeddings, norms and attention are as they were. Made by `int8`."""

    def unembed(self, x: Tensor) -> Tensor:
        return self.head(self.ln_f(x))                                       # (B, T, V)


def int8(model: GPT) -> Int8GPT:
    """An int8 copy of the model, for the CPU and for inference. Raises ValueError where the model lies elsewhere."""
    if model.device.type != "cpu":
        raise ValueError(f"int8 drafts run on the CPU, the model lies on {model.device}: give int8(model.cpu())")
    quantised = copy.deepcopy(model).eval().requires_grad_(False)
    quantised.__class__ = Int8GPT
    for name, layer in list(quantised.named_modules()):
        if isinstance(layer, nn.Linear):
            quantised.set_submodule(name, Int8Linear(layer.weight.detach(), layer.bias.detach()))
    quantised.head = Int8Linear(quantised.wte.weight.detach())
    return quantised
