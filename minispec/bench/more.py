"""Methods that need other models than the pair's draft: read from the pair's folder, or made from the pair.

    parallel-*     block.safetensors: all tokens of a proposal in one draft pass
    diffusion-*    diffusion.safetensors: the same, from inside the target
    heads-*        heads.safetensors: guesses from the target's own hidden state
    feature-*      feature.safetensors: a layer that carries that hidden state on
    glide-*        glide.safetensors: a draft that reads the target's keys and values; glide-control: one that doesn't
    early-exit-*   early-exit.safetensors: the target itself, co-trained, and its first layers, in one cache
    draft-*        a chain of 5 from drafts of other sizes
    byte-*         byte.safetensors: a draft that spells, through the tokens it shares, or as text
    payoff-8, learned-8   the pair's draft, its length chosen by cost, and by acceptance-head.safetensors
    int8-*         the draft, or the target itself, in 8-bit whole numbers (CPU only)

Draft passes of another model have their own price, measured when the method is built (bench/prices.py). Heads are
counted as free: what they take lowers their efficiency.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..decoding import Round, rules
from ..decoding.tree import CHOSEN
from ..drafters import (AcceptanceHead, AdaptiveDrafter, BlockDrafter, DiffusionDrafter, EarlyExitDrafter,
                        FeatureDrafter, GlideDrafter, HeadsDrafter, LMDrafter, SharedTokensDrafter, TextDrafter, int8,
                        load_diffusion_draft, load_feature_draft, load_glide_draft, load_heads)
from ..drafters.adaptive import Payoff, Survival
from ..drafters.vocab import text_encoder
from ..model.gpt import GPT
from ..model.listening import Listening
from ..model.pair import load_model
from ..model.shared_backbone import SharedBackbone
from ..training.early_exit import load_co_trained
from ..training.spelled import byte_words
from . import prices
from .suite import Method, chain, no_pass, one_each, one_pass
from .timing import measure_passes


class Workshop:
    """What methods are built from: the pair, its tokenizer, the folder with further models."""

    def __init__(self, target: Listening, draft: GPT, tokenizer: Tokenizer, folder: Path):
        self.target, self.draft, self.tokenizer, self.folder = target, draft, tokenizer, folder
        self.like = dict(device=target.device, dtype=target.model.wte.weight.dtype)


Build = Callable[[Workshop, Path | None], Method]        # the path is its file's


def _parallel(length: int) -> Build:
    def build(shop: Workshop, file: Path) -> Method:
        block = load_model(file, **shop.like)
        return Method(lambda _: BlockDrafter(block, length), rules.Token(), length, feeds=one_pass,
                      passes=measure_passes(shop.target, block))
    return build


def _diffusion(length: int) -> Build:
    def build(shop: Workshop, file: Path) -> Method:
        draft = load_diffusion_draft(file, **shop.like)
        return Method(lambda _: DiffusionDrafter(shop.target, draft, length), rules.Token(), length,
                      feeds=lambda r: [1 + len(r.tokens)],
                      passes=measure_passes(shop.target, prices.of_diffusion(shop.target, draft)))
    return build


def _heads_chain(shop: Workshop, file: Path) -> Method:
    heads = load_heads(file, **shop.like)
    return Method(lambda _: HeadsDrafter(shop.target, heads), rules.Token(), heads.config.heads, feeds=no_pass)


def _heads_tree(shop: Workshop, file: Path) -> Method:
    heads = load_heads(file, **shop.like)
    shape = (2, 1, 1, 1)[:heads.config.heads]
    return Method(lambda _: HeadsDrafter(shop.target, heads, shape, origin=CHOSEN), rules.Match(), len(shape),
                  feeds=no_pass)


def _feature(length: int) -> Build:
    def build(shop: Workshop, file: Path) -> Method:
        draft = load_feature_draft(file, **shop.like)
        return Method(lambda _: FeatureDrafter(shop.target, draft, length), rules.Token(), length, fixed_chain=True,
                      feeds=lambda r: [r.context - 1 - r.draft_cache[0]] + [1] * (len(r.tokens) - 1),
                      passes=measure_passes(shop.target, prices.of_feature(shop.target, draft)))
    return build


def _glide(length: int) -> Build:
    def build(shop: Workshop, file: Path) -> Method:
        draft = load_glide_draft(file, **shop.like)
        return Method(lambda _: GlideDrafter(shop.target, draft, length), rules.Token(), length, fixed_chain=True,
                      passes=measure_passes(shop.target, prices.of_glide(shop.target, draft)))
    return build


def _early_exit(length: int) -> Build:
    def build(shop: Workshop, file: Path) -> Method:
        model, exit = load_co_trained(file, shop.target.model)
        backbone = SharedBackbone(model, exit)
        return Method(lambda _: EarlyExitDrafter(backbone, length), rules.Token(), length, fixed_chain=True,
                      feeds=one_each, target=backbone, passes=prices.of_early_exit(backbone))
    return build


def _rung(shop: Workshop, file: Path) -> Method:
    draft = load_model(file, **shop.like)
    return chain(5, of=draft, passes=measure_passes(shop.target, draft))


def spelled(r: Round, passes: int) -> list[int]:
    """The first pass also reads what was committed, in letters; the draft's cache knows how many they were."""
    before, after, _ = r.draft_cache
    return [after - before - passes + 1] + [1] * (passes - 1)


