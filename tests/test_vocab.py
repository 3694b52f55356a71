"""Drafts with another vocabulary: exact laws, what is never proposed, committed text that is never tokenised again."""

import pytest
import torch
from models import TableLM, assert_like_a_fresh_prefill, random_table, tiny_gpt

from minispec import Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, sequential_law
from minispec.decoding import Dice, EnumeratingDice, Speculation, Verdict, rules
from minispec.decoding.tree import CHOSEN
from minispec.drafters import LMDrafter, SharedTokensDrafter, TextDrafter, Vocabularies
from minispec.drafters.vocab import text_encoder, token_strings
from minispec.model.files import read_tokenizer
from minispec.model.pair import ASSETS
from minispec.training.tokenizer import train_tokenizer

LETTERS = [b"a", b"b", b"c"]


def longest_first(strings):
    """encode(text) for a toy target: the longest of its strings that fits, again and again."""
    words = Vocabularies(strings, strings)
    return words.spell


def prove(target, drafter, rule, *, prompt=(0, 1), new_tokens=4, sampling=Sampling(), stop_tokens=()):
    law = output_law_by_rounds(lambda: Speculation(target, drafter, prompt, max_new_tokens=new_tokens, rule=rule,
                                                   sampling=sampling, stop_tokens=stop_tokens))
    own = sequential_law(target.model, prompt, new_tokens, sampling=sampling, stop_tokens=stop_tokens)
    return law_error(law, own)


# --- shared tokens ---------------------------------------------------------------------------------------------------

# The target has a, b, and "ab", which the draft must spell; the draft has b, a in another order, and d.
TARGET_WORDS, DRAFT_WORDS = [b"a", b"b", b"ab"], [b"d", b"b", b"a"]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_k=2), Sampling(0.0)], ids=str)
@pytest.mark.parametrize("rule", [rules.Token(), rules.Block()], ids=lambda rule: rule.name)
def test_shared_tokens_have_the_targets_law(sampling, rule):                                            # I6
    drafter = SharedTokensDrafter(Memoised(tiny_gpt(3, 1)), Vocabularies(DRAFT_WORDS, TARGET_WORDS), 2)
    assert prove(Memoised(tiny_gpt(3, 0)), drafter, rule, sampling=sampling) < 1e-12


def test_a_larger_draft_vocabulary_and_tokens_it_cannot_spell():
    """The target's "c" is nothing to this draft, and with a prompt of only that it has nothing to go on."""
    words = Vocabularies([b"x", b"b", b"a", b"y"], LETTERS)
    drafter = SharedTokensDrafter(Memoised(tiny_gpt(4, 1)), words, 1)
    assert words.spell(b"cab") == [2, 1]
    assert prove(Memoised(tiny_gpt(3, 0)), drafter, rules.Token(), prompt=[2], new_tokens=3) < 1e-12
    drafter.start([2], Sampling())
    assert len(drafter.propose(Dice(), 5)) == 0


class RulesOutLater(SharedTokensDrafter):
    """Biased: draws from all of q, and draws again from the shared part where that gave something else."""

    def translate(self, q):
        unrestricted = Sampling().probs(self.draft.model.table[self.last].log())
        return super().translate(unrestricted)

    def propose(self, dice, room):
        self.last = self.ids[-1]
        return super().propose(dice, room)


def test_ruling_tokens_out_after_the_draw_is_a_bias():
    """The reported q then lacks the mass of the tokens ruled out: it is a law that was never sampled."""         # A4
    draft, target = TableLM(random_table(3, 1)), Memoised(tiny_gpt(3, 0))
    words = Vocabularies(DRAFT_WORDS, TARGET_WORDS)
    assert prove(target, RulesOutLater(draft, words, 1), rules.Token(), new_tokens=3) > 1e-3
    assert prove(target, SharedTokensDrafter(draft, words, 1), rules.Token(), new_tokens=3) < 1e-12


@torch.inference_mode()
def test_only_shared_tokens_are_proposed_and_their_law_sums_to_one():                                   # I7
    words = Vocabularies(DRAFT_WORDS, TARGET_WORDS)
    drafter = SharedTokensDrafter(tiny_gpt(3, 1), words, 5)
    drafter.start([0, 2, 1], Sampling())
    assert drafter.ids == [2, 2, 1, 1] and words.shared == {1: 1, 2: 0}
    tree = drafter.propose(SeededDice(0), 9)
    assert len(tree) == 5 and set(tree.tokens) <= {0, 1}
    assert all(q[2] == 0 and float(q.sum()) == pytest.approx(1, abs=1e-12) for q in tree.draft_probs.values())


def test_acceptance_is_what_the_shared_tokens_allow():
    """Sum min(p, q), at most p(shared tokens): here q is p restricted to them, so that the bound is met."""
    p = torch.tensor([[0.3, 0.2, 0.5]], dtype=torch.float64).expand(3, 3)
    draft = TableLM(torch.tensor([[0.0, 0.4, 0.6]], dtype=torch.float64).expand(3, 3))
    drafter = SharedTokensDrafter(draft, Vocabularies([b"-", b"b", b"a"], LETTERS), 1)
    branches = EnumeratingDice().branches(
        lambda dice: Speculation(TableLM(p), drafter, [0], max_new_tokens=2).round(dice).accepted)
    assert sum(chance * accepted for chance, accepted in branches) == pytest.approx(0.5, abs=1e-12)


