"""One training loop, for a model on text and for a draft on its target: resumable, atomic, with an ETA.

The learning rate is a trapezoid (warm up, hold, fall to zero over the last part): until the fall begins it does not
depend on the number of steps. The checkpoint from just before the fall is kept, so that a finished run can be made
longer later without starting afresh.

A checkpoint holds weights, optimiser state and the step. It is written beside the old one and renamed over it, so an
interrupted or failed save leaves the old file whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..model.files import save_atomic
from ..model.gpt import GPT
from .data import Mixture
from .muon import Muon


@dataclass(frozen=True)
class Schedule:
    """How long, how much at a time, how fast."""
    steps: int
    batch_tokens: int = 6144          # tokens a step
    length: int = 512                 # window length at the end of the run
    short_length: int = 256           # shorter windows first: cheaper attention while the model learns syntax
    short_until: float = 0.65         # share of the steps with short windows
    learning_rate: float = 3e-3
    warmup: int = 30                  # steps
    decay_from: float = 0.6           # share of the steps after which the rate falls linearly to zero

    def rate(self, step: int) -> float:
        """Learning rate at this step."""
        fall = (self.steps - step) / (self.steps * (1 - self.decay_from))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup, max(fall, 0.0))

    def falls(self, step: int) -> bool:
        """Whether the rate has begun to fall at this step."""
        return step >= self.steps * self.decay_from

    def window(self, step: int) -> int:
        return self.short_length if step < self.short_until * self.steps else self.length


def fast_dtype(device: torch.device) -> torch.dtype | None:
    """bfloat16 if a matrix product is measured to be clearly faster in it here (GPUs; CPUs with bf16 units), else None."""
    def seconds(dtype: torch.dtype) -> float:
        a = torch.randn(1024, 512, device=device).to(dtype)
        best = float("inf")
        for _ in range(4):
            started = time.perf_counter()
            float((a @ a.mT)[0, 0])                              # reading a number waits for a GPU
            best = min(best, time.perf_counter() - started)
        return best

    return torch.bfloat16 if seconds(torch.bfloat16) < 0.8 * seconds(torch.float32) else None


def optimisers(model: GPT, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings, positions, biases and norms."""
    matrices = [p for p in model.h.parameters() if p.ndim == 2]
    ids = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in ids]
    adam = [torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)] if others else []
    return [Muon(matrices, lr=rate), *adam]


def save_checkpoint(path: Path, model: GPT, optims: list[torch.optim.Optimizer], step: int, steps: int,
                    seconds: float) -> None:
    """seconds: spent on this run so far, earlier sittings included."""
    state = {"model": model.state_dict(), "optims": [o.state_dict() for o in optims], "step": step, "steps": steps,
             "seconds": seconds}
    save_atomic(path, lambda part: torch.save(state, part))


def resume(path: Path, schedule: Schedule, model: GPT, optims: list[torch.optim.Optimizer],
           ) -> tuple[int, float]:
    """Restore a run in place -> its next step, and the seconds spent on it: from `path` if that run had the same length,
    else from before its fall, else (0, 0). Raises ValueError if a file is truncated or of another model."""
    for file in (path, before_fall(path)):
        if file.exists():
            try:
                state = torch.load(file, map_location=model.device, weights_only=True)
                if file == path and state["steps"] != schedule.steps:
                    continue
                model.load_state_dict(state["model"])
                for optim, saved in zip(optims, state["optims"], strict=True):
                    optim.load_state_dict(saved)
                return state["step"], state.get("seconds", 0.0)
            except Exception as error:
                raise ValueError(f"cannot resume from {file.name}: it is truncated, no checkpoint, or of another model "
                                 f"({type(error).__name__}). Delete it to start afresh.") from error
    return 0, 0.0


def seconds_spent(path: Path) -> float:
    """Seconds of training behind a checkpoint, all sittings together."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True).get("seconds", 0.0)


def before_fall(path: Path) -> Path:
    return path.with_suffix(".before-fall.pt")


def fit(model: GPT, loss_of: Callable[[Tensor, float], Tensor], data: Mixture, schedule: Schedule, checkpoint: Path, *,
        seed: int = 0, report: Callable[[str], None] = print, evaluate: Callable[[], str] | None = None,
        save_every: int = 25, report_every: int = 10, autocast: torch.dtype | None = None) -> float:
    """Train `model` in place until schedule.steps; return the mean loss of the last steps.

    loss_of(batch (B, T + 1) int64, progress in [0, 1]) -> scalar. Resumes from `checkpoint` if it exists.
    """
    optims = optimisers(model, schedule.learning_rate)
    first, earlier = resume(checkpoint, schedule, model, optims)
    started, recent = time.perf_counter(), []
    model.train()
    for step in range(first, schedule.steps):
        length = schedule.window(step)
        batch = data.batch(seed, step, max(1, schedule.batch_tokens // length), length).to(model.device)
        with torch.autocast(model.device.type, dtype=autocast, enabled=autocast is not None):
            loss = loss_of(batch, step / schedule.steps)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optim in optims:
            for group in optim.param_groups:
                group["lr"] = schedule.rate(step)
            optim.step()
            optim.zero_grad()
        recent = [*recent[-19:], float(loss.detach())]
        done = step + 1
        if done % report_every == 0 or done == schedule.steps:
            each = (time.perf_counter() - started) / (done - first)
            report(f"step {done}/{schedule.steps}  loss {sum(recent) / len(recent):.3f}  "
                   f"{schedule.batch_tokens / each:,.0f} tokens/s  ETA {each * (schedule.steps - done) / 60:.1f} min")
        if done % save_every == 0 or done == schedule.steps:
            path = checkpoint if schedule.falls(done) else before_fall(checkpoint)
            save_checkpoint(path, model, optims, done, schedule.steps, earlier + time.perf_counter() - started)
            if evaluate is not None and done % (4 * save_every) == 0:
                report(f"step {done}/{schedule.steps}  {evaluate()}")
    model.eval()
    return sum(recent) / max(1, len(recent))
