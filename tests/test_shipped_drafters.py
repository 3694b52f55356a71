"""The drafts that ship: each loads, is accepted by the shipped target, and leaves its greedy text alone."""

import pytest
import torch

from minispec import Sampling, SeededDice, generate, load_pair, speculate
from minispec.analysis import metrics
from minispec.bench import more, prices, suite
from minispec.bench.timing import Passes
from minispec.bench.workloads import prompts
from minispec.model import pair
from minispec.model.files import read_json
from minispec.model.listening import Listening

SHIPPED = more.available(pair.ASSETS)
TRAINED = {file for file, _ in more.MORE.values() if file} - {
    f"{name}.safetensors" for name in ("draft-5", "draft-10", "draft-20", "glide-control")}      # measured, not shipped


@pytest.fixture(scope="module")
def shop():
    target, draft, tokenizer = load_pair()
    return more.Workshop(Listening(target), draft, tokenizer, pair.ASSETS)


@pytest.fixture(scope="module")
def methods(shop):
    """Built without a clock: nothing here depends on what a pass costs."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (more, prices):
            patch.setattr(module, "measure_passes", lambda *a, **k: Passes(200, 0.007, 0.001, {1: 1.0, 9: 1.3}))
        return {name: more.build(name, shop) for name in SHIPPED} | suite.chosen(["chain-1"])


@pytest.fixture(scope="module")
def openings(shop):
    return [shop.tokenizer.encode(prompt.text).ids[-120:] for prompt in prompts("code", 2)]


def traces(method, shop, openings, temperature):
    return [speculate(method.target or shop.target, method.drafter(shop.draft), ids, max_new_tokens=48,
                      rule=method.rule, sampling=Sampling(temperature), dice=SeededDice(k))
            for k, ids in enumerate(openings)]


def test_every_trained_draft_ships_with_its_card():
    for file in sorted(TRAINED):
        card = read_json((pair.ASSETS / file).with_suffix(".card.json"))
        assert card["command"] == f"python -m minispec train --recipe {card['recipe']}" and file.startswith(card["recipe"])
        assert {"data", "steps", "seed", "device", "dtype", "threads", "torch", "date"} <= set(card)


@pytest.mark.parametrize("name", SHIPPED)
def test_greedy_text_is_the_targets_whoever_drafts(name, methods, shop, openings):
    """In float32 two logits may tie to the last digit, and a wide pass rounds otherwise than a narrow one: such a tie is
    the only place where the texts may part."""
    method = methods[name]
    model, runs = method.target or shop.target, traces(method, shop, openings, 0.0)
    assert metrics(*(run.trace for run in runs)).tokens_per_pass > 1.1, "a draft that guesses nothing brings 1"
    for ids, run in zip(openings, runs):
        plain = generate(model, ids, max_new_tokens=48, sampling=Sampling(0.0)).tokens
        if run.tokens != plain:
            place = next(k for k, (a, b) in enumerate(zip(run.tokens, plain)) if a != b)
            with torch.no_grad():
                logits = model(torch.tensor([ids + plain[:place]]))[0, -1]
            assert abs(float(logits[run.tokens[place]] - logits[plain[place]])) < 1e-3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_from_one_pass_brings_more_than_the_chain_of_one_pass(temperature, methods, shop, openings):
    """Both take one draft pass a round. (What the wider verification costs, only a clock can say: bench --recorded.)"""
    brought = {name: metrics(*(g.trace for g in traces(methods[name], shop, openings, temperature))).tokens_per_pass
               for name in ("parallel-6", "chain-1")}
    assert brought["parallel-6"] > brought["chain-1"]


def test_a_shared_backbone_computes_every_layer_once_for_each_row(methods, shop, openings):
    layers = shop.target.config.n_layer
    for run in traces(methods["early-exit-3"], shop, openings, 1.0):
        for r in run.trace.rounds:
            assert r.layer_tokens == [len(r.tokens) + 1] * layers
