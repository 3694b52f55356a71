"""Token trees: mask, positions, paths and drawing order against tables typed by hand and against a second construction;
tree attention against a fresh pass over each node's own path; and what `keep` leaves in the cache (all 1e-10, float64).
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import tiny_gpt

from minispec.decoding.loop import verify
from minispec.decoding.sampling import Sampling
from minispec.decoding.tree import CHOSEN, ROOT, TokenTree, uniform_parents

TIGHT = dict(rtol=0, atol=1e-10)

#   root ─┬─ 0 ─┬─ 2 ─── 5        rows of a pass: row 0 is the root,
#         │     └─ 3              row i + 1 is node i
#         └─ 1 ─── 4 ─── 6
PARENTS = (-1, -1, 0, 0, 1, 2, 4)
DEPTHS = [0, 1, 1, 2, 2, 2, 3, 3]
MASK = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0],
                     [1, 1, 0, 0, 0, 0, 0, 0],
                     [1, 0, 1, 0, 0, 0, 0, 0],
                     [1, 1, 0, 1, 0, 0, 0, 0],
                     [1, 1, 0, 0, 1, 0, 0, 0],
                     [1, 0, 1, 0, 0, 1, 0, 0],
                     [1, 1, 0, 1, 0, 0, 1, 0],
                     [1, 0, 1, 0, 0, 1, 0, 1]]).bool()
PATHS = [[0], [1], [0, 2], [0, 3], [1, 4], [0, 2, 5], [1, 4, 6]]
CHILDREN = {-1: [0, 1], 0: [2, 3], 1: [4], 2: [5], 3: [], 4: [6], 5: [], 6: []}
DRAWING = """\
|- a
|  |- c
|  |  `- f
|  `- d
`- b
   `- e
      `- g"""


pytestmark = pytest.mark.usefixtures("no_gradients")


@st.composite
def parent_lists(draw, largest: int = 9) -> tuple[int, ...]:
    """Every tree with parents before children, in every such order."""
    return tuple(draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(0, largest))))


def labelled(parents: tuple[int, ...], tokens: tuple[int, ...] | None = None) -> TokenTree:
    return TokenTree(tokens or tuple(range(len(parents))), parents)


def reachable(parents: tuple[int, ...]) -> torch.Tensor:
    """The oracle for the mask: row r reaches column c by going up 0, 1, 2, ... edges. Powers of the edge matrix."""
    rows = len(parents) + 1
    up = torch.zeros(rows, rows)
    for node, parent in enumerate(parents):
        up[node + 1, parent + 1] = 1
    return sum(torch.linalg.matrix_power(up, edges) for edges in range(rows)).bool()


def contents(cache) -> torch.Tensor:
    """All that the cache holds: (2L, B, H, length, D), keys and values."""
    return torch.stack([rows[:, :, :cache.length] for rows in (*cache.keys, *cache.values)])


# --- geometry ---------------------------------------------------------------------------------------------------------

def test_mask_and_positions_are_the_ones_typed_by_hand():
    tree = labelled(PARENTS)
    assert tree.depths().tolist() == DEPTHS
    assert torch.equal(tree.mask(), MASK)


def test_paths_children_and_drawing_are_the_ones_typed_by_hand():
    tree = labelled(PARENTS)
    assert [tree.path(node) for node in range(7)] == PATHS and tree.path(ROOT) == []
    assert {node: tree.children(node) for node in range(-1, 7)} == CHILDREN
    assert tree.depth_first() == [0, 2, 5, 3, 1, 4, 6]
    assert tree.draw("abcdefg") == DRAWING
    assert str(TokenTree((31, 8), (-1, 0))) == "`- 31\n   `- 8" and str(TokenTree()) == ""


@given(parent_lists())
def test_mask_depth_and_path_equal_an_independent_construction(parents):
    tree, oracle = labelled(parents), reachable(parents)
    assert torch.equal(tree.mask(), oracle)
    assert torch.equal(tree.depths(), oracle.sum(1) - 1)
    for node in range(len(tree)):
        assert tree.path(node) == [row - 1 for row in oracle[node + 1].nonzero().flatten().tolist() if row]


@given(parent_lists())
def test_drawing_order_visits_each_node_once_right_before_its_own_subtree(parents):
    tree, below = labelled(parents), reachable(parents).sum(0)[1:].tolist()              # sizes of the subtrees
    order = tree.depth_first()
    assert sorted(order) == list(range(len(tree)))
    for place, node in enumerate(order):
        assert all(node in tree.path(other) for other in order[place:place + below[node]])
    assert [node for node in order if parents[node] == ROOT] == tree.children(ROOT)
    assert [line.strip("|`- ") for line in str(tree).splitlines()] == [str(node) for node in order]


