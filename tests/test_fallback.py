"""Retrieve first, fall back to a model; and the rule that judges each round's tree by its origin."""

import pytest
import torch
from models import assert_like_a_fresh_prefill, random_table, tiny_gpt

from minispec import GPT, Sampling, SeededDice, TokenTree, generate, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, prove, sequential_law
from minispec.decoding import Speculation, rules
from minispec.decoding.tree import CHOSEN, ORIGINS, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import (DynamicTreeDrafter, FallbackDrafter, LMDrafter, NgramDrafter, SuffixDrafter,
                               TableDrafter, TreeDrafter)

TARGET, DRAFT = Memoised(tiny_gpt(3, 12)), Memoised(tiny_gpt(3, 13))
PROMPT = [0, 1, 2, 0, 1]
token_or_match = rules.ByOrigin(rules.Token(), rules.Match())


def law_of(drafter, rule, new_tokens=5, sampling=Sampling()):
    """The loop's law; the origins of all trees it met; the target's own law."""
    seen = set()

    class Seen(type(rule)):
        def __call__(self, tree, target_probs, dice):
            seen.add(tree.origin if len(tree) else "empty")
            return super().__call__(tree, target_probs, dice)

    watched = Seen(*rule.rules) if isinstance(rule, rules.ByOrigin) else Seen()
    law = output_law_by_rounds(lambda: Speculation(TARGET, drafter, PROMPT, max_new_tokens=new_tokens, rule=watched,
                                                   sampling=sampling))
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    assert max(map(len, law)) > drafter.length + 1, "one round could emit everything: nothing joint was proved"
    return law, seen, sequential_law(TARGET.model, PROMPT, new_tokens, sampling=sampling)


class Retrieval(FallbackDrafter):
    """With the longest path it can propose, for the check above."""
    length = 2


# --- exactness -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rule", [token_or_match, rules.ByOrigin(rules.Block(), rules.Match()), rules.Match()],
                         ids=lambda rule: rule.name)
@pytest.mark.parametrize("first", [NgramDrafter(2, longest=3, shortest=2), SuffixDrafter(2, shortest=2)],
                         ids=["ngram", "suffix"])
def test_lookup_before_a_model_has_the_targets_law(first, rule):
    law, seen, own = law_of(Retrieval(first, LMDrafter(DRAFT, 2)), rule, new_tokens=4)
    assert law_error(law, own) < 1e-12
    assert {CHOSEN, SAMPLED} <= seen


@pytest.mark.parametrize("origin", [WITHOUT_REPLACEMENT, CHOSEN])
def test_lookup_before_a_tree_has_the_targets_law(origin):
    drafter = Retrieval(NgramDrafter(2, longest=2, shortest=2), TreeDrafter(DRAFT, (2, 1), origin=origin))
    law, seen, own = law_of(drafter, rules.ByOrigin(rules.Traversal(), rules.Match()), new_tokens=4)
    assert law_error(law, own) < 1e-12
    assert {CHOSEN, origin} <= seen


def test_a_model_may_come_first_and_drafters_nest():
    """A draft whose context is short stops proposing: there the lookup takes over, and after it another model."""
    short = LMDrafter(Memoised(tiny_gpt(3, 14, context=6)), 2)
    drafter = Retrieval(short, Retrieval(NgramDrafter(2, longest=2, shortest=2), LMDrafter(DRAFT, 1)))
    law, seen, own = law_of(drafter, token_or_match, new_tokens=4)
    assert law_error(law, own) < 1e-12
    assert {CHOSEN, SAMPLED} <= seen


class Peeks(Retrieval):
    """Biased: lets the model draw, and looks something up instead where it does not like its token."""

    def propose(self, dice, room):
        tree = self.then.propose(dice, room)
        self.fell_back = len(tree) > 0 and float(tree.draft_probs[-1][tree.tokens[0]]) >= 0.4
        self.tree = tree if self.fell_back else self.first.propose(dice, room)
        return self.tree


def test_choosing_by_what_the_model_drew_is_a_bias_that_only_match_bears():
    drafter = Peeks(NgramDrafter(2, longest=1), LMDrafter(DRAFT, 2))
    law, _, own = law_of(drafter, token_or_match, new_tokens=4)
    assert law_error(law, own) > 1e-3
    law, _, own = law_of(drafter, rules.Match(), new_tokens=4)
    assert law_error(law, own) < 1e-12


# --- caches and memories ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", [lambda draft: LMDrafter(draft, 3), lambda draft: TreeDrafter(draft, (2, 2, 1)),
                                   lambda draft: DynamicTreeDrafter(draft, 5, 3, 2)],
                         ids=["chain", "tree", "dynamic tree"])
@torch.inference_mode()
def test_both_know_all_committed_tokens_after_every_round(model):
    first, then = NgramDrafter(3, longest=4, shortest=3), model(tiny_gpt(3, 15, context=48))
    rule = rules.ByOrigin(rules.Recursive(), rules.Match())
    run = Speculation(tiny_gpt(3, 16, context=48), FallbackDrafter(first, then), PROMPT, max_new_tokens=40, rule=rule)
    dice, authors = SeededDice(1), []
    while not run.stop_reason:
        run.round(dice)
        authors.append(run.drafter.fell_back)
        assert first.ids == then.ids == run.ids
        assert_like_a_fresh_prefill(then.draft, then.cache, run.ids)
    assert 3 <= sum(authors) <= len(authors) - 3, "both should have had rounds of their own"