def test_the_same_vocabulary_makes_the_target_its_own_draft():                                          # D1
    model = tiny_gpt(3, 2, context=40)
    drafter = SharedTokensDrafter(model, Vocabularies(LETTERS, LETTERS), 3)
    run = speculate(model, drafter, [0, 1], max_new_tokens=30)
    alike = speculate(model, LMDrafter(model, 3), [0, 1], max_new_tokens=30)
    assert all(r.accepted == r.proposed == 3 for r in run.trace.rounds[:-1])
    assert run.tokens == alike.tokens


def test_a_vocabulary_with_extra_tokens_at_its_end_is_welcome():                                        # I3
    target, draft = tiny_gpt(3, 0, context=40), tiny_gpt(5, 1, context=40)
    words = Vocabularies([*LETTERS, b"<pad>", b"<more>"], LETTERS)
    with pytest.raises(ValueError, match="the draft has 5 tokens, the target 3: use SharedTokensDrafter"):
        words.check_same()
    with pytest.raises(ValueError, match="vocabulary of 5 tokens, the target one of 3"):
        speculate(target, LMDrafter(draft, 3), [0, 1])
    run = speculate(target, SharedTokensDrafter(draft, words, 3), [0, 1], max_new_tokens=30, sampling=Sampling(0.0))
    assert run.tokens == generate(target, [0, 1], max_new_tokens=30, sampling=Sampling(0.0)).tokens


# --- text ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_k=2), Sampling(0.0)], ids=str)
@pytest.mark.parametrize("own", [Sampling(0.0), None], ids=["the likeliest text", "drawn text"])
def test_text_has_the_targets_law(sampling, own):
    words = Vocabularies(DRAFT_WORDS, TARGET_WORDS)
    drafter = TextDrafter(Memoised(tiny_gpt(3, 1)), words, longest_first(TARGET_WORDS), 2, own)
    assert prove(Memoised(tiny_gpt(3, 0)), drafter, rules.Match(), sampling=sampling) < 1e-12


def test_a_stop_token_inside_a_text():
    drafter = TextDrafter(Memoised(tiny_gpt(3, 1)), Vocabularies(DRAFT_WORDS, TARGET_WORDS),
                          longest_first(TARGET_WORDS), 3)
    assert prove(Memoised(tiny_gpt(3, 0)), drafter, rules.Match(), new_tokens=5, stop_tokens=[2]) < 1e-12


class Says(TextDrafter):
    """Its draft always says the same text, whatever it is made to read."""

    def __init__(self, words, encode, text):
        super().__init__(tiny_gpt(len(words.draft), 0), words, encode, len(text))
        self.said = tuple(words.spell(text))

    def propose(self, dice, room):
        LMDrafter.propose(self, SeededDice(0), self.length)
        self.proposed = self.said
        self.offered = tuple(self.encode(b"".join(self.words.draft[token] for token in self.said)))[:room]
        return TokenTree.chain(self.offered, origin=CHOSEN)


def test_committed_text_is_never_tokenised_again():                                                     # I5
    """The target wrote "a", "b", though it has "ab": the draft reads a, b, and the encoder sees proposed text alone."""
    seen = []

    def encode(text):
        seen.append(text)
        return longest_first(TARGET_WORDS)(text)

    drafter = Says(Vocabularies(DRAFT_WORDS, TARGET_WORDS), encode, b"abba")
    drafter.start([0, 1, 2], Sampling())
    assert drafter.ids == [2, 1, 2, 1]
    assert drafter.propose(Dice(), 9).tokens == (2, 1, 0)
    drafter.commit(Verdict([], 0, bonus=False))                  # "ab" refused, "a" instead: it is the text's start
    assert drafter.ids == [2, 1, 2, 1, 2] and drafter.cache.length == 4
    drafter.propose(Dice(), 2)
    drafter.commit(Verdict([0], 2, bonus=False))                 # "ab", then "ab" where it had said "ba"
    assert drafter.ids == [2, 1, 2, 1, 2, 2, 1, 2, 1] and drafter.cache.length == 7
    assert all(b"abba".startswith(text) for text in seen)


@torch.inference_mode()
def test_after_every_round_the_cache_reads_like_a_fresh_one():
    words = Vocabularies([b"a", b"b", b"bb", b"ba"], TARGET_WORDS)
    target, dice = tiny_gpt(3, 4, context=48), SeededDice(2)
    for drafter, rule in [(TextDrafter(tiny_gpt(4, 5, context=90), words, longest_first(TARGET_WORDS), 4, Sampling()),
                           rules.Match()), (SharedTokensDrafter(tiny_gpt(4, 5, context=90), words, 3), rules.Token())]:
        run, accepted = Speculation(target, drafter, [0, 1, 2], max_new_tokens=40, rule=rule), 0
        while not run.stop_reason:
            accepted += run.round(dice).accepted
            assert b"".join(words.draft[token] for token in drafter.ids) == words.text(run.ids)
            assert_like_a_fresh_prefill(drafter.draft, drafter.cache, drafter.ids)
        assert accepted


