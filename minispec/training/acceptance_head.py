"""Training the acceptance head: which drafted tokens does the target take? Seconds on a CPU.

Both models read the same text once. At every position a token x is drawn from q, as the drafter would, and rejection
sampling would keep it with the chance min(1, p(x) / q(x)): that is the label, exact and soft, no coin is thrown for it.
The loss is the cross-entropy between label and estimate, so that the estimate is a chance, not only a score.

Teacher-forced: every token is drafted right after true text. Deeper in a proposal the draft reads its own tokens, and
those only count where they were accepted, that is, where they could be the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from ..decoding.sampling import Sampling
from ..drafters.acceptance_head import AcceptanceHead, features
from ..model.gpt import GPT
from .recipes import TARGET, mixture


@dataclass(frozen=True)
class HeadRecipe:
    """sampling: the one that is served: a chance of acceptance is true for one temperature."""
    weights: dict[str, float] = field(default_factory=lambda: TARGET.weights)        # shares of corpus kinds
    windows: int = 96                    # of text, each `length` tokens
    length: int = 128
    steps: int = 400                     # over all examples at once: a full batch has no noise
    lr: float = 0.02
    sampling: Sampling = Sampling()
    seed: int = 0


@torch.no_grad()
def examples(draft: GPT, target: GPT, windows: Tensor, sampling: Sampling, seed: int) -> tuple[Tensor, Tensor]:
    """Windows (B, T) of text -> features (B T, 4) of one drafted token at each position, and labels (B T,)."""
    dice = torch.Generator().manual_seed(seed)
    inputs, labels = [], []
    for window in windows:                                                           # (T,): q and p fit in memory
        logits = draft(window[None])[0]                                              # (T, V)
        q, p = sampling.probs(logits).cpu(), sampling.probs(target(window[None])[0]).cpu()           # (T, V)
        drawn = torch.multinomial(q, 1, generator=dice)                              # (T, 1)
        ratio = p.gather(-1, drawn) / q.gather(-1, drawn)
        belief = q if sampling.temperature > 0 else Sampling().probs(logits).cpu()   # as AdaptiveDrafter shows it
        inputs.append(features(drawn[:, 0], belief))
        labels.append(ratio.clamp_max(1)[:, 0].float())
    return torch.cat(inputs), torch.cat(labels)


def fit_head(inputs: Tensor, labels: Tensor, *, steps: int, lr: float, seed: int) -> AcceptanceHead:
    """Features (N, 4) and labels (N,) in [0, 1] -> a trained head. The global dice stay as they were."""
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(seed)
        head = AcceptanceHead()
        head.mean, head.std = inputs.mean(0), inputs.std(0).clamp_min(1e-6)
        optimizer = torch.optim.AdamW(head.parameters(), lr=lr, weight_decay=1e-4)
        for _ in range(steps):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(head.logits(inputs), labels).backward()
            optimizer.step()
    return head.eval().requires_grad_(False)


def train_head(recipe: HeadRecipe, draft: GPT, target: GPT, windows: Tensor, held_out: Tensor,
               report: Callable[[str], None] = print) -> AcceptanceHead:
    """Windows (B, T) of text to train on, and others (B', T) to report on."""
    head = fit_head(*examples(draft, target, windows, recipe.sampling, recipe.seed),
                    steps=recipe.steps, lr=recipe.lr, seed=recipe.seed)
    inputs, labels = examples(draft, target, held_out, recipe.sampling, recipe.seed + 1)
    estimates = head.logits(inputs).sigmoid()
    report(f"held-out: loss {cross_entropy(estimates, labels):.4f}, of the best constant "
           f"{cross_entropy(labels.mean().expand_as(labels), labels):.4f}")
    report("estimate -> accepted   " + "   ".join(
        f"{estimate:.2f} -> {accepted:.2f}" for estimate, accepted, _ in reliability(estimates, labels)))
    return head


def cross_entropy(estimates: Tensor, labels: Tensor) -> float:
    """Mean cross-entropy in nats of estimates (N,) against labels (N,), both chances."""
    return float(F.binary_cross_entropy(estimates, labels))


def reliability(estimates: Tensor, labels: Tensor, bins: int = 10) -> list[tuple[float, float, int]]:
    """The reliability diagram: for each bin of estimates (mean estimate, mean label, how many), empty bins left out."""
    place = (estimates * bins).long().clamp_max(bins - 1)                            # (N,)
    members = [place == b for b in range(bins)]
    return [(float(estimates[m].mean()), float(labels[m].mean()), int(m.sum())) for m in members if m.any()]


def train_on_pair(recipe: HeadRecipe, draft: GPT, target: GPT, tokenizer: Tokenizer,
                  report: Callable[[str], None] = print) -> AcceptanceHead:
    """The recipe on the project's corpus."""
    text = {split: mixture(tokenizer, recipe.weights, split) for split in ("train", "validation")}
    windows = {split: data.batch(recipe.seed, 0, recipe.windows, recipe.length)[:, :-1].to(target.device)
               for split, data in text.items()}
    return train_head(recipe, draft, target, windows["train"], windows["validation"], report)
