"""The clock: what one pass costs, and on which machine.

Two measured numbers stand behind every prediction (analysis/theory.py): the cost ratio c, one draft pass in units of a
one-token target pass, and the verify curve v(k), a target pass over k tokens in the same unit. The passes in which a
draft grows a tree are wider than one token too, so its curve is measured as well. A pass is the model's
alone, over a cache that already holds a realistic number of positions; sampling, rule and Python are not in it, so that
efficiency = measured / predicted says what they take.

All passes are taken in turn, again and again, and the median of each is kept: a busy moment slows all of them alike.
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

import torch

import minispec

from ..analysis.theory import VerifyCurve, interpolate
from ..decoding.request import as_batch
from ..decoding.tree import TokenTree
from ..model.gpt import GPT

IN_A_ROW = 4                                          # draft passes of one round, about
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)        # k of the verify curve


@dataclass(frozen=True)
class Passes:
    """Medians, measured with `context` positions in the caches."""
    context: int
    target_seconds: float                # a target pass over one token
    draft_seconds: float                 # a draft pass over one token
    verify_curve: dict[int, float]       # {k: v(k)}, v(1) = 1
    draft_curve: dict[int, float] = field(default_factory=lambda: {1: 1.0})     # the same of draft passes

    @property
    def cost(self) -> float:
        """c: one draft pass in units of a one-token target pass."""
        return self.draft_seconds / self.target_seconds

    @property
    def verify(self) -> VerifyCurve:
        """v(k) for any k: linear between the measured points."""
        return interpolate(self.verify_curve)

    def draft(self, k: int) -> float:
        """A draft pass over k tokens, in units of a one-token target pass; draft(1) == cost."""
        return self.cost * interpolate(self.draft_curve)(k)

    def to_dict(self) -> dict:
        """For JSON: all fields, and c."""
        return {**asdict(self), "cost": self.cost}


Pass = Callable[[], None]
PassMaker = Callable[[int, int], Pass]                # (width k, context) -> a pass over k after `context` others


@torch.inference_mode()
def measure_passes(target: GPT, draft: GPT | PassMaker, *, context: int = 200, widths: Sequence[int] = WIDTHS,
                   repeats: int = 25, target_pass: PassMaker | None = None) -> Passes:
    """Time passes of both models over one token, and over each of `widths` tokens.

    draft: a model that is called as a GPT is; of any other, a function that makes its passes. target_pass: the same,
    for a target that verifies in another way than by an ordinary pass.
    The caches are filled to `context` positions (fewer where a model's context is shorter) and rolled back after every
    pass. Widths that don't fit a model's context are left out. Draft passes over one token are timed IN_A_ROW, as a
    round makes them: the first finds the processor's own caches full of the target's weights, the others less so.
    """
    room = {"target": target.config.context, "draft": getattr(draft, "config", target.config).context}
    context = min(context, room["target"] // 2, room["draft"] - 1)
    makers = {"target": target_pass or passes_of(target),
              "draft": passes_of(draft) if hasattr(draft, "config") else draft}
    passes = {(name, k): make(k, context) for name, make in makers.items()
              for k in sorted({1, *widths}) if context + k <= room[name]}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in passes}
    for repeat in range(repeats + 1):
        for key, run in passes.items():
            times = IN_A_ROW if key == ("draft", 1) else 1
            took = timed(lambda: [run() for _ in range(times)], target.device) / times
            if repeat:                                  # the first time round warms up
                seconds[key].append(took)
    middle = {key: median(values) for key, values in seconds.items()}
    curves = {name: {k: middle[name, k] / middle[name, 1] for model, k in passes if model == name} for name in makers}
    return Passes(context, middle["target", 1], middle["draft", 1], curves["target"], curves["draft"])


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of run(), waiting for the device before and after: a GPU works behind Python's back."""
    synchronise(device)
    started = time.perf_counter()
    run()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def passes_of(model: GPT) -> PassMaker:
    """Passes as the loop makes them, with a chain's mask and positions; the cache is rolled back after each."""
    def make(width: int, context: int) -> Pass:
        cache = model.new_cache(context + width)
        token = [0]                                     # which tokens they are does not change the cost
        if context:
            model(as_batch(token * context, model), cache)
        rows, chain = as_batch(token * width, model), TokenTree.chain(token * (width - 1))
        where = {}
        if width > 1:
            where = dict(positions=chain.depths().to(model.device) + context, mask=chain.mask().to(model.device))

        def run() -> None:
            model(rows, cache, **where)
            cache.rollback(context)

        return run

    return make


# --- the machine ------------------------------------------------------------------------------------------------------

def environment(device: torch.device | str, dtype: torch.dtype) -> dict[str, str | int]:
    """What a figure must carry with it: device, dtype, threads, versions, date (UTC) and commit."""
    return {"device": device_name(torch.device(device)), "dtype": str(dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(), "torch": torch.__version__, "python": platform.python_version(),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"), "commit": commit()}


def device_name(device: torch.device) -> str:
    """The name people know it by: the GPU's, or the processor's model name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):                    # not Linux, or a processor that has no such line
        return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the checkout the package lies in, "-dirty" if files were changed; without one, the version."""
    folder = Path(__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)        # else: installed, in another's checkout
        return _git(folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return f"version {minispec.__version__}"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
