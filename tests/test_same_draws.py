"""Rules compared on the same drafts: the enumeration against the whole law, the theorem, and the shipped pair."""

from itertools import product
from statistics import fmean, stdev

import pytest
import torch
from models import TableLM, random_table, tiny_gpt

from minispec import Sampling, SeededDice, TokenTree, load_pair, speculate
from minispec.analysis import accepted_given, expected_accepted, gain, over_all_drafts, prefix_mass, real_drafts
from minispec.bench.workloads import prompts
from minispec.decoding import EnumeratingDice, rules
from minispec.decoding.tree import CHOSEN, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import LMDrafter, TableDrafter, TreeDrafter

TOKEN, BLOCK, RECURSIVE, TRAVERSAL, KSEQ = (rules.Token(), rules.Block(), rules.Recursive(), rules.Traversal(),
                                            rules.KSeq())


def drafts(draft_table, target_table, shape, origin=SAMPLED):
    """(probability, tree, target_probs) of every draft after token 0."""
    drafter = TableDrafter(draft_table, branching=shape, origin=origin)
    drafter.start([0], Sampling())
    for chance, tree in EnumeratingDice().branches(lambda dice: drafter.propose(dice, len(shape))):
        yield chance, tree, target_table[[0, *tree.tokens]]


@pytest.mark.parametrize("rule, origin, shape", [
    (TOKEN, SAMPLED, (1, 1)), (BLOCK, SAMPLED, (1, 1, 1)), (RECURSIVE, SAMPLED, (2, 1)), (KSEQ, SAMPLED, (2, 1)),
    (RECURSIVE, WITHOUT_REPLACEMENT, (2, 1)), (TRAVERSAL, WITHOUT_REPLACEMENT, (2, 1))], ids=str)
def test_given_the_tree_and_then_averaged_is_the_average(rule, origin, shape):
    p, q = random_table(3, 0), random_table(3, 1)
    mean = sum(chance * accepted_given(rule, tree, probs) for chance, tree, probs in drafts(q, p, shape, origin))
    assert mean == pytest.approx(expected_accepted(rule, p, q, shape, origin), abs=1e-12)


def test_a_rule_that_decides_by_draws_is_refused():
    with pytest.raises(ValueError, match="rules.Match decides by draws"):
        accepted_given(rules.Match(), TokenTree.chain([0], origin=CHOSEN), torch.ones(2, 3) / 3)


# --- the theorem -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(3))
def test_block_keeps_at_least_as_many_as_token_over_all_drafts_and_prefix_by_prefix(seed):
    p, q = random_table(3, seed), random_table(3, seed + 50)
    token = block = mass = 0.0
    for chance, tree, probs in drafts(q, p, (1, 1, 1)):
        assert accepted_given(TOKEN, tree, probs) <= prefix_mass(tree, probs) + 1e-12            # on every chain
        token += chance * accepted_given(TOKEN, tree, probs)
        block += chance * accepted_given(BLOCK, tree, probs)
        mass += chance * prefix_mass(tree, probs)
    assert block == pytest.approx(mass, abs=1e-12) and block > token


def test_on_one_chain_block_may_keep_fewer_than_token():
    """p = (1/4, 3/4), q = (1/2, 1/2), chain 0 0. Token: 1/2 + 1/4. Block: P_2 = 1/4 keeps both, else nothing: 1/2.
    Its reward lies elsewhere: 0 1 is kept whole with P_2 = 3/4, where Token keeps 1/2 + 1/2."""
    p, q = torch.tensor([0.25, 0.75]).double(), torch.tensor([0.5, 0.5]).double()
    kept = {tokens: [accepted_given(rule, TokenTree.chain(tokens, [q, q]), p.expand(3, 2)) for rule in (TOKEN, BLOCK)]
            for tokens in product((0, 1), repeat=2)}
    assert kept[0, 0] == pytest.approx([0.75, 0.5]) and kept[0, 1] == pytest.approx([1.0, 1.5])
    assert sum(token for token, _ in kept.values()) / 4 == pytest.approx(21 / 16)
    assert sum(block for _, block in kept.values()) / 4 == pytest.approx(22 / 16)


