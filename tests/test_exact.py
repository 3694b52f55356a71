"""The proof: the emitted tokens have the target's law, jointly over several rounds, for every way the dice can fall.

The real loop runs with real caches, stops and budgets; only the dice are replaced, by ones that take every branch. The
error bound is 1e-12 in float64, and nothing here is sampled.
"""

from functools import lru_cache

import pytest
import torch
from models import FixedTree, TableLM, random_table, tiny_gpt

from minispec import Sampling, TokenTree, speculate
from minispec.analysis import (Memoised, law_error, output_law, output_law_by_rounds, sequential_law,
                               total_variation)
from minispec.decoding import EnumeratingDice, Speculation, Verdict, rules
from minispec.drafters import LMDrafter, NgramDrafter, TableDrafter


@lru_cache(maxsize=None)
def tiny(V: int, seed: int, context: int = 16) -> Memoised:
    """A random GPT that computes each row once, for all proofs of this file."""
    return Memoised(tiny_gpt(V, seed, context))


SAMPLINGS = {"temperature 1": Sampling(), "temperature 0.7": Sampling(0.7), "greedy": Sampling(0.0),
             "top-k 2": Sampling(top_k=2), "top-p 0.7": Sampling(top_p=0.7), "all three": Sampling(1.5, 2, 0.8)}
sampling_of_both = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


def prove(target, drafter, rule, *, prompt=(0, 1), max_new_tokens=4, sampling=Sampling(), stop_tokens=()):
    """Assert that the loop has the law of its target, jointly over all tokens of two rounds or more."""
    law = output_law_by_rounds(lambda: Speculation(target, drafter, prompt, max_new_tokens=max_new_tokens, rule=rule,
                                                   sampling=sampling, stop_tokens=stop_tokens))
    truth = sequential_law(target.model, prompt, max_new_tokens, sampling=sampling, stop_tokens=stop_tokens)
    assert abs(sum(law.values()) - 1) < 1e-12
    assert law_error(law, truth) < 1e-12
    assert max(map(len, law)) > deepest(drafter) + 1, "one round could emit everything: nothing joint was proved"


def deepest(drafter) -> int:
    return int(TokenTree((0,) * drafter.max_nodes, drafter.parents).depths().max() if hasattr(drafter, "parents")
               else drafter.max_nodes)


# --- rejection sampling -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("length", [1, 2, 3])
@sampling_of_both
def test_token_rule_with_a_language_model_draft(sampling, length):                     # A1 A4 A15 A16 A19
    prove(tiny(3, 0), LMDrafter(tiny(3, 1), length), rules.Token(), max_new_tokens=length + 2, sampling=sampling)


@pytest.mark.parametrize("draft_sampling", [Sampling(0.0), Sampling(0.5), Sampling(2.0), Sampling(top_k=1),
                                            Sampling(top_p=0.5)], ids=str)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_p=0.8), Sampling(0.0)], ids=str)
def test_the_draft_may_sample_in_its_own_way(sampling, draft_sampling):                # A1 A3 A18
    prove(tiny(3, 0), LMDrafter(tiny(3, 1), 2, draft_sampling), rules.Token(), sampling=sampling)


@pytest.mark.parametrize("stop_tokens", [[2], [0, 1]], ids=str)
def test_stop_tokens_end_every_branch_where_they_would_end_plain_decoding(stop_tokens):
    prove(tiny(3, 2), LMDrafter(tiny(3, 3), 3), rules.Token(), max_new_tokens=5, stop_tokens=stop_tokens)


@pytest.mark.parametrize("context", [6, 7])
def test_the_context_limit_ends_every_branch(context):                                 # G1
    drafter = LMDrafter(tiny(3, 5), 2)
    prove(tiny(3, 4, context), drafter, rules.Token(), max_new_tokens=12)


@pytest.mark.parametrize("draft_context", [1, 2, 3, 4, 5])
def test_a_draft_whose_context_is_shorter_stops_proposing_there(draft_context):         # G2
    prove(tiny(3, 6), LMDrafter(tiny(3, 7, draft_context), 2), rules.Token())


def test_a_longer_run_of_two_tokens():
    prove(tiny(2, 8), LMDrafter(tiny(2, 9), 3), rules.Token(), prompt=[1], max_new_tokens=7)


def test_token_rule_with_a_table_draft_that_never_proposes_some_tokens():
    table = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]])
    prove(tiny(3, 10), TableDrafter(table, 3), rules.Token(), max_new_tokens=5)


def test_a_draft_equal_to_the_target_is_never_rejected():                              # D1
    model, fates = tiny(3, 11), []

    def run(dice):
        generation = speculate(model, LMDrafter(model, 2), [0], max_new_tokens=5, dice=dice)
        fates.extend((r.accepted, r.proposed) for r in generation.trace.rounds)
        return generation

    law = output_law(run)
    assert law_error(law, sequential_law(model.model, [0], 5)) < 1e-12
    assert all(accepted == proposed for accepted, proposed in fates)


# --- sample and match -------------------------------------------------------------------------------------------------

@sampling_of_both
def test_match_rule_with_a_language_model_draft(sampling):                             # A9 A10
    prove(tiny(3, 0), LMDrafter(tiny(3, 1), 2), rules.Match(), sampling=sampling)


