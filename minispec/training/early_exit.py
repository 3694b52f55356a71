"""Co-training: one model becomes target and draft at once, by low-rank updates of a trained target.

LayerSkip (2404.16710, section 4) trains a model to be readable early through its own head, while the last layer keeps
to the text. Here every matrix of a trained target gets an update of low rank (LoRA, 2106.09685), W' = W + B A, and all
other weights stay, so that the file is a tenth of the model's. The layers below the exit, which now serve two masters,
get a high rank; those above only have to follow them.

    loss = cross-entropy of the last layer on text  +  exit_weight * KL(law of the last layer || law at the exit)

The exit learns the model's own law, not the text: that is what acceptance asks for. No gradient flows into the law it
learns. Layers above the exit are dropped at random, a whole layer for a whole batch, the later the likelier: lower ones
learn not to wait for them.

What comes out is another model than the target was: its text loss belongs beside its acceptance. It is used merged, as
an ordinary GPT. Left out: losses at every layer, which buy a free choice of the exit; LayerSkip's curricula over time,
meant for training from scratch; LoRA's scale alpha, which B can learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from tokenizers import Tokenizer
from torch import Tensor
from torch.func import functional_call

from ..model.gpt import GPT, Block
from ..model.pair import load_part
from . import losses
from .data import Mixture, cache_dir
from .recipes import TARGET, held_out, mixture, text_loss
from .train import Schedule, fast_dtype, fit

# The matrices of a layer: outputs and inputs, in widths C.
MATRICES = {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (4, 1), "mlp.c_proj": (1, 4)}


@dataclass(frozen=True)
class CoTrainConfig:
    exit: int                    # layers that draft
    rank_below: int              # of the updates in the layers below the exit
    rank_above: int
    n_layer: int                 # L, the target's
    n_embd: int                  # C, the target's

    def __post_init__(self):
        for name, value in vars(self).items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
        if self.exit >= self.n_layer:
            raise ValueError(f"exit={self.exit} must be below n_layer={self.n_layer}")


class Update(nn.Module):
    """B A, the change of one matrix: A (r, in) random, B (out, r) zero, so that nothing is changed at first."""

    def __init__(self, outputs: int, inputs: int, rank: int):
        super().__init__()
        self.A = nn.Parameter(torch.randn(rank, inputs) / inputs ** 0.5)
        self.B = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self) -> Tensor:
        return self.B @ self.A                                                       # (out, in)


class LowRank(nn.Module):
    """The updates of all matrices of a target. Under `h`, so that Muon trains them (train.py): with the singular values
    of A near 1, its step on B changes W as much as its step on W itself would, in the directions that A spans."""

    def __init__(self, config: CoTrainConfig):
        super().__init__()
        self.config, C, above = config, config.n_embd, config.n_layer - config.exit
        self.h = nn.ModuleList(
            nn.ModuleList(Update(outputs * C, inputs * C, rank) for outputs, inputs in MATRICES.values())
            for rank in [config.rank_below] * config.exit + [config.rank_above] * above)

    def changed(self, layer: int, block: Block) -> dict[str, Tensor]:
        """The matrices of the target's layer with their updates: {name in the block: W + B A}, each (out, in)."""
        return {f"{name}.weight": block.get_parameter(f"{name}.weight") + update()
                for name, update in zip(MATRICES, self.h[layer])}

    @property
    def device(self) -> torch.device:
        return self.h[0][0].A.device

    def num_params(self) -> int:
        return sum(p.numel() for p in self.parameters())


@torch.no_grad()
def merged(target: GPT, low_rank: LowRank) -> GPT:
    """A new GPT with the updates in its weights, for inference. Raises ValueError where the sizes differ."""
    made_for, sizes = low_rank.config, target.config
    if (made_for.n_layer, made_for.n_embd) != (sizes.n_layer, sizes.n_embd):
        raise ValueError(f"the updates are for {made_for.n_layer} layers of width {made_for.n_embd}, the target has "
                         f"{sizes.n_layer} of width {sizes.n_embd}")
    weights = target.state_dict() | {f"h.{layer}.{name}": weight for layer, block in enumerate(target.h)
                                     for name, weight in low_rank.changed(layer, block).items()}
    with torch.random.fork_rng(devices=[]):                        # building a module draws from the global dice
        model = GPT(sizes).to(target.device, target.wte.weight.dtype)
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def load_co_trained(path: str | Path, target: GPT) -> tuple[GPT, int]:
    """Read updates written by `save_model` -> (the co-trained model, its exit). Raises ValueError, naming the file, if
    it is missing, damaged or foreign, and if the updates are for another target's sizes."""
    low_rank = load_part(path, lambda config: LowRank(CoTrainConfig(**config)), "co-trained updates",
                         device=target.device)
    return merged(target, low_rank), low_rank.config.exit


