"""Do the tests bite? Every mutant of mutants.py is caught by the check it names, and sound code passes that check."""

from inspect import unwrap

import pytest
import test_dice
import test_lm_tree
import test_loop
import test_metrics
import test_rules
import test_sampling
import test_trace
import test_tree_rules
import torch
from models import FixedTree
from mutants import MUTANTS
from test_exact import prove, tiny

from minispec import Sampling, TokenTree, analysis
from minispec.decoding import rules
from minispec.decoding.tree import SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import LMDrafter, NgramDrafter


def token_law():
    for sampling in (Sampling(0.7), Sampling(top_k=2)):
        prove(tiny(3, 0), LMDrafter(tiny(3, 1), 2), rules.Token(), sampling=sampling)


def tree_law():
    tree = FixedTree((-1, -1, 0, 1, 1), lambda ids, node: (sum(ids) + node) % 3)
    prove(tiny(3, 15), tree, rules.Match())


def siblings_law():
    prove(tiny(3, 15), FixedTree((-1, -1), lambda ids, node: node), rules.Match(), max_new_tokens=3)


def tree_drafter():
    """The drafter's q at every node and its cache after every round, against fresh passes."""
    with torch.no_grad():
        test_lm_tree.test_each_round_drafts_from_the_right_contexts_and_leaves_the_cache_of_a_fresh_prefill(
            test_lm_tree.FIXED["3 x 2 x 1, sampled"], 0, Sampling(0.7, top_k=3))


def exact(rule, origin=SAMPLED, shape=(2, 1)):
    """The door through which every rule goes."""
    def check():
        assert analysis.prove(rule, origin, [shape]).exact

    return check


CHECKS = {
    "tree drafter": tree_drafter,
    "ties in a dynamic tree": lambda: [test_lm_tree.test_ties_never_cut_a_tree_apart(torch.eye(4), nodes)
                                       for nodes in range(1, 12)],
    "recursive law": exact(rules.Recursive()),
    "law without replacement": exact(rules.Recursive(), WITHOUT_REPLACEMENT),
    "exhausted draft": test_tree_rules.test_left_over_is_the_law_of_the_next_draw,
    "what q cannot have drawn": lambda: test_tree_rules.test_a_token_that_its_own_q_cannot_have_drawn_is_refused(
        TokenTree.chain([2], [torch.tensor([0.5, 0.5, 0.0])])),
    "block law": exact(rules.Block(), shape=(1, 1)),
    "traversal law": exact(rules.Traversal()),
    "kseq law": exact(rules.KSeq()),
    "token law": token_law,
    "tree law": tree_law,
    "law of siblings": siblings_law,
    "seeded law": test_dice.test_draft_and_acceptance_together_have_the_targets_law,
    "forced rejection": test_rules.test_a_forced_rejection_of_equal_laws_gives_a_token_of_p,
    "temperature near zero":
        lambda: test_sampling.test_a_temperature_near_zero_gives_the_likeliest_token_and_no_warning(0.0),
    "NaN refused": lambda: test_sampling.test_a_row_without_a_distribution_is_refused_wherever_it_stands(
        [0.0, 1.0, float("nan")], 1.0),
    "lowest of ties": test_sampling.test_greedy_takes_the_lowest_of_tied_ids,
    "stops": lambda: test_loop.test_a_stop_token_ends_the_output_wherever_in_a_round_it_falls(4, ()),
    "no stops": test_loop.test_without_stop_tokens_nothing_stops_early,
    "budget": lambda: test_loop.test_the_budget_is_met_exactly(3, ()),
    "no proposals": test_metrics.test_without_proposals_there_is_no_rate,
    "stop at the end": lambda: test_loop.test_a_stop_that_is_the_last_token_of_the_budget_is_a_stop(
        lambda target, prompt, **options: test_loop.recite(**options)),
    "counts": lambda: test_trace.test_nothing_is_counted_past_a_stop(4, [4], 1, 1, 4),
    "draft == target":
        lambda: test_loop.test_a_draft_equal_to_the_target_is_accepted_whole_for_fifty_rounds(2, Sampling()),
    "caches": lambda: test_loop.test_caches_hold_the_committed_tokens_and_nothing_else(2),
    "caches at a stop": lambda: [test_loop.test_caches_hold_the_committed_tokens_where_a_stop_cut_the_round(stop)
                                 for stop in range(5)],
    "caches of a tree": test_loop.test_caches_hold_the_committed_tokens_after_a_path_through_a_tree,
    "memory": test_loop.test_nothing_is_allocated_anew_during_a_generation,
    "second call": lambda: test_loop.test_a_drafter_used_twice_behaves_as_if_new(NgramDrafter(3), rules.Match()),
    "global dice": test_dice.test_no_global_generator_is_read_or_written,
}


@pytest.mark.parametrize("check", CHECKS)
def test_sound_code_passes_the_check(check):
    CHECKS[check]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.case} {mutant.name}")
def test_the_fault_is_caught(mutant):
    """A crash counts as caught too: no wrong token gets out."""
    with mutant.applied():
        with pytest.raises((Exception, pytest.fail.Exception)):
            CHECKS[mutant.caught_by]()


@pytest.mark.parametrize("name", ["the draft misses a token after full acceptance", "the draft rolls back one too far",
                                  "the draft starts over"])
def test_a_fault_in_the_drafts_cache_leaves_the_law_right(name):
    """Only speed is lost, so a proof of the law cannot see it: the invariants above must."""
    with next(mutant for mutant in MUTANTS if mutant.name == name).applied():
        token_law()


def test_a_mutant_is_gone_after_its_block():
    for mutant in MUTANTS:
        sound = unwrap(mutant.where).__code__
        with mutant.applied():
            assert unwrap(mutant.where).__code__ != sound
        assert unwrap(mutant.where).__code__ == sound
