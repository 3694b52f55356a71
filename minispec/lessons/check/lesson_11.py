"""Checks of lesson 11, sharing the cache: rows through layers, what a draft may read, which design keeps the law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...analysis.exact import Law, output_law, sequential_law, total_variation
from ...analysis.prove import tiny_target
from ...decoding import Generation, Sampling, SeededDice, Speculation, TokenTree, speculate
from ...decoding.dice import Dice
from ...decoding.loop import verify
from ...decoding.trace import Round
from ...drafters import EarlyExitDrafter, LMDrafter
from ...model.gpt import GPT, GPTConfig
from ...model.projected import LossyProjectedTarget
from ...model.shared_backbone import SharedBackbone
from ...training.projection import fit_projection
from ...viz import law_bars
from ...viz.layer_grid import layer_grid
from ...viz.target_views import View, target_views
from .base import Wrong, judged

PROMPT, COUNT = (1, 0), 3
Design = Callable[[Dice], Generation]


@judged
def layer_rows(function: Callable[[int, int, int], tuple[int, int]]) -> Iterator[Wrong]:
    """function(layers, exit, length) -> (rows through layers while drafting, while verifying)."""
    for layers, exit, length in ((8, 2, 4), (8, 2, 1), (8, 7, 4), (3, 1, 5), (6, 4, 3)):
        right, got = rows_in_the_loop(layers, exit, length), function(layers, exit, length)
        if not (isinstance(got, (tuple, list)) and len(got) == 2 and all(type(x) is int for x in got)):
            yield Wrong(f"return two whole numbers (drafting, verifying), yours returned {got!r}.")
        elif tuple(got) != right:
            yield Wrong(f"{layers} layers, exit after {exit}, {length} drafted: the loop takes {right} rows through "
                        f"layers, yours says {tuple(got)}.",
                        layer_grid(one_round(layers, exit, length), exit, lambda tokens: "ab"[tokens[0]]),
                        "A round of the real loop with these sizes: count the cells")


def backbone(layers: int, exit: int) -> SharedBackbone:
    with torch.random.fork_rng(devices=[]):                      # building a module draws from the global dice
        torch.manual_seed(11)
        model = GPT(GPTConfig(vocab_size=2, context=16, n_layer=layers, n_head=1, n_embd=4))
    return SharedBackbone(model.eval().requires_grad_(False), exit)


def rows_in_the_loop(layers: int, exit: int, length: int) -> tuple[int, int]:
    """What the real backbone counts while it drafts and verifies a chain of ones."""
    model = backbone(layers, exit)
    cache = model.new_cache()
    model.begin(cache)
    for _ in range(length):                                      # the last committed token, and all guesses but one
        model.draft(1)
    drafting = sum(model.take_layer_tokens())
    verify(model, cache, 1, TokenTree.chain([1] * length, [torch.tensor([0.0, 1.0]).double()] * length), Sampling())
    return drafting, sum(model.take_layer_tokens())


def one_round(layers: int, exit: int, length: int) -> Round:
    model = backbone(layers, exit)
    run = Speculation(model, EarlyExitDrafter(model, length), PROMPT, max_new_tokens=length + 1)
    return run.round(SeededDice(1))


@judged
def positions_read(function: Callable[[int, int], int]) -> Iterator[Wrong]:
    """function(position, held) -> how many of the target's first positions the row reads."""
    rounds = {"while the prompt is read": [(t, 5) for t in range(5)], "in a proposal": [(t, 5) for t in range(5, 10)],
              "after a full acceptance": [(t, 9) for t in range(8, 12)]}
    for when, rows in rounds.items():
        got = [function(position, held) for position, held in rows]
        views = [View(f"row at {t}, {held} held", t, held, min(t, held)) for t, held in rows]
        for view, answer in zip(views, got):
            if type(answer) is not int or answer < 0:
                yield Wrong(f"return a whole number, at least 0: yours returned {answer!r} for {view.name}.")
                return
            if answer != view.seen:
                yield Wrong(f"{when}, a row at position {view.position} is fed while the target's cache holds "
                            f"{view.held} positions: it may read {view.seen}, yours reads {answer}.",
                            target_views(views, got), "Right and wrong cells, a line for each row of the draft")


@judged
def lossless(function: Callable[..., Sequence[str]]) -> Iterator[Wrong]:
    """function(designs, target, prompt, count) -> the names of those whose output has the target's law."""
    every, right = designs(), {"drafted by p~", "shared layers"}
    got = function(dict(every), small_target(), PROMPT, COUNT)
    if isinstance(got, str) or not set(got) <= set(every):
        yield Wrong(f"return the names of designs, some of {', '.join(map(repr, every))}; yours returned {got!r}.")
        return
    for name in every:
        if (name in got) != (name in right):
            law, own = output_law(every[name]), sequential_law(small_target(), PROMPT, COUNT)
            verdict = "is not lossless" if name in got else "is lossless"
            yield Wrong(f"{name!r} {verdict}: over {COUNT} tokens its law lies {total_variation(law, own):.2g} from "
                        f"the target's (TV).", *both_laws(law, own))


def both_laws(law: Law, own: Law) -> tuple[str, str]:
    """(SVG, alt): the probability of every output, under the target and out of the loop."""
    drawing = law_bars(own, law, lambda out: " ".join(map(str, out)), name="the loop", reference="the target")
    return drawing, f"The law of all outputs of {COUNT} tokens, under the target and out of the loop"


# --- four designs -----------------------------------------------------------------------------------------------------

class Coarse(SharedBackbone):
    """Wrong on purpose: what it drafted is handed over to the upper layers in half the bytes or less."""

    def draft(self, token: int) -> Tensor:
        logits = super().draft(token)
        streams = self.drafted.streams
        streams[-1] = streams[-1].bfloat16().to(streams[-1].dtype)
        return logits


def small_target() -> GPT:
    return tiny_target(2).model


@lru_cache(maxsize=1)
def small_projected() -> LossyProjectedTarget:
    """small_target with keys and values guessed from another model's."""
    draft, dice = tiny_target(2, seed=1).model, torch.Generator().manual_seed(11)
    windows = torch.randint(2, (12, 12), generator=dice)
    return LossyProjectedTarget(small_target(), draft, fit_projection(draft, small_target(), windows))


def designs() -> dict[str, Design]:
    """Four ways to share, each a whole generation: run(dice) -> Generation. The second and third are lossless."""
    target, wrong = small_target(), small_projected()
    backbones = [kind(target, 1) for kind in (SharedBackbone, Coarse)]
    pairs = {"verified by p~": (wrong, lambda: LMDrafter(wrong.draft, 2)),
             "drafted by p~": (target, lambda: LMDrafter(wrong, 2)),
             "shared layers": (backbones[0], lambda: EarlyExitDrafter(backbones[0], 2)),
             "shared layers, coarse": (backbones[1], lambda: EarlyExitDrafter(backbones[1], 2))}
    return {name: lambda dice, model=model, make=make: speculate(model, make(), PROMPT, max_new_tokens=COUNT, dice=dice)
            for name, (model, make) in pairs.items()}