def test_a_stop_token_inside_a_lookup_reaches_both():
    first, then = NgramDrafter(3), LMDrafter(tiny_gpt(3, 15))
    target = tiny_gpt(3, 12)
    run = speculate(target, FallbackDrafter(first, then), PROMPT, rule=token_or_match, stop_tokens=[2],
                    max_new_tokens=9, dice=SeededDice(3))
    assert first.ids == then.ids == [*PROMPT, *run.tokens]


def test_the_model_costs_no_pass_in_a_round_of_the_other():
    class Counts(GPT):
        passes = 0

        def forward(self, *args, **options):
            type(self).passes += 1
            return super().forward(*args, **options)

    draft = tiny_gpt(3, 15, context=48)
    draft.__class__ = Counts
    run = speculate(tiny_gpt(3, 16, context=48), FallbackDrafter(NgramDrafter(3, longest=2), LMDrafter(draft, 3)),
                    PROMPT, max_new_tokens=40, rule=token_or_match)
    drafted = sum(r.proposed for r in run.trace.rounds if r.tree.origin == SAMPLED)
    assert Counts.passes == 1 + drafted and any(r.proposed and r.tree.origin == CHOSEN for r in run.trace.rounds)


def test_with_the_target_as_its_own_model_only_a_lookup_is_ever_rejected():                             # D1
    target = tiny_gpt(3, 16, context=48)
    drafter = FallbackDrafter(NgramDrafter(3, longest=3, shortest=3), LMDrafter(target, 3))
    run = speculate(target, drafter, PROMPT, max_new_tokens=40, rule=token_or_match)
    models = [r for r in run.trace.rounds if r.tree.origin == SAMPLED]
    assert len(models) >= 3 and all(r.accepted == r.proposed for r in models)
    assert any(r.tree.origin == CHOSEN and r.accepted < r.proposed for r in run.trace.rounds)


def test_greedy_output_is_plain_output():
    target, options = tiny_gpt(5, 2, context=60), dict(max_new_tokens=40, sampling=Sampling(0.0))
    drafter = FallbackDrafter(SuffixDrafter(8, shortest=2), LMDrafter(tiny_gpt(5, 3, context=60), 4))
    assert speculate(target, drafter, [0, 1, 2], rule=token_or_match, **options).tokens == \
        generate(target, [0, 1, 2], **options).tokens


def test_the_traced_cache_is_the_models():
    lookup, model = NgramDrafter(), LMDrafter(tiny_gpt(3, 15))
    for drafter in (FallbackDrafter(lookup, model), FallbackDrafter(model, lookup)):
        drafter.start(PROMPT, Sampling())
        assert drafter.cache_length() == 4
    both = FallbackDrafter(lookup, SuffixDrafter())
    both.start(PROMPT, Sampling())
    assert both.cache_length() is None and both.max_nodes == 16


# --- the rule --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("origin", ORIGINS)
def test_by_origin_is_proved_for_every_origin(origin):
    assert prove(rules.ByOrigin(rules.Recursive(), rules.Match()), origin, [(2, 1)]).exact


class ShapeFollowsTokens(TableDrafter):
    """A sampled tree: where the first token is 0 a chain of two, otherwise two children below it. Not anticipating."""

    def propose(self, dice, room):
        first = super().propose(dice, min(room, 1))
        if room < 2:
            return first
        q = self.table[first.tokens[0]]
        children = [dice.draw(q) for _ in range(1 if first.tokens[0] == 0 else 2)]
        return TokenTree((*first.tokens, *children), (-1, *[0] * len(children)), first.draft_probs | {0: q}, SAMPLED)


class ByShape(rules.ByOrigin):
    """The tempting mistake: Token where the tree happens to be a chain."""

    def judge(self, tree):
        return rules.Token() if tree.is_chain else rules.Match()


def test_the_rule_may_not_be_chosen_by_a_shape_that_depends_on_the_tokens():
    """Why ByOrigin looks at the origin alone: each of the two rules would be exact for trees that are all alike."""
    shape = [(1, 2)]
    assert not prove(ByShape(rules.Token(), rules.Match()), SAMPLED, shape, ShapeFollowsTokens).exact
    for rule in (rules.Match(), rules.ByOrigin(rules.Recursive(), rules.Match())):
        assert prove(rule, SAMPLED, shape, ShapeFollowsTokens).exact


def test_by_origin_says_what_its_rules_say():
    rule = rules.ByOrigin(rules.Token(), rules.Match())
    assert (rule.exact, rule.origins, rule.name) == (True, ORIGINS, "token/match")
    lossy = rules.ByOrigin(rules.Token(), rules.Typical())
    assert not lossy.exact
    only = rules.ByOrigin(rules.Token(), rules.Recursive())
    assert only.origins == (SAMPLED, WITHOUT_REPLACEMENT)
    with pytest.raises(ValueError, match="use rules.Match"):
        only.check(TokenTree.chain([0], origin=CHOSEN))
    with pytest.raises(ValueError, match="judges chains, this tree has branches"):
        rule.check(TokenTree((0, 1), (-1, -1), {-1: random_table(3, 0)[0]}))
    with pytest.raises(ValueError, match="needs at least one rule"):
        rules.ByOrigin()
