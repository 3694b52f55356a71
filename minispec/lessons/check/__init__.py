"""Checks for the exercises, one module a lesson. In a notebook: `check.NAME(function)` as the last line of a cell."""

from .lesson_00 import roles, tokens_per_pass
from .lesson_01 import flat_until, intensity, pass_seconds
from .lesson_02 import attend, cached_greedy, rows_computed
from .lesson_03 import count_matches, greedy_decode, greedy_round
from .lesson_04 import accept_chance, law_of_one_step, residual, token_rule
from .lesson_05 import first_broken, lengths_after, tokens_to_feed
from .lesson_06 import choose_length, predicted_speedup, tokens_per_round
from .lesson_07 import second_chances, tree_mask, tree_positions, tree_tokens
from .lesson_08 import keep_masses, longest_kept, match, typical_law
from .lesson_10 import drop, may_attend, second_kept
from .lesson_11 import layer_rows, lossless, positions_read
