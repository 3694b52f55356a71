"""int8 drafts: the rounding, the product, a copy that leaves its original alone, and exactness however it rounds."""

import copy

import pytest
import torch
from models import tiny_gpt

from minispec import GPT, GPTConfig, Sampling, generate, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.drafters import LMDrafter, int8
from minispec.drafters.quantised import Int8Linear, to_int8


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- one product -----------------------------------------------------------------------------------------------------

def test_rounding_by_hand():
    rounded, scale = to_int8(torch.tensor([[0.5, -1.27], [0.0, 0.0]]).double())
    assert rounded.tolist() == [[50, -127], [0, 0]] and rounded.dtype == torch.int8
    assert scale[0].item() == pytest.approx(0.01) and bool((scale > 0).all())


def test_rounding_is_off_by_half_a_step_at_most():
    x = random(40, 17)
    rounded, scale = to_int8(x)
    assert bool(((rounded * scale - x).abs() <= scale / 2 + 1e-12).all())
    assert rounded.abs().amax(-1).eq(127).all(), "every row uses its whole range"


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("bias", [None, random(5, seed=3)], ids=["no bias", "bias"])
def test_the_product_of_whole_numbers_is_exact(rows, bias):
    """Against the same whole numbers multiplied in float64."""
    weight, x = random(5, 24, seed=1), random(2, rows, 24, seed=2)
    (w, w_scale), (a, a_scale) = to_int8(weight), to_int8(x.flatten(0, 1))
    wanted = (a * a_scale) @ (w * w_scale).T + (0 if bias is None else bias)
    torch.testing.assert_close(Int8Linear(weight, bias)(x), wanted.view(2, rows, 5), rtol=0, atol=1e-12)


# --- a model ---------------------------------------------------------------------------------------------------------

def random_model(dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = GPT(GPTConfig(vocab_size=40, context=32, n_layer=2, n_head=2, n_embd=32))
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn(weight.shape))
    return model.to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_int8_copy_is_close_and_its_original_untouched(dtype):
    model, tokens = random_model(dtype), torch.arange(30)[None]
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        p, q = model(tokens).softmax(-1), int8(model)(tokens).softmax(-1)
    assert q.dtype == dtype and 0 < float((p - q).abs().max())
    assert float(torch.minimum(p, q).sum(-1).min()) > 0.9, "as a draft it would nearly always be accepted"
    assert type(model) is GPT and all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_every_product_is_quantised_and_nothing_else():
    quantised = int8(random_model())
    assert not [name for name, layer in quantised.named_modules() if isinstance(layer, torch.nn.Linear)]
    assert sum(isinstance(layer, Int8Linear) for layer in quantised.modules()) == 2 * 4 + 1
    assert {p.dtype for p in quantised.parameters()} == {torch.float32}, "embeddings and norms"
    x = random(1, 3, 32).float()
    head = Int8Linear(quantised.wte.weight.detach())
    assert torch.equal(quantised.unembed(x), head(quantised.ln_f(x).detach()))


def test_rows_do_not_depend_on_their_neighbours():
    """Each row has its own scale: a pass over six tokens gives what six passes give, as the draft's cache needs it."""
    model, tokens = int8(random_model(torch.float64)), torch.arange(6)[None]
    cache = model.new_cache()
    with torch.no_grad():
        one_by_one = torch.cat([model(tokens[:, k:k + 1], cache) for k in range(6)], dim=1)
        torch.testing.assert_close(one_by_one, model(tokens), rtol=0, atol=1e-9)


# --- in the loop -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0), Sampling(0.7, top_k=2)], ids=str)
@pytest.mark.parametrize("itself", [True, False], ids=["the target as its own draft", "a draft"])
def test_the_loop_has_the_targets_law(sampling, itself):
    target = Memoised(tiny_gpt(3, 0))
    drafter = LMDrafter(Memoised(int8(target.model if itself else tiny_gpt(3, 1))), 2)
    law = output_law_by_rounds(lambda: Speculation(target, drafter, [0, 1], max_new_tokens=4, rule=rules.Token(),
                                                   sampling=sampling))
    assert law_error(law, sequential_law(target.model, [0, 1], 4, sampling=sampling)) < 1e-12


def test_with_its_int8_self_as_target_nothing_is_rejected():                                            # D1
    model = int8(random_model(torch.float64))
    run = speculate(model, LMDrafter(int8(random_model(torch.float64)), 3), [1, 2], max_new_tokens=20)
    assert all(r.accepted == r.proposed for r in run.trace.rounds)


def test_the_target_as_its_own_draft_is_accepted_nearly_always():
    model = random_model(torch.float64)
    run = speculate(model, LMDrafter(int8(model), 4), [1, 2], max_new_tokens=29, sampling=Sampling(0.0))
    assert run.tokens == generate(model, [1, 2], max_new_tokens=29, sampling=Sampling(0.0)).tokens
    proposed, accepted = (sum(getattr(r, name) for r in run.trace.rounds) for name in ("proposed", "accepted"))
    assert accepted >= 0.8 * proposed


def test_a_model_that_lies_elsewhere_is_refused():
    with pytest.raises(ValueError, match="int8 drafts run on the CPU, the model lies on meta"):
        int8(random_model().to("meta"))
