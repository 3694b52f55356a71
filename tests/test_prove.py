"""`prove` is the door for every rule: what it must find. Each cheat here runs, looks plausible, and has been tried."""

import pytest
import torch

from minispec import TokenTree
from minispec.analysis import CHAINS, prove
from minispec.analysis.prove import PROMPT, Setting, laws, tables, tiny_target
from minispec.decoding import Dice, EnumeratingDice, Sampling, Verdict, rules
from minispec.decoding.tree import CHOSEN, ROOT, SAMPLED, WITHOUT_REPLACEMENT
from minispec.drafters import TableDrafter
from minispec.drafters.lm_tree import pick

# --- drafters that cheat ---------------------------------------------------------------------------------------------


class RawProbs(TableDrafter):
    """Samples from its two likeliest tokens, and reports the q before that cut."""

    def pick(self, q, count, dice):
        kept = torch.where(q >= q.topk(2).values[-1], q, 0.0)
        return [dice.draw(kept) for _ in range(count)]


class DropsUnlikely(TableDrafter):
    """Looks at the token it drew, and ends the proposal before it if it is unlikely."""

    def propose(self, dice, room):
        chain = super().propose(dice, room)
        q = [chain.draft_probs[node - 1] for node in range(len(chain))]
        sure = next((k for k, token in enumerate(chain.tokens) if q[k][token] < 0.3), len(chain))
        return TokenTree.chain(chain.tokens[:sure], q[:sure])


class TopTokens(TableDrafter):
    """Proposes the likeliest tokens under the label of sampled ones."""

    def pick(self, q, count, dice):
        return pick(q, count, CHOSEN, dice)


class Reranks(TableDrafter):
    """Samples its children, then sorts them by probability."""

    def pick(self, q, count, dice):
        return sorted(super().pick(q, count, dice), key=lambda token: -q[token])


@pytest.mark.parametrize("rule, origin, shape, drafter", [
    (rules.Token(), SAMPLED, (1, 1), RawProbs),                                                       # A4
    (rules.Block(), SAMPLED, (1, 1), RawProbs),
    (rules.Token(), SAMPLED, (1, 1), DropsUnlikely),
    (rules.Token(), SAMPLED, (1, 1), TopTokens),                                                      # A3
    (rules.Recursive(), SAMPLED, (2, 1), TopTokens),
    (rules.Recursive(), WITHOUT_REPLACEMENT, (2, 1), TopTokens),
    (rules.Recursive(), SAMPLED, (2, 1), Reranks),
    (rules.Recursive(), WITHOUT_REPLACEMENT, (2, 1), Reranks),
    (rules.Traversal(), WITHOUT_REPLACEMENT, (2, 1), TopTokens),
    (rules.Traversal(), WITHOUT_REPLACEMENT, (2, 1), Reranks)],
    ids=lambda value: getattr(value, "__name__", None) or getattr(value, "name", str(value)))
def test_a_drafter_that_cheats_is_found_out_and_match_would_bear_it(rule, origin, shape, drafter):
    proof = prove(rule, origin, [shape], drafter)
    assert not proof.exact and proof.max_error > 1e-3
    assert prove(rules.Match(), origin, [shape], drafter).exact


# --- rules that cheat ------------------------------------------------------------------------------------------------

class FirstFail:
    """Dice whose first failure is final."""

    def __init__(self, dice: Dice):
        self.dice, self.going, self.draw = dice, True, dice.draw

    def accept(self, prob: float) -> bool:
        self.going = self.going and self.dice.accept(prob)
        return self.going


def first_fail_block(tree, target_probs, dice):
    """Block verification 'cleaned up': stops at the first prefix that fails."""
    return rules.Block()(tree, target_probs, FirstFail(dice))


def one_sample_per_path(tree, target_probs, dice):
    """Match, but each path from root to leaf gets target samples of its own, also for the nodes that paths share."""
    best = Verdict([], dice.draw(target_probs[0]), False)
    for leaf in (node for node in range(len(tree)) if node not in tree.parents):
        node, path = ROOT, []
        for child in tree.path(leaf):
            if dice.draw(target_probs[node + 1]) != tree.tokens[child]:
                break
            path.append(child)
            node = child
        if len(path) > len(best.path):
            best = Verdict(path, dice.draw(target_probs[node + 1]), False)
    return best


def always_accept(tree, target_probs, dice):
    path = list(range(len(tree)))
    return Verdict(path, dice.draw(target_probs[-1]), True)


def no_residual(tree, target_probs, dice):
    """Token, but the correction is drawn from p, not from what q has left of it."""
    for node, x in enumerate(tree.tokens):
        p, q = target_probs[node], tree.draft_probs[node - 1]
        if not dice.accept(min(1.0, float(p[x] / q[x]))):
            return Verdict(list(range(node)), dice.draw(p), False)
    return Verdict(list(range(len(tree))), dice.draw(target_probs[-1]), True)


class SameUniforms:
    """Token, but the uniform behind the coin of position k is drawn once, and used again in every round.

    What is known of a uniform is the interval that earlier coins left: the next coin is thrown within it.
    """

    def __init__(self):
        self.known: dict[int, tuple[float, float]] = {}

    def __call__(self, tree, target_probs, dice):
        return rules.Token()(tree, target_probs, Remembering(dice, self.known))


