"""Language-model drafters of trees: what they propose, what their cache holds, and that the loop stays exact."""

import itertools

import pytest
import torch
from models import TableLM, random_table, row, tiny_gpt

from minispec import Sampling, SeededDice, generate, speculate
from minispec.analysis import Memoised, law_error, output_law_by_rounds, sequential_law
from minispec.analysis.exact import fingerprint
from minispec.decoding import EnumeratingDice, Speculation, Verdict, rules
from minispec.decoding.tree import CHOSEN, ORIGINS, ROOT, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import DynamicTreeDrafter, LMDrafter, TreeDrafter

TIGHT = dict(rtol=0, atol=1e-10)
SHAPES = {"1 x 4": dict(branching=[1] * 4), "4 x 1": dict(branching=[4]), "3 x 2 x 1": dict(branching=[3, 2, 1]),
          "depth first": dict(parents=[-1, 0, 1, 0, -1, 4, 5, 6, 4, -1])}
FIXED = {f"{shape}, {origin}": (lambda draft, fields=fields, origin=origin: TreeDrafter(draft, origin=origin, **fields))
         for shape, fields in SHAPES.items() for origin in ORIGINS}
DYNAMIC = {"dynamic": lambda draft: DynamicTreeDrafter(draft, nodes=9, depth=4, width=3),
           "dynamic, narrow": lambda draft: DynamicTreeDrafter(draft, nodes=4, depth=6, width=1),
           "dynamic, cut hard": lambda draft: DynamicTreeDrafter(draft, nodes=3, depth=3, width=4)}
SOME = {name: FIXED[name] for name in ("3 x 2 x 1, sampled", "depth first, chosen")} | {"dynamic": DYNAMIC["dynamic"]}
any_drafter = pytest.mark.parametrize("build", [*FIXED.values(), *DYNAMIC.values()], ids=[*FIXED, *DYNAMIC])
some_drafters = pytest.mark.parametrize("build", SOME.values(), ids=SOME)


pytestmark = pytest.mark.usefixtures("no_gradients")


def contents(cache) -> torch.Tensor:
    """All that the cache holds: (2L, B, H, length, D), keys and values."""
    return torch.stack([rows[:, :, :cache.length] for rows in (*cache.keys, *cache.values)])


def proposal(drafter, prompt=(0,), *, room=99, seed=0, sampling=Sampling()):
    drafter.start(list(prompt), sampling)
    return drafter.propose(SeededDice(seed), room)


def strings(tree) -> list[tuple[int, ...]]:
    """The tokens from the root down to each node."""
    return [tuple(tree.tokens[step] for step in tree.path(node)) for node in range(len(tree))]


# --- passes and caches ------------------------------------------------------------------------------------------------

@any_drafter
@pytest.mark.parametrize("draft_seed, sampling", [(1, Sampling()), (0, Sampling(0.7, top_k=3)), (0, Sampling(0))],
                         ids=["poor draft: short paths", "perfect draft: long paths", "perfect draft, greedy"])
def test_each_round_drafts_from_the_right_contexts_and_leaves_the_cache_of_a_fresh_prefill(build, draft_seed, sampling):
    target, draft, dice = tiny_gpt(6, 0, context=32), tiny_gpt(6, draft_seed, context=32), SeededDice(3)
    drafter = build(draft)
    run = Speculation(target, drafter, [1, 2, 3], max_new_tokens=24, rule=rules.Match(), sampling=sampling)
    while not run.stop_reason:
        ids, r = list(run.ids), run.round(dice)
        assert r.draft_top.keys() == set(r.parents)               # q where there are children, and nowhere else
        for node, q in r.draft_top.items():                       # V is small: the trace holds all of q
            own = ids + [r.tokens[step] for step in r.tree.path(node)]
            fresh = drafter.sampling.probs(draft(row(own))[0, -1])
            assert max(abs(q.get(x, 0.0) - wanted) for x, wanted in enumerate(fresh.tolist())) < 1e-10
        for model, cache in ((draft, drafter.cache), (target, run.cache)):
            prefill = model.new_cache()
            model(row(run.ids[:cache.length]), prefill)
            torch.testing.assert_close(contents(cache), contents(prefill), **TIGHT)
        assert run.cache.length == len(run.ids) - 1 and 1 <= len(r.emitted) <= r.tree.depths().max() + 1
        if r.tokens and isinstance(drafter, TreeDrafter):         # a leaf is never fed: accepted, it is missing
            assert drafter.lag == bool(r.path and not r.tree.children(r.path[-1]))
        elif r.tokens:                                            # a fed node may have lost its children: no lag then
            assert drafter.lag in (0, 1)