def _byte_shared(shop: Workshop, file: Path) -> Method:
    draft, words = load_model(file, **shop.like), byte_words(shop.tokenizer)
    return Method(lambda _: SharedTokensDrafter(draft, words, 2), rules.Token(), 2,
                  feeds=lambda r: spelled(r, len(r.tokens)), passes=measure_passes(shop.target, draft))


def _byte_text(shop: Workshop, file: Path) -> Method:
    draft, words, encode = load_model(file, **shop.like), byte_words(shop.tokenizer), text_encoder(shop.tokenizer)
    letters = 12
    return Method(lambda _: TextDrafter(draft, words, encode, letters), rules.Match(), letters,
                  feeds=lambda r: spelled(r, letters), passes=measure_passes(shop.target, draft))


def _payoff(shop: Workshop, file: Path | None) -> Method:
    passes = measure_passes(shop.target, shop.draft)
    return Method(lambda draft: AdaptiveDrafter(draft, Payoff(passes.cost, passes.verify), 8), rules.Token(), 8)


def _learned(shop: Workshop, file: Path) -> Method:
    head = AcceptanceHead.load(file)
    return Method(lambda draft: AdaptiveDrafter(draft, Survival(head, 0.3), 8), rules.Token(), 8)


def _int8_draft(shop: Workshop, file: None) -> Method:
    small = int8(shop.draft)
    return chain(5, of=small, passes=measure_passes(shop.target, small))


def _int8_target(shop: Workshop, file: None) -> Method:
    own = int8(shop.target.model)
    return chain(3, of=own, passes=measure_passes(shop.target, own))


MORE: dict[str, tuple[str | None, Build]] = {            # name: the file it needs, how it is built
    "parallel-4": ("block.safetensors", _parallel(4)),
    "parallel-6": ("block.safetensors", _parallel(6)),
    "diffusion-4": ("diffusion.safetensors", _diffusion(4)),
    "diffusion-6": ("diffusion.safetensors", _diffusion(6)),
    "heads-chain": ("heads.safetensors", _heads_chain),
    "heads-tree": ("heads.safetensors", _heads_tree),
    "feature-3": ("feature.safetensors", _feature(3)),
    "feature-5": ("feature.safetensors", _feature(5)),
    "glide-5": ("glide.safetensors", _glide(5)),
    "glide-control-5": ("glide-control.safetensors", _glide(5)),
    "early-exit-3": ("early-exit.safetensors", _early_exit(3)),
    "draft-5": ("draft-5.safetensors", _rung),
    "draft-10": ("draft-10.safetensors", _rung),
    "draft-20": ("draft-20.safetensors", _rung),
    "byte-shared": ("byte.safetensors", _byte_shared),
    "byte-text": ("byte.safetensors", _byte_text),
    "payoff-8": (None, _payoff),
    "learned-8": ("acceptance-head.safetensors", _learned),
    "int8-draft-5": (None, _int8_draft),
    "int8-target-3": (None, _int8_target),
}


def available(folder: Path) -> list[str]:
    """Those of MORE whose file lies in the pair's folder."""
    return [name for name, (file, _) in MORE.items() if file is None or (folder / file).exists()]


@torch.inference_mode()
def build(name: str, shop: Workshop) -> Method:
    """The method of this name, its passes measured. Raises ValueError if its file is damaged or of another target."""
    file, make = MORE[name]
    return make(shop, file and shop.folder / file)