@sampling_of_both
def test_match_rule_with_prompt_lookup(sampling):
    prove(tiny(3, 12), NgramDrafter(2, longest=2), rules.Match(), prompt=[0, 1, 2, 0, 1], sampling=sampling)


def test_match_rule_with_prompt_lookup_and_stop_tokens():
    prove(tiny(3, 13), NgramDrafter(3), rules.Match(), prompt=[0, 1, 2, 1, 0, 1], max_new_tokens=5, stop_tokens=[2])


def test_match_rule_with_a_table_draft():
    prove(tiny(3, 14), TableDrafter(random_table(3, 0), 2), rules.Match())


@pytest.mark.parametrize("parents", [(-1, -1), (-1, -1, 0, 1, 1)], ids=str)
def test_match_rule_on_trees_with_branches(parents):
    """The tokens of the tree depend on what was committed, and on nothing else."""
    prove(tiny(3, 15), FixedTree(parents, lambda ids, node: (sum(ids) + node) % 3), rules.Match(), max_new_tokens=4)


def test_match_rule_may_meet_siblings_with_the_same_token():
    prove(tiny(3, 16), FixedTree((-1, -1, 0, 1), lambda ids, node: (node // 2 + ids[-1]) % 3), rules.Match(),
          max_new_tokens=4)


# --- the proof itself -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [rules.Token(), rules.Match()], ids=lambda rule: rule.name)
def test_replaying_speculate_from_its_start_gives_the_law_too(rule):
    """No merging of states and no memory between branches: the slow proof, of `speculate` itself and a plain GPT."""
    target, draft, rounds = tiny_gpt(2, 17), tiny_gpt(2, 18), []

    def run(dice):
        generation = speculate(target, LMDrafter(draft, 1), [0], max_new_tokens=3, rule=rule, dice=dice)
        rounds.append(len(generation.trace.rounds))
        return generation

    law = output_law(run)
    assert min(rounds) >= 2
    assert abs(sum(law.values()) - 1) < 1e-12
    assert law_error(law, sequential_law(target, [0], 3)) < 1e-12


def test_both_ways_of_enumerating_agree_where_the_law_is_wrong():
    """A rule that takes every proposal is wrong in the same way under both."""
    class TakeAll(rules.Token):
        def __call__(self, tree, target_probs, dice):
            path = list(range(len(tree)))
            return Verdict(path, dice.draw(target_probs[len(tree)]), bonus=True)

    target, draft = Memoised(tiny_gpt(2, 19)), Memoised(tiny_gpt(2, 20))
    options = dict(max_new_tokens=4, rule=TakeAll())
    slow = output_law(lambda dice: speculate(target, LMDrafter(draft, 2), [0], dice=dice, **options))
    fast = output_law_by_rounds(lambda: Speculation(target, LMDrafter(draft, 2), [0], **options))
    assert law_error(slow, fast) < 1e-12
    assert total_variation(slow, sequential_law(target.model, [0], 4)) > 0.05


def test_a_memoised_model_computes_what_the_model_computes():
    model = tiny_gpt(3, 21)
    memoised = Memoised(model)
    real, named = model.new_cache(), memoised.new_cache()
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]).bool()
    tree = dict(positions=torch.tensor([3, 4, 4, 5]), mask=mask)
    with torch.no_grad():
        for tokens, extra in [([0, 2, 1], {}), ([1, 0, 2, 2], tree), ([1, 1], {})]:
            rows = torch.tensor([tokens])
            torch.testing.assert_close(memoised(rows, named, **extra), model(rows, real, **extra), rtol=0, atol=1e-10)
            for cache in (real, named):
                if extra:
                    cache.keep(3, [0, 2, 3])                                   # the path 0 - 2 - 3 of the tree


def test_a_memoised_model_refuses_a_mask_that_looks_ahead():
    memoised = Memoised(tiny_gpt(3, 0))
    for mask in ([[1, 1], [1, 1]], [[1, 0], [1, 0]]):
        with pytest.raises(ValueError, match="must attend to itself and to no row after it"):
            memoised(torch.tensor([[0, 1]]), memoised.new_cache(), mask=torch.tensor(mask).bool())


def test_the_chain_rule_law_of_a_table_is_a_product_of_its_rows():
    """The reference of all proofs, against numbers multiplied by hand."""
    target = TableLM(torch.tensor([[0.5, 0.5], [0.1, 0.9]], dtype=torch.float64))
    law = output_law(lambda dice: speculate(target, TableDrafter(torch.full((2, 2), 0.5), 1), [0], max_new_tokens=2,
                                            dice=dice))
    by_hand = {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.05, (1, 1): 0.45}
    assert law_error(law, by_hand) < 1e-12


def test_enumeration_visits_every_way_the_dice_can_fall_once():
    def run(dice):
        return dice.draw(torch.tensor([1.0, 0.0, 4.0])) if dice.accept(0.25) else None

    branches = list(EnumeratingDice().branches(run))
    assert [result for _, result in branches] == [0, 2, None]
    assert [probability for probability, _ in branches] == pytest.approx([0.05, 0.2, 0.75], abs=1e-15)
