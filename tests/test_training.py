"""Corpus, data, losses, the training loop and distillation, on models that train in a second."""

import math

import numpy as np
import pytest
import torch

from minispec import GPT, GPTConfig
from minispec.training import corpus, data, distill, losses, records, recipes, train, transcripts
from minispec.training.muon import Muon, orthogonalise
from minispec.training.tokenizer import END, SPECIALS, train_tokenizer
from minispec.training.train import Schedule, before_fall, fit

CONFIG = GPTConfig(vocab_size=32, context=16, n_layer=1, n_head=2, n_embd=16)
SHORT = Schedule(steps=8, batch_tokens=64, length=16, short_length=8, warmup=2)


def toy_mixture():
    pattern = np.tile(np.arange(32, dtype=np.uint16), 40)
    return data.Mixture({"code": pattern, "docs": pattern[::-1].copy()}, {"code": 0.5, "docs": 0.5})


def run(path, steps=8, stop_after=None, seed=0):
    torch.manual_seed(1)
    model = GPT(CONFIG)

    def loss_of(batch, progress):
        if stop_after is not None and loss_of.calls == stop_after:
            raise KeyboardInterrupt
        loss_of.calls += 1
        return losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:])

    loss_of.calls = 0
    fit(model, loss_of, toy_mixture(), Schedule(steps, 64, 16, 8, warmup=2), path, seed=seed, save_every=2,
        report=lambda text: None)
    return model


# --- corpus -------------------------------------------------------------------------------------------------------------

def test_every_name_has_one_split_and_it_never_changes():
    assert corpus.split_of("json/decoder.py") == corpus.split_of("json/decoder.py")
    shares = [corpus.split_of(f"package/module{i}.py") for i in range(5000)]
    assert 0.92 < shares.count("train") / 5000 < 0.96
    assert set(shares) == set(corpus.SPLITS)
    assert corpus.split_of("json/decoder.py") == "train"              # typed once: a changed hash moves held-out files


@pytest.fixture
def little_library(tmp_path, monkeypatch):
    """A fake walk: sources, a vendored copy, a table, a licence header."""
    body = 'def f{n}(x):\n    """Return x, unchanged, whatever it may be: this is test number {n}."""\n    return x\n\n\n'
    texts = {f"lib/m{n}.py": body.format(n=n) * 6 for n in range(120)}
    texts["lib/copy.py"] = texts["lib/m0.py"]
    texts["lib/table.py"] = "X = [" + ", ".join(map(str, range(500))) + "]\n"
    texts["lib/licensed.py"] = "# Copyright somebody\n# All rights reserved\n\n" + body.format(n=7777) * 6
    files = []
    for name, text in texts.items():
        path = tmp_path / name.replace("/", "_")
        path.write_text(text)
        files.append((name, path))
    monkeypatch.setattr(corpus, "_source_files", lambda: iter(sorted(files)))
    return texts


def test_splits_are_disjoint_and_equal_texts_count_once(little_library):
    seen = {split: {d.text for d in corpus.documents("code", split)} for split in corpus.SPLITS}
    assert sum(map(len, seen.values())) == 121                        # 120 modules and the licensed one; no copy, no table
    assert not seen["train"] & seen["held-out"] and not seen["train"] & seen["validation"]
    docs = {split: {d.name for d in corpus.documents("docs", split)} for split in corpus.SPLITS}
    code = {split: {d.name for d in corpus.documents("code", split)} for split in corpus.SPLITS}
    assert not docs["train"] & code["held-out"], "a held-out module's docstrings must be held out too"


def test_a_licence_header_is_dropped_and_the_code_stays(little_library):
    texts = [d.text for split in corpus.SPLITS for d in corpus.documents("code", split)]
    assert any("f7777" in text for text in texts) and not any("Copyright" in text for text in texts)


@pytest.mark.parametrize("name, excluded", [("json/decoder.py", False), ("test/test_json.py", True), ("numpy/tests/a.py", True),
                                            ("transformers/models/bert/modeling_bert.py", True), ("torch/nn/modules/linear.py", False)])
def test_tests_tables_and_near_copies_are_left_out(name, excluded):
    assert corpus._is_excluded(name) is excluded


@pytest.mark.parametrize("generate", [transcripts.transcript, records.log])
def test_generated_documents_depend_on_their_seed_alone(generate):
    assert generate(5) == generate(5) != generate(6)


def test_transcripts_hold_what_makes_agents_hard_to_draft_for():
    text = "".join(transcripts.transcript(seed) for seed in range(40))
    for sign in ('<call>{"tool": ', "@@ -", "Traceback (most recent", "error: no such file", "\n> ", "-rw-r--r--"):
        assert sign in text


