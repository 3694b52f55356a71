"""Methods that need other models than the pair's draft: read from the pair's folder, or made from the pair.

    parallel-*      block.safetensors: all tokens of a proposal in one draft pass
    heads-*         heads.safetensors: guesses from the target's own hidden state
    int8-*          the draft, or the target itself, in 8-bit whole numbers (CPU only)

Their draft passes have their own price, so each is measured when it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from ..decoding import rules
from ..decoding.tree import CHOSEN
from ..drafters import BlockDrafter, HeadsDrafter, LMDrafter, int8, load_heads
from ..model.gpt import GPT
from ..model.listening import Listening
from ..model.pair import load_model
from .suite import Method, no_pass, one_pass
from .timing import measure_passes

Build = Callable[[Listening, GPT, Path], Method]         # target, draft, the pair's folder


def _parallel(length: int) -> Build:
    def build(target: Listening, draft: GPT, folder: Path) -> Method:
        block = load_model(folder / "block.safetensors", **_like(target))
        return Method(lambda _: BlockDrafter(block, length), rules.Token(), length, feeds=one_pass,
                      passes=measure_passes(target, block))
    return build


def _heads_chain(target: Listening, draft: GPT, folder: Path) -> Method:
    heads = load_heads(folder / "heads.safetensors", **_like(target))
    return Method(lambda _: HeadsDrafter(target, heads), rules.Token(), heads.config.heads, feeds=no_pass)


def _heads_tree(target: Listening, draft: GPT, folder: Path) -> Method:
    heads = load_heads(folder / "heads.safetensors", **_like(target))
    shape = (2, 1, 1, 1)[:heads.config.heads]
    return Method(lambda _: HeadsDrafter(target, heads, shape, origin=CHOSEN), rules.Match(), len(shape),
                  feeds=no_pass)


def _int8_draft(target: Listening, draft: GPT, folder: Path) -> Method:
    small = int8(draft)
    return Method(lambda _: LMDrafter(small, 5), rules.Token(), 5, fixed_chain=True,
                  passes=measure_passes(target, small))


def _int8_target(target: Listening, draft: GPT, folder: Path) -> Method:
    own = int8(target.model)
    return Method(lambda _: LMDrafter(own, 3), rules.Token(), 3, fixed_chain=True, passes=measure_passes(target, own))


def _like(target: Listening) -> dict[str, torch.device | torch.dtype]:
    return dict(device=target.device, dtype=target.model.wte.weight.dtype)


MORE: dict[str, tuple[str | None, Build]] = {            # name: the file it needs, how it is built
    "parallel-4": ("block.safetensors", _parallel(4)),
    "parallel-6": ("block.safetensors", _parallel(6)),
    "heads-chain": ("heads.safetensors", _heads_chain),
    "heads-tree": ("heads.safetensors", _heads_tree),
    "int8-draft-5": (None, _int8_draft),
    "int8-target-3": (None, _int8_target),
}


def available(folder: Path) -> list[str]:
    """Those of MORE whose file lies in the pair's folder."""
    return [name for name, (file, _) in MORE.items() if file is None or (folder / file).exists()]
