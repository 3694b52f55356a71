"""Passes of different width round differently: how much in each dtype, and what that leaves of greedy decoding."""

import pytest
import torch

from minispec import GPT, GPTConfig, Sampling, generate, speculate
from minispec.analysis.rounding import logits_by_width, margins, width_gap
from minispec.decoding import rules
from minispec.drafters import LMDrafter, TreeDrafter

IDS = [(7 * k * k + 3) % 64 for k in range(60)]
#          dtype, what two widths may differ by: logits are about 10 in size, their last place 1e-15, 1e-6 and .06
WIDTHS = {"float64": (torch.float64, 1e-12), "float32": (torch.float32, 1e-3), "bfloat16": (torch.bfloat16, 2.0)}
every_dtype = pytest.mark.parametrize("dtype, bound", WIDTHS.values(), ids=WIDTHS)


def random_gpt(seed: int, dtype: torch.dtype) -> GPT:
    """Random weights, large enough that no two contexts are alike."""
    model, dice = GPT(GPTConfig(vocab_size=64, context=96, n_layer=2, n_head=2, n_embd=64)), torch.Generator()
    dice.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.copy_(torch.randn(weight.shape, generator=dice) * (0.3 if name.startswith("w") else 0.12))
    return model.eval().to(dtype)


@every_dtype
def test_widths_agree_to_the_precision_of_the_dtype(dtype, bound):                     # H6
    model = random_gpt(0, dtype)
    assert logits_by_width(model, IDS, 1).std() > 1, "flat logits would agree in any dtype"
    for width in (2, 5, 17):
        assert width_gap(model, IDS, width) < bound
    assert width_gap(model, IDS, 1) == 0


def test_a_coarser_dtype_differs_more():                                               # H6
    gaps = [width_gap(random_gpt(0, dtype), IDS, 5) for dtype, _ in WIDTHS.values()]
    assert gaps[0] < gaps[1] / 1000 and (gaps[1] < gaps[2] / 10 or gaps[2] == 0)


class Recorder:
    """A GPT that keeps the logits of the pass that judged each position: a later pass there overwrites them."""

    def __init__(self, model: GPT):
        self.model, self.config, self.device, self.new_cache = model, model.config, model.device, model.new_cache
        self.calls: list[torch.Tensor] = []                                            # (1 + N, V) each

    def __call__(self, tokens, cache, **where):
        logits = self.model(tokens, cache, **where)
        self.calls.append(logits[0].double())
        return logits


@every_dtype
@pytest.mark.parametrize("build", [lambda draft: LMDrafter(draft, 4),
                                   lambda draft: TreeDrafter(draft, [3, 2, 1], origin="chosen")], ids=["chain", "tree"])
@pytest.mark.parametrize("seed", range(3))
def test_every_greedy_token_is_the_largest_of_its_own_pass_and_nearly_of_any_other(seed, build, dtype, bound):      # H1
    target, draft, prompt = Recorder(random_gpt(seed, dtype)), random_gpt(seed, dtype), [3, 1, 4]
    for name, weight in draft.named_parameters():                                      # close to the target: long paths
        weight.data += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    run = speculate(target, build(draft), prompt, max_new_tokens=80, rule=rules.Match(), sampling=Sampling(0))
    own = [logits[row] for r, logits in zip(run.trace.rounds, target.calls[1:])
           for row in [0, *[node + 1 for node in r.path]][:len(r.emitted)]]            # (V,) behind each token
    assert [int(logits.argmax()) for logits in own] == run.tokens
    single = logits_by_width(target.model, (prompt + run.tokens)[:-1], 1)[len(prompt) - 1:]
    gaps = (torch.stack(own) - single).abs().amax(1)                                   # at each token
    below = torch.tensor(margins(target.model, prompt, run.tokens), dtype=torch.float64)
    assert bool((below <= 2 * gaps + 1e-15).all()) and float(gaps.max()) < bound
    assert run.trace.rounds != [] and max(len(r.path) for r in run.trace.rounds) >= 2
    if dtype == torch.float64:                                                         # H4
        plain = generate(target.model, prompt, max_new_tokens=80, sampling=Sampling(0))
        assert run.tokens == plain.tokens and max(below) == 0


def test_a_margin_is_the_distance_to_the_largest_logit():
    model = random_gpt(0, torch.float64)
    logits = logits_by_width(model, IDS[:5], 1)
    best, second = logits[4].topk(2)
    assert margins(model, IDS[:5], [int(second[0])]) == [0.0]
    assert margins(model, IDS[:5], [int(second[1])]) == [pytest.approx(float(best[0] - best[1]))]
    plain = generate(model, IDS[:5], max_new_tokens=9, sampling=Sampling(0))
    assert margins(model, IDS[:5], plain.tokens) == [0.0] * 9
