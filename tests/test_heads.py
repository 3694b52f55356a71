"""Heads on the target's hidden state: what they read, what they propose, and that the loop stays exact."""

import pytest
import torch
from models import tiny_gpt

from minispec import GPT, Sampling, SeededDice, generate, speculate
from minispec.analysis import law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Speculation, rules
from minispec.decoding.tree import CHOSEN, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters.heads import Heads, HeadsConfig, HeadsDrafter, load_heads
from minispec.model import save_model
from minispec.model.listening import Listening
from minispec.training.heads import HEADS, heads_loss


pytestmark = pytest.mark.usefixtures("no_gradients")


def random_heads(count: int = 3, width: int = 8, seed: int = 0) -> Heads:
    heads, dice = Heads(HeadsConfig(count, width)).double(), torch.Generator().manual_seed(seed)
    for head in heads.h:
        head.weight.copy_(0.7 * torch.randn(head.weight.shape, generator=dice, dtype=torch.float64))
    return heads


CASES = {"chain": (rules.Token(), (1, 1), SAMPLED), "block": (rules.Block(), (1, 1), SAMPLED),
         "tree": (rules.Recursive(), (2, 1), WITHOUT_REPLACEMENT), "chosen": (rules.Match(), (2, 1), CHOSEN)}


@pytest.mark.parametrize("rule, branching, origin", CASES.values(), ids=CASES)
def test_the_loop_has_the_targets_law(rule, branching, origin):
    target, sampling = Listening(tiny_gpt(2)), Sampling(1.3)
    loop = output_law_by_rounds(lambda: Speculation(
        target, HeadsDrafter(target, random_heads(), branching, origin=origin), (1, 0), max_new_tokens=4, rule=rule,
        sampling=sampling))
    assert law_error(loop, sequential_law(target.model, (1, 0), 4, sampling=sampling)) <= 1e-12


def test_what_is_heard_is_the_input_of_the_last_norm_and_of_each_block():
    model, seen, inside = tiny_gpt(5), [], []
    target, cache = Listening(model), model.new_cache()
    model.ln_f.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for block in model.h:
        block.register_forward_hook(lambda module, inputs, output: inside.append(output))
    for tokens in ([1, 2, 3], [4]):                               # each pass replaces what was heard before
        seen.clear(), inside.clear()
        target(torch.tensor([tokens]), cache)
        assert torch.equal(target.latest, seen[0]) and target.cache is cache
        assert len(target.streams) == 2 and all(map(torch.equal, target.streams, inside))
    assert torch.equal(Listening(model)(torch.tensor([[1, 2, 3]])), model(torch.tensor([[1, 2, 3]])))


@pytest.mark.parametrize("branching, origin, rule", [((1, 1, 1), SAMPLED, rules.Token()), ((2, 2), CHOSEN, rules.Match())])
def test_each_proposal_comes_from_the_hidden_state_before_the_last_committed_token(branching, origin, rule):
    model, heads = tiny_gpt(6, context=40), random_heads()
    target, dice = Listening(model), SeededDice(0)
    run = Speculation(target, HeadsDrafter(target, heads, branching, origin=origin), [1, 2, 3], max_new_tokens=30,
                      rule=rule)
    lengths = set()
    while not run.stop_reason:
        ids, r = list(run.ids), run.round(dice)
        fresh = model.unembed(heads(model.hidden(torch.tensor([ids[:-1]]))[0, -1])).softmax(-1)        # (K, V)
        for node, q in r.draft_top.items():
            depth = len(r.tree.path(node))
            assert [q[x] for x in range(6)] == pytest.approx(fresh[depth].tolist(), rel=0, abs=1e-10)
        lengths.add(len(r.path))
    assert len(lengths) > 1


def test_untrained_heads_repeat_the_targets_own_guess():
    target = tiny_gpt(5)
    hidden = target.hidden(torch.tensor([[1, 2]]))
    assert torch.equal(Heads(HeadsConfig(2, 8)).double()(hidden)[:, :, 1], hidden)


def test_no_draft_pass_and_no_proposal_without_a_hidden_state(monkeypatch):
    passes = []
    monkeypatch.setattr(GPT, "hidden", lambda model, *a, _real=GPT.hidden, **k: (passes.append(1), _real(model, *a, **k))[1])
    target = Listening(tiny_gpt(4, context=32))
    speculate(target, HeadsDrafter(target, random_heads()), [1, 2], max_new_tokens=5)         # leaves hidden states behind
    passes.clear()
    out = speculate(target, HeadsDrafter(target, random_heads()), [1], max_new_tokens=20, dice=SeededDice(2))
    assert out.trace.rounds[0].tokens == [] and out.trace.rounds[1].tokens
    assert len(passes) == len(out.trace.rounds)


def test_greedy_output_is_plain_decodings():
    target = Listening(tiny_gpt(6, context=40))
    plain = generate(target, [1, 2], max_new_tokens=30, sampling=Sampling(0))
    for branching, origin, rule in (((1, 1, 1), SAMPLED, rules.Token()), ((3, 2), CHOSEN, rules.Match())):
        fast = speculate(target, HeadsDrafter(target, random_heads(), branching, origin=origin), [1, 2],
                         max_new_tokens=30, rule=rule, sampling=Sampling(0))
        assert fast.tokens == plain.tokens


def test_the_loss_of_head_k_compares_it_with_the_targets_law_k_places_on():
    target, heads, text = tiny_gpt(5, context=16), random_heads(HEADS.heads), torch.tensor([[0, 1, 2, 3, 4, 1, 0]])
    hidden, total = target.hidden(text)[0], 0.0
    weights = [HEADS.weight ** k for k in range(1, HEADS.heads + 1)]
    for k, weight in enumerate(weights, start=1):
        gaps = []
        for i in range(7 - k):
            p = target(text[:, :i + k + 1])[0, -1].softmax(-1)
            q = target.unembed(heads(hidden[i])[k - 1]).softmax(-1)
            gaps.append(float((p * (p / q).log()).sum()))
        total += weight * sum(gaps) / len(gaps)
    assert float(heads_loss(heads, target, text, HEADS, 0.0)) == pytest.approx(total / sum(weights), rel=1e-5)


def test_heads_are_saved_and_loaded_and_misfits_are_refused(tmp_path):
    heads = random_heads().half().double()                        # float16 is what is stored
    save_model(tmp_path / "heads.safetensors", heads, {"steps": 1})
    loaded = load_heads(tmp_path / "heads.safetensors", dtype=torch.float64)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(heads.h, loaded.h, strict=True))
    save_model(tmp_path / "gpt.safetensors", tiny_gpt(3), {})
    with pytest.raises(ValueError, match="gpt.safetensors holds no heads"):
        load_heads(tmp_path / "gpt.safetensors")
    target = Listening(tiny_gpt(3))
    with pytest.raises(ValueError, match="a tree 4 deep needs as many heads, there are 3"):
        HeadsDrafter(target, heads, (1, 1, 1, 1))
    with pytest.raises(ValueError, match="heads of width 16 don't fit a target of width 8"):
        HeadsDrafter(target, random_heads(width=16))