class Remembering:
    def __init__(self, dice: Dice, known: dict[int, tuple[float, float]]):
        self.dice, self.known, self.position, self.draw = dice, known, -1, dice.draw

    def accept(self, prob: float) -> bool:
        self.position += 1
        low, high = self.known.get(self.position, (0.0, 1.0))
        cut = min(max(prob, low), high)
        hit = self.dice.accept((cut - low) / (high - low))
        self.known[self.position] = (low, cut) if hit else (cut, high)
        return hit


@pytest.mark.parametrize("rule, origin, shape", [
    (first_fail_block, SAMPLED, (1, 1)), (always_accept, SAMPLED, (1, 1)), (no_residual, SAMPLED, (1, 1)),
    (one_sample_per_path, CHOSEN, (1, 2)), (SameUniforms(), SAMPLED, (1, 1)), (rules.Typical(), SAMPLED, (2, 1))],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__)
def test_a_rule_that_cheats_is_found_out(rule, origin, shape):
    proof = prove(rule, origin, [shape])
    assert not proof.exact and proof.max_error > 1e-3
    assert "NOT exact" in str(proof) and "it departs first" in str(proof)


def test_one_sample_per_path_accepts_a_shared_node_too_often():                                       # A11
    """Three paths share a node of probability .09: it passes with 1 - .91^3 = .246, not with .09."""
    tree = TokenTree((0, 0, 1, 2), (-1, 0, 0, 0), origin=CHOSEN)
    p = torch.tensor([0.09, 0.41, 0.5]).double().expand(5, 3)
    for rule, wanted in [(one_sample_per_path, 1 - 0.91**3), (rules.Match(), 0.09)]:
        branches = EnumeratingDice().branches(lambda dice: rule(tree, p, dice))
        assert sum(chance for chance, verdict in branches if verdict.path) == pytest.approx(wanted)


# --- what it reports -------------------------------------------------------------------------------------------------

def test_a_right_rule_written_as_a_plain_function_is_proved():
    def my_rule(tree, target_probs, dice):
        return rules.Token()(tree, target_probs, dice)

    proof = prove(my_rule, shapes=CHAINS)
    assert proof.exact and proof.departure is None and proof.rule == "my_rule" and proof.cases == 4
    assert str(proof).startswith("my_rule, children sampled: exact, 4 whole loops, largest error")


def test_a_right_rule_may_write_to_the_tensors_it_is_given():
    """Recursive without replacement in a student's hand: q is normalised and crossed out in place."""
    def in_place(tree, target_probs, dice):
        node, path = ROOT, []
        while True:
            p, q = target_probs[node + 1], tree.draft_probs.get(node)
            for child in tree.children(node):
                x = tree.tokens[child]
                q /= q.sum()
                if dice.accept(min(1.0, float(p[x] / q[x]))):
                    break
                p -= q
                p.clamp_min_(0).div_(p.sum())
                q[x] = 0
            else:
                return Verdict(path, dice.draw(p), bonus=not tree.children(node))
            path.append(child)
            node = child

    assert prove(in_place, WITHOUT_REPLACEMENT, [(2, 1)]).exact


def test_the_first_departure_is_shown_with_both_laws():
    """Always accepting emits the draft's own first token: the loop's column is q, the target's is p."""
    departure = prove(always_accept, shapes=[(1, 1)]).departure
    assert departure.prefix == () and departure.setting == Setting((1, 1), 3, "dense", None)
    p = Sampling(temperature=1.5).probs(tiny_target(3).model(torch.tensor([PROMPT]))[0, -1])
    q = tables(3)["dense"][PROMPT[-1]]
    torch.testing.assert_close(torch.tensor(departure.next_token, dtype=torch.float64), torch.stack([p, q], 1))
    lines = str(departure).splitlines()
    assert len(lines) == 2 + 3 + 1 and all(f"{p[token]:.4f}" in lines[2 + token] for token in range(3))
    assert sum("+" in line for line in lines[2:5]) >= 1 and sum("-" in line for line in lines[2:5]) >= 1


def test_a_fault_of_the_second_round_is_placed_there():
    """Coins that are right in the first round and reused in the next: the first tokens have the target's law."""
    proof = prove(SameUniforms(), shapes=[(1, 1)])
    assert len(proof.departure.prefix) >= 1


def test_prove_enumerates_more_than_one_round():
    loop, own = laws(rules.Token(), SAMPLED, Setting((1, 1), 3, "dense", None), TableDrafter)
    assert {len(tokens) for tokens in own} == {4} and sum(loop.values()) == pytest.approx(1, abs=1e-12)


def test_a_refusal_comes_through():
    with pytest.raises(ValueError, match="use rules.Match"):
        prove(rules.Token(), CHOSEN)


def test_proving_leaves_the_global_dice_alone():
    before = torch.random.get_rng_state()
    tiny_target.__wrapped__(3)
    assert torch.equal(before, torch.random.get_rng_state())