def test_a_log_ends_with_its_own_facts_and_the_last_value_counts():
    for seed in range(20):
        log, summary = records.log(seed).split("\n\nSUMMARY\n")
        for header, kept in records.facts(seed).items():
            for key, value in kept.items():
                assert f"{key} = {value}" in summary
                assert log.rindex(f"set {key} = ") == log.rindex(f"set {key} = {value}")


@pytest.mark.parametrize("kind, split, word", [("prose", "train", "kind"), ("code", "test", "split")])
def test_unknown_kind_or_split_is_refused_by_name(kind, split, word):
    with pytest.raises(ValueError, match=f"unknown {word}.*choose from"):
        next(corpus.documents(kind, split))


# --- tokenizer and data -------------------------------------------------------------------------------------------------

def test_any_text_survives_the_tokenizer_and_specials_come_first():
    tokenizer = train_tokenizer(["def f(x):\n    return self._items[x]\n"] * 20, vocab_size=300)
    for text in ("def g():\n\n    return 'ü€😀'\r\n\tx", "", "  \n \n", "a.b_c 12345"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.token_to_id(name) for name in SPECIALS] == [0, 1, 2, 3]
    assert data.encode_documents(tokenizer, ["a", "b"])[-1] == tokenizer.token_to_id(END)


def test_a_batch_depends_on_seed_and_step_alone():
    mixture = toy_mixture()
    assert torch.equal(mixture.batch(0, 3, 4, 8), toy_mixture().batch(0, 3, 4, 8))
    assert not torch.equal(mixture.batch(0, 3, 4, 8), mixture.batch(0, 4, 4, 8))
    assert mixture.batch(0, 0, 4, 8).shape == (4, 9)


# --- losses -------------------------------------------------------------------------------------------------------------

def test_acceptance_is_one_minus_total_variation():
    p, q = torch.tensor([.5, .3, .2]).log(), torch.tensor([.6, .3, .1]).log()
    assert float(losses.acceptance(q, p)) == pytest.approx(0.9, abs=1e-6)
    assert float(losses.tv(q, p)) == pytest.approx(0.1, abs=1e-6)
    assert float(losses.kl(p, p)) == pytest.approx(0.0, abs=1e-6)


def test_gradients_of_kl_and_tv_are_the_textbook_ones():
    """d KL / dz = q - p;  d TV / dz = q (<q, g> - g) with g = 1[q < p]  (METHODS 1.1)."""
    torch.manual_seed(0)
    p_logits, z = torch.randn(7), torch.randn(7, requires_grad=True)
    p, q = p_logits.softmax(-1), z.softmax(-1)
    (kl_grad,) = torch.autograd.grad(losses.kl(z, p_logits), z, retain_graph=True)
    (tv_grad,) = torch.autograd.grad(losses.tv(z, p_logits), z)
    gain = (q < p).float()
    torch.testing.assert_close(kl_grad, (q - p).detach())
    torch.testing.assert_close(tv_grad, (q * ((q * gain).sum() - gain)).detach())


def test_tv_has_no_gradient_at_a_cold_start_and_kl_has():
    """A draft that is certain and wrong: TV is flat there, which is why the annealed loss starts as KL."""
    z, p_logits = torch.tensor([20.0, 0.0, 0.0], requires_grad=True), torch.tensor([0.0, 20.0, 0.0])
    (tv_grad,) = torch.autograd.grad(losses.tv(z, p_logits), z)
    (kl_grad,) = torch.autograd.grad(losses.kl(z, p_logits), z)
    assert float(tv_grad.norm()) < 1e-3 and float(kl_grad.norm()) > 1


def test_the_annealed_loss_goes_from_kl_to_tv():
    q, p = torch.randn(3, 5), torch.randn(3, 5)
    torch.testing.assert_close(losses.kl_to_tv(q, p, 0.0), losses.kl(q, p))
    torch.testing.assert_close(losses.kl_to_tv(q, p, 1.0), losses.tv(q, p))