def test_the_gain_is_paired_by_draft():
    drafts_, p = [], torch.tensor([0.25, 0.75]).double()
    for tokens in product((0, 1), repeat=2):
        drafts_.append((TokenTree.chain(tokens, [torch.tensor([0.5, 0.5]).double()] * 2), p.expand(3, 2)))
    found = gain(TOKEN, BLOCK, drafts_)
    differences = torch.tensor([0.5 - 0.75, 1.5 - 1.0, 0, 0])
    assert found[:4] == pytest.approx((4, 21 / 16, 22 / 16, 1 / 16))
    assert found.error == pytest.approx(float(differences.std()) / 2, abs=1e-6)


def test_real_drafts_are_those_of_the_generation():
    target, draft, trees = tiny_gpt(5, 0, context=40), tiny_gpt(5, 1, context=40), []
    for i, prompt in enumerate([[1], [2]]):
        trace = speculate(target, LMDrafter(draft, 2), prompt, max_new_tokens=12, dice=SeededDice(3 + i)).trace
        trees += [r.tree.tokens for r in trace.rounds if r.tokens]
    found = real_drafts(target, LMDrafter(draft, 2), [[1], [2]], TOKEN, max_new_tokens=12, seed=3)
    assert [tree.tokens for tree, _ in found] == trees
    assert all(len(probs) == 1 + len(tree) for tree, probs in found)


def test_over_all_drafts_of_a_table_is_the_formula():
    p, q = random_table(3, 2), random_table(3, 3)
    found = over_all_drafts(TableLM(p), TableDrafter(q, branching=(2, 1)), [1, 0], 2, RECURSIVE, TRAVERSAL,
                            sampling=Sampling())
    assert found == pytest.approx([expected_accepted(rule, p, q, (2, 1)) for rule in (RECURSIVE, TRAVERSAL)], abs=1e-12)


# --- the shipped pair ------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pair():
    target, draft, tokenizer = load_pair()
    return target, draft, [tokenizer.encode(prompt.text).ids for prompt in prompts("code", 5)]


def test_block_keeps_at_least_as_many_as_token_on_the_shipped_pair(pair):
    """The theorem holds chain by chain for the prefix masses, whose mean is Block's; and Block's own mean, over these
    few drafts, lies within five standard errors of it: false alarm 1e-6."""
    target, draft, ids = pair
    found = real_drafts(target, LMDrafter(draft, 4), ids, TOKEN, max_new_tokens=48)
    token, block = ([accepted_given(rule, *drafted) for drafted in found] for rule in (TOKEN, BLOCK))
    masses = [prefix_mass(*drafted) for drafted in found]
    assert len(found) >= 40 and all(a <= b + 1e-12 for a, b in zip(token, masses))
    assert fmean(masses) > fmean(token)
    off = [a - b for a, b in zip(block, masses)]
    assert abs(fmean(off)) < 5 * stdev(off) / len(off) ** 0.5


def test_over_all_drafts_block_keeps_at_least_as_many_as_token_in_every_context(pair):
    """The theorem itself, no luck left: every draft of three tokens (top-k 2: eight of them), every coin."""
    target, draft, ids = pair
    for context in ids:
        drafter = LMDrafter(draft, 3)
        token, block = over_all_drafts(target, drafter, context, 3, TOKEN, BLOCK, sampling=Sampling(top_k=2))
        assert block >= token - 1e-9


@pytest.mark.parametrize("origin, top_k", [(SAMPLED, 2), (WITHOUT_REPLACEMENT, 3)])
def test_over_all_drafts_traversal_keeps_at_least_as_many_as_recursive_on_average(pair, origin, top_k):
    """An observation, no theorem: so on average over contexts."""
    target, draft, ids = pair
    drafter = TreeDrafter(draft, (2, 1), origin=origin)
    kept = [over_all_drafts(target, drafter, context, 2, RECURSIVE, TRAVERSAL, sampling=Sampling(top_k=top_k))
            for context in ids]
    assert fmean(b - a for a, b in kept) > 0