# --- training ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class CoTraining:
    """Which updates, what they read, and how much each part counts."""
    name: str
    weights: dict[str, float]            # shares of corpus kinds
    schedule: Schedule
    exit: int = 2
    rank_below: int = 64
    rank_above: int = 8
    exit_weight: float = 1.0             # of the exit's loss, beside the last layer's
    drop: float = 0.1                    # chance that the last layer is dropped; 0 drops none
    seed: int = 0


EARLY_EXIT = CoTraining("early-exit", TARGET.weights, Schedule(steps=250, short_until=0.85, learning_rate=2e-3))


def co_train(recipe: CoTraining, target: GPT, tokenizer: Tokenizer, report: Callable[[str], None] = print) -> LowRank:
    """Train the recipe's updates of `target`, from scratch or on from their checkpoint in the cache folder."""
    config = CoTrainConfig(recipe.exit, recipe.rank_below, recipe.rank_above, target.config.n_layer,
                           target.config.n_embd)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        low_rank = LowRank(config).to(target.device)
    validation, length = mixture(tokenizer, recipe.weights, "validation"), min(256, target.config.context)

    def quality() -> str:
        model = merged(target, low_rank)
        return (f"validation loss of the last layer {text_loss(model, validation, length=length):.3f}, mean acceptance "
                f"of the exit {exit_acceptance(model, recipe.exit, validation, length=length):.3f}")

    report(f"before: {quality()}")
    fit(low_rank, lambda batch, progress: co_training_loss(low_rank, target, batch, recipe, progress),
        mixture(tokenizer, recipe.weights, "train"), recipe.schedule, cache_dir() / f"{recipe.name}.pt",
        seed=recipe.seed, report=report, autocast=fast_dtype(target.device), evaluate=quality)
    report(f"after: {quality()}")
    return low_rank


def co_training_loss(low_rank: LowRank, target: GPT, batch: Tensor, recipe: CoTraining, progress: float) -> Tensor:
    """The loss above, mean over all positions, with the layers dropped that `progress` says. batch (B, T + 1) -> ()."""
    inputs, labels = batch[:, :-1], batch[:, 1:]                                               # (B, T)
    skipped = dropped_layers(recipe, target.config.n_layer, progress)
    x = target.embed(inputs, torch.arange(inputs.shape[1], device=inputs.device))              # (B, T, C)
    for layer, block in enumerate(target.h):
        if layer == recipe.exit:
            exit_logits = target.unembed(x)                                                    # (B, T, V)
        after = functional_call(block, low_rank.changed(layer, block), (x, layer, None, 0, None))
        x = x + 0 * after if layer in skipped else after                       # Muon wants a gradient, if only zeros
    logits = target.unembed(x)                                                                 # (B, T, V)
    return (losses.cross_entropy(logits, labels)
            + recipe.exit_weight * losses.kl(exit_logits, logits.detach()).mean())


def dropped_layers(recipe: CoTraining, n_layer: int, progress: float) -> set[int]:
    """Layers that this batch skips: each layer l >= exit with the chance drop * (2^(l / (L-1)) - 1).

    The chances are LayerSkip's (section 4.1). Which layers fall is a function of (seed, progress) alone: a run that was
    interrupted goes on with those it would have dropped.
    """
    chances = recipe.drop * (2 ** (np.arange(n_layer) / (n_layer - 1)) - 1)                    # (L,)
    fall = np.random.default_rng([recipe.seed, round(progress * 1e9)]).random(n_layer) < chances
    return {layer for layer in range(recipe.exit, n_layer) if fall[layer]}


@torch.no_grad()
def exit_acceptance(model: GPT, exit: int, data: Mixture, batches: int = 2, size: int = 8, length: int = 256) -> float:
    """Mean of sum min(p, q) over fixed windows of `data`, q the law at the exit: acceptance at temperature 1."""
    total = 0.0
    for step in range(batches):
        inputs, streams = data.batch(10_000, step, size, length)[:, :-1].to(model.device), []
        last = model.hidden(inputs, streams=streams)                                           # (B, T, C)
        total += float(losses.acceptance(model.unembed(streams[exit - 1]), model.unembed(last)).mean())
    return total / batches


def held_out_figures(recipe: CoTraining, target: GPT, low_rank: LowRank, tokenizer: Tokenizer) -> dict:
    """What co-training gave and took, for the card: on held-out text of each kind, before and after."""
    figures: dict = {"held_out_nats_per_token": {}, "held_out_exit_acceptance": {}}
    for when, model in (("before", target), ("after", merged(target, low_rank))):
        for kind, data in held_out(tokenizer, recipe.weights).items():
            length = min(256, model.config.context)
            measured = (text_loss(model, data, batches=16, length=length),
                        exit_acceptance(model, recipe.exit, data, batches=16, length=length))
            for name, value in zip(figures, measured):
                figures[name].setdefault(when, {})[kind] = round(value, 3)
    return figures