def test_one_draft_pass_a_depth_and_the_last_depth_is_never_fed():                     # E1 E6
    draft = TableLM(random_table(5, 0))
    drafter = TreeDrafter(draft, branching=[3, 2, 2])
    assert len(proposal(drafter, [1, 2, 3, 4])) == drafter.max_nodes == 3 + 6 + 12
    assert [(len(c.tokens), c.positions, c.cache_length) for c in draft.calls] == [
        (3, [0, 1, 2], 0),                                        # the prompt, its last token aside
        (1, [3], 3), (3, [4] * 3, 4), (6, [5] * 6, 7)]


def test_a_node_without_children_is_not_fed_at_any_depth():
    draft = TableLM(random_table(5, 0))
    drafter = TreeDrafter(draft, parents=[-1, 0, 1, -1, 3, -1])   # inner nodes: 0, 1 and 3
    proposal(drafter, [1, 2])
    assert [len(c.tokens) for c in draft.calls[1:]] == [1, 2, 1]


def test_after_an_accepted_leaf_the_next_proposal_feeds_two_tokens():                  # D2 D4
    draft = TableLM(random_table(5, 0))
    drafter = TreeDrafter(draft, branching=[2, 2])
    tree = proposal(drafter, [1, 2])
    drafter.commit(Verdict(tree.path(5), token=3, bonus=True))
    assert drafter.lag == 1 and len(drafter.propose(SeededDice(1), 9)) == 6
    assert draft.calls[-2][:2] == ([tree.tokens[5], 3], [3, 4])


@some_drafters
def test_nothing_of_a_rejected_tree_stays_in_the_drafter(build):
    """Runs that committed the same tokens are in one state, whatever they proposed on the way."""
    draft, states = tiny_gpt(6, 1), []
    for seed in range(4):
        drafter = build(draft)
        proposal(drafter, [1, 2], seed=seed)
        drafter.commit(Verdict([], 3, bonus=False))
        states.append(fingerprint(drafter))
    assert len(set(states)) == 1


@some_drafters
def test_a_drafter_used_twice_behaves_as_if_new_and_the_seed_decides(build):           # D19 J1 J2
    """Three calls with one drafter, the second with another prompt and broken off inside a round."""
    target, drafter = tiny_gpt(6, 0, context=48), build(tiny_gpt(6, 1, context=48))
    run = lambda seed: speculate(target, drafter, [1, 2], max_new_tokens=30, rule=rules.Match(), dice=SeededDice(seed))
    first = run(7)
    drafter.start([5, 4, 3], Sampling())
    drafter.propose(SeededDice(0), 9)
    again = run(7)
    assert again.tokens == first.tokens != run(8).tokens
    assert [(r.tokens, r.outcomes, r.draft_cache) for r in again.trace.rounds] == \
           [(r.tokens, r.outcomes, r.draft_cache) for r in first.trace.rounds]