def test_greedy_text_of_the_target_itself_is_always_accepted():                                         # D1
    model = tiny_gpt(3, 2, context=40)
    drafter = TextDrafter(model, Vocabularies(LETTERS, LETTERS), longest_first(LETTERS), 3)
    run = speculate(model, drafter, [0, 1], max_new_tokens=30, sampling=Sampling(0.0), rule=rules.Match())
    assert all(r.accepted == r.proposed for r in run.trace.rounds) and len(run.trace.rounds) == 8
    assert run.tokens == generate(model, [0, 1], max_new_tokens=30, sampling=Sampling(0.0)).tokens


def test_rejection_sampling_refuses_text():
    drafter = TextDrafter(tiny_gpt(3, 1), Vocabularies(LETTERS, LETTERS), longest_first(LETTERS), 3)
    with pytest.raises(ValueError, match="use rules.Match"):
        speculate(tiny_gpt(3, 0), drafter, [0, 1], rule=rules.Token())


# --- real tokenizers -------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bpe():
    return read_tokenizer(ASSETS / "tokenizer.json")


@pytest.fixture(scope="module")
def by_byte():
    """Byte-level: no merges, so 256 bytes and the special tokens."""
    return train_tokenizer([], vocab_size=260)


def test_token_strings_are_what_the_tokenizer_decodes(bpe):
    strings = token_strings(bpe)
    assert len(strings) == len(set(strings)) == bpe.get_vocab_size()
    for token, string in enumerate(strings):
        try:
            assert bpe.decode([token], skip_special_tokens=False) == string.decode()
        except UnicodeDecodeError:
            assert "\ufffd" in bpe.decode([token])                     # a token that is a part of a character


def test_a_byte_level_draft_shares_the_bytes_and_the_special_tokens(bpe, by_byte):
    words = Vocabularies(token_strings(by_byte), token_strings(bpe))
    assert len(words.shared) == 260
    text = "def naïve(x):\n    return x  # ✓\n"
    assert words.text(bpe.encode(text).ids) == text.encode()
    assert [words.draft[token] for token in words.spell(text.encode())] == [bytes([b]) for b in text.encode()]
    assert words.spell(b"<|endoftext|>a") == [by_byte.token_to_id("<|endoftext|>"), *by_byte.encode("a").ids]


def test_text_that_ends_inside_a_character_is_cut_before_it(bpe):
    encode = text_encoder(bpe)
    assert encode("x = 'é'".encode()[:-2]) == bpe.encode("x = '").ids
    assert encode(b"\xa9 starts inside one") == [] and encode(b"") == []


@pytest.mark.parametrize("drafter", [
    lambda draft, words, bpe: SharedTokensDrafter(draft, words, 4),
    lambda draft, words, bpe: TextDrafter(draft, words, text_encoder(bpe), 12)], ids=["shared tokens", "text"])
def test_greedy_output_with_a_byte_level_draft_is_plain_output(drafter, bpe, by_byte):                  # I5
    """Random models: nothing is likely to be accepted, every round corrects, and the output stays the target's."""
    target, draft = tiny_gpt(bpe.get_vocab_size(), 0, context=64), tiny_gpt(260, 1, context=400)
    words, prompt = Vocabularies(token_strings(by_byte), token_strings(bpe)), bpe.encode("import os\n").ids
    options = dict(max_new_tokens=20, sampling=Sampling(0.0))
    one = drafter(draft, words, bpe)
    run = speculate(target, one, prompt, rule=rules.Match(), **options)
    assert run.tokens == generate(target, prompt, **options).tokens
    assert b"".join(words.draft[token] for token in one.ids) == words.text([*prompt, *run.tokens])
    assert any(r.proposed for r in run.trace.rounds)


# --- bad input -------------------------------------------------------------------------------------------------------

def test_the_same_size_does_not_make_the_same_vocabulary():                                             # I2
    words = Vocabularies([b"a", b"c", b"b"], LETTERS)
    with pytest.raises(ValueError, match=r"token 1 is b'c' to the draft and b'b' to the target: use SharedTokens"):
        words.check_same()
    assert Vocabularies(LETTERS, LETTERS).check_same() is None


def test_bad_input_says_what_is_wrong():
    with pytest.raises(ValueError, match="share no token: the draft's are .b'x'"):
        Vocabularies([b"x", b"y"], LETTERS)
    for make in (SharedTokensDrafter, lambda *args: TextDrafter(*args, longest_first(LETTERS))):
        with pytest.raises(ValueError, match="the draft has 4 tokens, 3 strings were given"):
            make(tiny_gpt(4, 0), Vocabularies(LETTERS, LETTERS))
    with pytest.raises(ValueError, match="draft length must be a whole number >= 1, got 0"):
        SharedTokensDrafter(tiny_gpt(3, 0), Vocabularies(LETTERS, LETTERS), 0)