@pytest.mark.parametrize("branching, parents", [
    ([], ()), ([1, 1, 1], (-1, 0, 1)), ([3], (-1, -1, -1)), ([2, 2], (-1, -1, 0, 0, 1, 1)),
    ([2, 1, 2], (-1, -1, 0, 1, 2, 2, 3, 3))])
def test_branching_by_depth_gives_every_node_its_children(branching, parents):
    assert uniform_parents(branching) == parents


@pytest.mark.parametrize("branching", [[2, 0], [-1], [1.5]])
def test_branching_below_one_is_refused(branching):
    with pytest.raises(ValueError, match="whole numbers >= 1"):
        uniform_parents(branching)


@pytest.mark.parametrize("parents", [(0,), (-1, 2, 0), (-2,), (-1, 1)])
def test_a_child_before_its_parent_is_refused(parents):
    with pytest.raises(ValueError, match="parents must stand before their children"):
        labelled(parents)


def test_a_token_without_a_parent_is_refused():
    with pytest.raises(ValueError, match="2 tokens but 1 parents"):
        TokenTree((5, 6), (-1,))


def test_trees_of_equal_tokens_and_shape_are_equal_and_q_is_not_compared():
    one, other = (TokenTree.chain([1, 2], [torch.full((3,), 1 / 3)] * 2) for _ in range(2))
    assert one == other and hash(one) == hash(other)
    assert one != TokenTree.chain([1, 0]) and one != TokenTree((1, 2), (-1, -1)) and one != TokenTree.chain(
        [1, 2], origin=CHOSEN)


# --- tree attention ---------------------------------------------------------------------------------------------------

@settings(max_examples=40, deadline=None)
@given(parent_lists(), st.lists(st.integers(0, 5), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_probs_at_every_node_equal_a_fresh_pass_over_its_own_path(parents, ids, random):
    model, tree = tiny_gpt(6), labelled(parents, tuple(random.randrange(6) for _ in parents))
    cache = model.new_cache()
    if ids[:-1]:
        model(torch.tensor([ids[:-1]]), cache)
    probs = verify(model, cache, ids[-1], tree, Sampling())                              # (1 + N, V)
    for node in range(ROOT, len(tree)):
        own = ids + [tree.tokens[step] for step in tree.path(node)]
        torch.testing.assert_close(probs[node + 1], model(torch.tensor([own]))[0, -1].softmax(-1), **TIGHT)


@pytest.mark.parametrize("changed", range(7))
def test_another_token_at_a_node_changes_its_descendants_and_nobody_else(changed):
    model, tokens = tiny_gpt(6), [1, 2, 3, 4, 5, 0, 1]
    before = verify(model, model.new_cache(), 3, labelled(PARENTS, tuple(tokens)), Sampling())
    tokens[changed] = (tokens[changed] + 1) % 6
    after = verify(model, model.new_cache(), 3, labelled(PARENTS, tuple(tokens)), Sampling())
    moved = ((before - after).abs().amax(1) > 1e-6).tolist()
    assert moved == MASK[:, changed + 1].tolist()                                        # whoever may see it
    torch.testing.assert_close(before[~MASK[:, changed + 1]], after[~MASK[:, changed + 1]], **TIGHT)


@settings(max_examples=40, deadline=None)
@given(parent_lists(), st.data())
def test_the_cache_after_keeping_any_path_equals_a_fresh_prefill(parents, data):
    model, tree = tiny_gpt(6), labelled(parents, tuple((3 * node + 1) % 6 for node in range(len(parents))))
    kept = tree.path(data.draw(st.integers(-1, len(tree) - 1)))
    ids, cache, fresh = [2, 5, 1], model.new_cache(), model.new_cache()
    model(torch.tensor([ids[:-1]]), cache)
    base = cache.length
    verify(model, cache, ids[-1], tree, Sampling())
    cache.keep(base, [0] + [node + 1 for node in kept])
    model(torch.tensor([ids + [tree.tokens[node] for node in kept]]), fresh)
    assert cache.length == len(ids) + len(kept)
    torch.testing.assert_close(contents(cache), contents(fresh), **TIGHT)