# --- chains -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.6, top_p=0.8), Sampling(0)], ids=str)
@pytest.mark.parametrize("origin", [SAMPLED, WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("seed", range(3))
def test_a_tree_of_one_branch_is_the_chain_drafter(sampling, origin, seed):
    target, draft = tiny_gpt(6, 0), tiny_gpt(6, 1)
    options = dict(max_new_tokens=12, sampling=sampling)
    chain = speculate(target, LMDrafter(draft, 3), [2, 4], dice=SeededDice(seed), **options)
    tree = speculate(target, TreeDrafter(draft, [1, 1, 1], origin=origin), [2, 4], dice=SeededDice(seed),
                     rule=rules.Token() if origin == SAMPLED else rules.Recursive(), **options)
    assert tree.tokens == chain.tokens
    facts = lambda r: (r.tokens, r.parents, r.path, r.bonus, r.emitted, r.draft_cache, len(r.outcomes))
    assert [facts(r) for r in tree.trace.rounds] == [facts(r) for r in chain.trace.rounds]


@pytest.mark.parametrize("build", [lambda model: TreeDrafter(model, [1] * 3, origin=CHOSEN),
                                   lambda model: TreeDrafter(model, [3, 2, 1], origin=CHOSEN),
                                   lambda model: DynamicTreeDrafter(model, nodes=3, depth=3, width=1)])
def test_a_greedy_draft_equal_to_the_target_is_never_rejected(build):                  # D1
    model = tiny_gpt(6, 0, context=40)
    trace = speculate(model, build(model), [1], max_new_tokens=33, rule=rules.Match(), sampling=Sampling(0)).trace
    assert [len(r.path) for r in trace.rounds] == [3] * 8 + [0]   # 8 rounds of 4 tokens, and one left over


@pytest.mark.parametrize("rule", [rules.Recursive(), rules.Traversal()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("origin", [SAMPLED, WITHOUT_REPLACEMENT])
def test_a_sampling_draft_equal_to_the_target_always_reaches_a_leaf(rule, origin):
    model = Memoised(tiny_gpt(6, 0, context=40))                  # p and q are the same numbers, bit by bit
    trace = speculate(model, TreeDrafter(model, [2, 2, 1], origin=origin), [1], max_new_tokens=33, rule=rule).trace
    assert [len(r.path) for r in trace.rounds] == [3] * 8 + [0]


# --- which children ---------------------------------------------------------------------------------------------------

def laws_of_children(origin, count, q) -> dict[tuple[int, ...], float]:
    """{tokens of the root's children: probability}, by enumeration of the real drafter."""
    drafter = TreeDrafter(TableLM(torch.tensor([q] * len(q), dtype=torch.float64)), branching=[count], origin=origin)
    drafter.start([0], Sampling())
    law = {}
    for probability, tree in EnumeratingDice().branches(lambda dice: drafter.propose(dice, 9)):
        law[tree.tokens] = law.get(tree.tokens, 0.0) + probability
        drafter.cache.rollback(0)
    return law


def test_children_drawn_with_replacement_are_independent_and_may_repeat():
    q = [0.5, 0.3, 0.2]
    expected = {(a, b): q[a] * q[b] for a in range(3) for b in range(3)}
    assert law_error(laws_of_children(SAMPLED, 2, q), expected) < 1e-15


def test_children_drawn_without_replacement_follow_what_is_left_of_q():
    q = [0.5, 0.3, 0.2]
    expected = {(a, b): q[a] * q[b] / (1 - q[a]) for a, b in itertools.permutations(range(3), 2)}
    assert law_error(laws_of_children(WITHOUT_REPLACEMENT, 2, q), expected) < 1e-15


def test_without_replacement_an_exhausted_draft_has_fewer_children():
    expected = {(1, 2): 0.75, (2, 1): 0.25}                       # q = (0, .75, .25, 0) has two tokens, not four
    assert law_error(laws_of_children(WITHOUT_REPLACEMENT, 4, [0, 0.75, 0.25, 0]), expected) < 1e-15


def test_a_missing_child_takes_its_subtree_with_it():
    table = torch.tensor([[0.0, 1, 0], [0.5, 0, 0.5], [0, 1.0, 0]])           # from 0: 1 alone. from 1: 0 and 2
    drafter = TreeDrafter(TableLM(table), branching=[2, 2, 1], origin=WITHOUT_REPLACEMENT)
    tree = proposal(drafter, [0])
    assert tree.parents == (-1, 0, 0, 1, 2) and sorted(tree.tokens[1:3]) == [0, 2] and tree.tokens[3:] == (1, 1)


def test_chosen_children_are_the_likeliest_and_the_lower_id_wins_a_tie():
    table = torch.tensor([[0.2, 0.3, 0.2, 0.3]] * 4)
    tree = proposal(TreeDrafter(TableLM(table), branching=[3, 1], origin=CHOSEN))
    assert tree.tokens == (1, 3, 0, 1, 1, 1) and tree.origin == CHOSEN


def test_chosen_children_are_ranked_by_the_whole_of_q_even_if_the_target_is_greedy():
    table = torch.tensor([[0.6, 0.1, 0.3]] * 3)
    assert proposal(TreeDrafter(TableLM(table), [2], origin=CHOSEN), sampling=Sampling(0)).tokens == (0, 2)
    own = TreeDrafter(TableLM(table), [2], origin=CHOSEN, sampling=Sampling(0))
    assert proposal(own).tokens == (0,)                           # asked for: a one-hot q has one token to choose


def test_a_shape_is_filled_as_it_was_given_whatever_the_order_of_its_nodes():
    depth_first, by_depth = (-1, 0, 1, 0, -1, 4), (-1, -1, 0, 0, 1, 2)        # one shape, two orders
    one, other = (proposal(TreeDrafter(tiny_gpt(6, 1), parents=p), [1, 2]) for p in (depth_first, by_depth))
    assert one.parents == other.parents == by_depth and one.tokens == other.tokens


@pytest.mark.parametrize("fields, message", [
    (dict(branching=[2, 0]), "branching must hold whole numbers >= 1"),
    (dict(branching=[]), "at least one node"), (dict(parents=()), "at least one node"),
    (dict(parents=(-1, 1)), "parents must stand before their children"),
    (dict(origin="guessed"), "unknown origin 'guessed': choose from sampled, sampled_without_replacement, chosen")])
def test_a_shape_or_origin_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TreeDrafter(tiny_gpt(), **fields)


# --- dynamic trees ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nodes", [1, 2, 5, 12, 39])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_dynamic_tree_holds_the_likeliest_strings_of_all(nodes, seed):
    """Width 27 prunes nothing at V = 3 and depth 3, so the tree must be the top of a list of all 39 strings."""
    table = random_table(3, seed)
    tree = proposal(DynamicTreeDrafter(TableLM(table), nodes=nodes, depth=3, width=27))
    chance = lambda string: float(torch.tensor([table[a, b] for a, b in itertools.pairwise((0, *string))]).prod())
    every = [s for size in (1, 2, 3) for s in itertools.product(range(3), repeat=size)]
    assert sorted(strings(tree)) == sorted(sorted(every, key=chance, reverse=True)[:nodes])


def test_only_the_likeliest_nodes_of_a_depth_are_expanded():
    #  from 0: 1 (.6) and 2 (.4)     from 1: 0 (.9), 2 (.1)      from 2: 1 (.8), 0 (.2)
    #  depth 2: 10 (.54), 21 (.32), 20 (.08), 12 (.06): width 2 expands the first two, at depth 3: 101 102 210 212
    table = torch.tensor([[0, 0.6, 0.4], [0.9, 0, 0.1], [0.2, 0.8, 0]])
    draft = TableLM(table)
    tree = proposal(DynamicTreeDrafter(draft, nodes=99, depth=3, width=2))
    assert strings(tree) == [(1,), (2,), (1, 0), (1, 2), (2, 1), (2, 0),
                             (1, 0, 1), (1, 0, 2), (2, 1, 0), (2, 1, 2)]
    assert [c.tokens for c in draft.calls] == [[0], [1, 2], [0, 1]]
    kept = proposal(DynamicTreeDrafter(draft, nodes=4, depth=3, width=2))     # .6 .54 .4 .324 (the next ones: .32 .288)
    assert strings(kept) == [(1,), (2,), (1, 0), (1, 0, 1)] and kept.parents == (-1, -1, 0, 2)
    assert kept.draft_probs.keys() == {ROOT, 0, 2}


@pytest.mark.parametrize("nodes", range(1, 12))
@pytest.mark.parametrize("table", [torch.eye(4), torch.full((4, 4), 0.25),
                                   torch.tensor([[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])],
                         ids=["certain", "even", "both"])
def test_ties_never_cut_a_tree_apart(table, nodes):                                    # E: q = 1 ties child and parent
    tree = proposal(DynamicTreeDrafter(TableLM(table), nodes=nodes, depth=5, width=4))
    assert 1 <= len(tree) <= nodes
    assert len(set(strings(tree))) == len(tree)                   # no string twice; TokenTree refuses a lost parent
    if table.equal(torch.eye(4)):
        assert tree.tokens == (0,) * min(nodes, 5) and tree.is_chain
    if table.min() == 0.25 and nodes > 4:
        assert tree.parents[:5] == (-1, -1, -1, -1, 0) and tree.tokens[:5] == (0, 1, 2, 3, 0)


@pytest.mark.parametrize("nodes, depth, width, grown", [(1, 3, 3, 1), (5, 1, 9, 5), (16, 6, 4, 16), (7, 2, 2, 2 + 4)])
def test_the_budget_is_kept_and_the_dice_are_left_alone(nodes, depth, width, grown):
    build = lambda: DynamicTreeDrafter(tiny_gpt(6, 1), nodes, depth, width)
    drafter = build()
    drafter.start([1, 2], Sampling())
    tree = drafter.propose(dice=None, room=99)
    assert len(tree) == grown <= drafter.max_nodes == nodes
    assert tree.depths().max() <= depth and max(len(tree.children(n)) for n in range(-1, len(tree))) <= width
    assert strings(proposal(build(), [1, 2])) == strings(tree)


@pytest.mark.parametrize("fields", [dict(nodes=0), dict(depth=0), dict(width=1.5)], ids=str)
def test_sizes_below_one_are_refused(fields):
    name, value = next(iter(fields.items()))
    with pytest.raises(ValueError, match=f"{name} must be a whole number >= 1, got {value}"):
        DynamicTreeDrafter(tiny_gpt(), **fields)


# --- limits -----------------------------------------------------------------------------------------------------------

@any_drafter
@pytest.mark.parametrize("room", [0, 1, 2, 9])
def test_no_proposal_is_deeper_than_its_room(build, room):
    tree = proposal(build(tiny_gpt(6, 1)), [1, 2], room=room)
    assert tree.depths().max() <= room and bool(tree) == (room > 0)


@some_drafters
@pytest.mark.parametrize("target_context, draft_context", [(12, 12), (20, 6), (20, 3), (20, 1), (6, 20)])
def test_every_context_limit_is_met_at_the_exact_token(build, target_context, draft_context):      # G
    """The depth asked for does not fit; a wide tree has more rows than the draft's context has positions."""
    target, draft, prompt = tiny_gpt(6, 0, target_context), tiny_gpt(6, 1, draft_context), [1, 2, 3, 4]
    options = dict(max_new_tokens=50, sampling=Sampling(0))
    got = speculate(target, build(draft), prompt, rule=rules.Match(), **options)
    assert got.tokens == generate(target, prompt, **options).tokens and got.stop_reason == "context"


# --- exactness --------------------------------------------------------------------------------------------------------

@any_drafter
@pytest.mark.parametrize("seed", range(2))
def test_greedy_decoding_with_any_tree_is_greedy_decoding(build, seed):                # A23
    target, options = tiny_gpt(6, seed, context=40), dict(max_new_tokens=30, sampling=Sampling(0))
    got = speculate(target, build(tiny_gpt(6, seed + 9, context=40)), [seed, 1], rule=rules.Match(), **options)
    assert got.tokens == generate(target, [seed, 1], **options).tokens


@some_drafters
@pytest.mark.parametrize("temperature", [0, 1e-8, 0.7, 2.0])
@pytest.mark.parametrize("top_k, top_p", [(None, 1.0), (2, 1.0), (None, 0.5), (3, 0.8)])
def test_every_combination_of_sampling_runs(build, temperature, top_k, top_p):         # A24
    sampling = Sampling(temperature, top_k, top_p)
    got = speculate(tiny_gpt(6, 0), build(tiny_gpt(6, 1)), [1], max_new_tokens=9, rule=rules.Match(), sampling=sampling)
    assert len(got.tokens) == 9


#         rule, origin, shape, V, new tokens: more than one round can emit
PROOFS = [(rules.Match(), SAMPLED, dict(branching=[2, 2]), 2, 4), (rules.Match(), CHOSEN, dict(branching=[2, 2]), 3, 4),
          (rules.Match(), WITHOUT_REPLACEMENT, dict(branching=[2, 2]), 2, 5),
          *((rules.Match(), origin, dict(parents=[-1, 0, 1, -1]), 2, 5) for origin in ORIGINS)]
PROOFS += [(rule, *case) for rule in (rules.Recursive(), rules.Traversal()) for case in [
    (SAMPLED, dict(branching=[2, 2]), 2, 4), (WITHOUT_REPLACEMENT, dict(branching=[2, 1]), 3, 4)]]


def prove(build, rule, V, new=4, stop_tokens=()):
    """The loop's joint law over `new` tokens (more than one round can emit) is the target's own, to 1e-12."""
    target, draft = Memoised(tiny_gpt(V, 0)), Memoised(tiny_gpt(V, 1))
    law = output_law_by_rounds(lambda: Speculation(target, build(draft), [0, 1], max_new_tokens=new, rule=rule,
                                                   stop_tokens=stop_tokens))
    truth = sequential_law(target.model, [0, 1], new, stop_tokens=stop_tokens)
    assert law_error(law, truth) < 1e-12 and len(truth) > new


@pytest.mark.parametrize("stop_tokens", [(), (1,)], ids=["no stop", "stop"])
@pytest.mark.parametrize("rule, origin, fields, V, new", PROOFS,
                         ids=[f"{rule.name}, {origin}, {fields}, V={V}" for rule, origin, fields, V, _ in PROOFS])
def test_the_loop_with_a_fixed_tree_has_the_targets_law(rule, origin, fields, V, new, stop_tokens):
    prove(lambda draft: TreeDrafter(draft, origin=origin, **fields), rule, V, new=new, stop_tokens=stop_tokens)


@pytest.mark.parametrize("stop_tokens", [(), (1,)], ids=["no stop", "stop"])
@pytest.mark.parametrize("nodes, depth, width", [(4, 3, 2), (3, 3, 3), (6, 2, 3)])
def test_the_loop_with_a_dynamic_tree_has_the_targets_law(nodes, depth, width, stop_tokens):
    prove(lambda draft: DynamicTreeDrafter(draft, nodes, depth, width), rules.Match(), V=3, new=depth + 2,
          stop_tokens=stop_tokens)


@pytest.mark.parametrize("rule", [rules.Recursive(), rules.Traversal()], ids=lambda rule: rule.name)
def test_an_exhausted_draft_keeps_the_law(rule):                                       # q has 2 tokens, p 3
    prove(lambda draft: TreeDrafter(draft, [3, 1], origin=WITHOUT_REPLACEMENT, sampling=Sampling(top_k=2)), rule, V=3)


@pytest.mark.parametrize("rule", [rules.Token(), rules.Recursive()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("build", DYNAMIC.values(), ids=DYNAMIC)
def test_a_chosen_tree_is_refused_by_rules_that_need_draws_from_q(build, rule):
    with pytest.raises(ValueError, match="use rules.Match"):
        speculate(tiny_gpt(6, 0), build(tiny_gpt(6, 1)), [1], rule=rule, max_new_tokens=9)