# --- optimiser and loop -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)])
def test_orthogonalise_brings_singular_values_near_one_and_keeps_the_vectors(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    inside = u.mT @ orthogonalise(matrix) @ vt.mT
    assert torch.allclose(inside, inside.diag().diag(), atol=1e-8)
    assert 0.3 < float(inside.diag().min()) and float(inside.diag().max()) < 1.3


def test_an_optimiser_step_is_the_size_that_its_docstring_says():
    weight = torch.nn.Parameter(torch.zeros(8, 32))
    weight.grad = torch.randn(8, 32)
    Muon([weight], lr=0.1).step()
    rms = float(weight.detach().pow(2).mean().sqrt())                 # an orthogonal 8 x 32 has RMS 1 / sqrt(32)
    assert 0.5 * 0.02 < rms < 1.4 * 0.02


def test_the_rate_warms_up_holds_and_falls_to_zero():
    schedule = Schedule(steps=100, warmup=10, decay_from=0.6, learning_rate=1.0)
    assert schedule.rate(0) == pytest.approx(0.1) and schedule.rate(30) == 1.0 == schedule.rate(59)
    assert schedule.rate(80) == pytest.approx(0.5) and schedule.rate(100) == 0
    assert [schedule.rate(s) for s in range(60)] == [Schedule(200, warmup=10, decay_from=.6, learning_rate=1.0).rate(s) for s in range(60)]


def test_an_interrupted_run_resumes_to_the_very_same_weights(tmp_path):
    whole = run(tmp_path / "whole.pt")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "halves.pt", stop_after=5)
    resumed = run(tmp_path / "halves.pt")
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_finished_run_can_be_made_longer_from_before_its_fall(tmp_path):
    long = run(tmp_path / "long.pt", steps=12)
    run(tmp_path / "short.pt", steps=8)
    extended = run(tmp_path / "short.pt", steps=12)
    for a, b in zip(long.parameters(), extended.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("damage", ["truncate", "foreign"])
def test_a_damaged_checkpoint_is_named_and_left_alone(tmp_path, damage):
    path = tmp_path / "run.pt"
    run(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:len(whole) // 2] if damage == "truncate" else b"not a checkpoint")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="cannot resume from run.pt.*Delete it"):
        run(path)
    assert path.read_bytes() == before


def test_a_failed_save_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    run(path)
    old = path.read_bytes()

    def full_disk(state, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError):
        train.save_checkpoint(path, GPT(CONFIG), [], 1, 1, 0.0)
    assert path.read_bytes() == old and {p.name for p in tmp_path.iterdir()} == {"run.pt", before_fall(path).name}


def test_progress_says_step_loss_speed_and_time_left(tmp_path):
    said = []
    model = GPT(CONFIG)
    fit(model, lambda batch, _: losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]), toy_mixture(), SHORT,
        tmp_path / "a.pt", report=said.append, report_every=4)
    assert len(said) == 2 and all(word in said[-1] for word in ("step 8/8", "loss", "tokens/s", "ETA"))
    assert not model.training


def test_training_lowers_the_loss_on_text_it_can_learn(tmp_path):
    model = run(tmp_path / "a.pt", steps=60)
    assert recipes.text_loss(model, toy_mixture(), 2, 4, 15) < 0.7 * math.log(32)


# --- distillation -------------------------------------------------------------------------------------------------------

def test_continuations_keep_the_prompt_and_odd_rows_are_greedy():
    torch.manual_seed(0)
    target = GPT(CONFIG).eval().requires_grad_(False)
    prompts = torch.randint(0, 32, (4, 5))
    rows = distill.continuations(target, prompts, 6, seed=0).clone()
    assert rows.shape == (4, 11) and torch.equal(rows[:, :5], prompts)
    for row in (1, 3):
        for place in range(5, 11):
            assert int(rows[row, place]) == int(target(rows[row:row + 1, :place])[0, -1].argmax())


def test_distillation_raises_acceptance(tmp_path, monkeypatch):
    monkeypatch.setenv("MINISPEC_CACHE", str(tmp_path))
    tokenizer = train_tokenizer(["some text to have all bytes"], vocab_size=260)
    config = GPTConfig(vocab_size=260, context=16, n_layer=1, n_head=2, n_embd=16)
    monkeypatch.setattr(distill, "token_array", lambda *a: np.arange(1000, dtype=np.uint16) % 32)
    monkeypatch.setattr(distill, "mixture", lambda *a: toy_mixture())
    torch.manual_seed(3)
    target = GPT(config).eval().requires_grad_(False)
    target.wte.weight.mul_(20)                                        # a target with opinions
    recipe = distill.Distillation("d", config, {"code": 1.0}, Schedule(150, 64, 16, 8, warmup=2))
    torch.manual_seed(recipe.seed)
    before = distill.mean_acceptance(GPT(config), target, toy_mixture(), 1, 4, 15)
    draft = distill.distill(recipe, target, tokenizer, report=lambda text: None)
    after = distill.mean_acceptance(draft, target, toy_mixture(), 1, 4, 15)
    assert after > before + 0.2


def test_an_unknown_loss_is_refused_by_name():
    recipe = distill.Distillation("d", CONFIG, {"code": 1.0}, SHORT, loss="mse")
    with pytest.raises(ValueError, match="unknown loss 'mse': choose from kl"):
        distill.distill(recipe, GPT(CONFIG), None)


def test_seconds_are_counted_over_all_sittings(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.pt", stop_after=5)
    run(tmp_path / "a.pt")
    whole = train.seconds_spent(tmp_path / "a.pt")
    assert whole > train.seconds_spent(train.before_fall(tmp_path / "a.pt")) > 0
