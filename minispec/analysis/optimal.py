"""How many proposed tokens a rule keeps, to the last digit, and how many any rule could keep.

Accepting one of k children is a transport problem: couple the k draws from q with one draw from p so that the latter is
among the former as often as possible (SpecTr, Sun et al. 2310.15141). Its optimum has a closed form (Hu et al.
2502.18779): whatever the rule, a token outside a set S can be kept only if one was drawn, and one inside S at most as
often as p wants it, so that

    P(accept) <= p(S) + 1 - P(all k children lie in S),   and the smallest bound over all S is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from ..decoding.dice import Dice, EnumeratingDice
from ..decoding.sampling import Sampling
from ..decoding.tree import SAMPLED, WITHOUT_REPLACEMENT
from ..drafters.lm_tree import pick
from ..drafters.table import TableDrafter
from .prove import AnyRule

LARGEST = 12                                     # tokens, for the search over all sets


def optimal_acceptance(p: Tensor, q: Tensor, k: int, replacement: bool = True) -> float:
    """The highest probability with which any exact rule can accept one of k children drawn from q. p, q: (V,).

    With replacement P(all in S) = q(S)^k, and the best S holds the tokens with the smallest p/q. Without, all sets are
    tried: raises ValueError for V > 12.
    Example: optimal_acceptance(p, q, 1) == sum min(p, q).
    """
    p, q = p.double(), q.double()
    if not replacement:
        return _best_of_all_sets(p, q, k)
    order = (p / q).nan_to_num(nan=0.0, posinf=float("inf")).argsort()              # a token that neither has: anywhere
    inside = [torch.cat([torch.zeros(1).double(), probs[order].cumsum(0)]) for probs in (p, q)]      # (V + 1,) each
    return min(1.0, float((inside[0] + 1 - inside[1] ** k).min()))


def _best_of_all_sets(p: Tensor, q: Tensor, k: int) -> float:
    if len(p) > LARGEST:
        raise ValueError(f"without replacement all sets of tokens are tried: at most {LARGEST} tokens, got {len(p)}")
    drawn = [(chance, set(tokens)) for chance, tokens in EnumeratingDice().branches(
        lambda dice: pick(q, k, WITHOUT_REPLACEMENT, dice))]
    sets = (set(S) for size in range(len(p) + 1) for S in combinations(range(len(p)), size))
    return min(float(p[list(S)].sum()) + sum(chance for chance, tokens in drawn if not tokens <= S) for S in sets)


def acceptance_of(rule: AnyRule, p: Tensor, q: Tensor, k: int, origin: str = SAMPLED) -> float:
    """The probability with which `rule` accepts one of k children picked from q. p, q: (V,)."""
    every = (len(p), len(p))
    return expected_accepted(rule, p.expand(every), q.expand(every), (k,), origin)


def expected_accepted(rule: AnyRule, target_table: Tensor, draft_table: Tensor, shape: Sequence[int],
                      origin: str = SAMPLED) -> float:
    """E[accepted tokens] of one round after token 0, over every way the dice can fall.

    target_table, draft_table: (V, V), the next token's law by last token.
    shape: children of every node, depth by depth.
    Example: with all rows p = (1/3, 2/3) and q = (2/3, 1/3), Token keeps 10/9 of a chain (1, 1), Block 11/9.
    """
    drafter, target_table = TableDrafter(draft_table, branching=shape, origin=origin), target_table.double()
    drafter.start([0], Sampling())

    def accepted(dice: Dice) -> int:
        tree = drafter.propose(dice, room=len(shape))
        return len(rule(tree, target_table[[0, *tree.tokens]], dice).path)

    return sum(chance * count for chance, count in EnumeratingDice().branches(accepted))
