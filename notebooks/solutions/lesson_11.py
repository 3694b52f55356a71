"""Solutions to the exercises of lesson 11, sharing the cache."""

from collections.abc import Callable, Sequence

from minispec import GPT, Generation
from minispec.analysis import law_error, output_law, sequential_law
from minispec.decoding import Dice


def layer_rows(layers: int, exit: int, length: int) -> tuple[int, int]:
    """(drafting, verifying): the last guess was never fed, so it goes through the lower layers in verification."""
    drafting = exit * length
    verifying = exit + (layers - exit) * (length + 1)
    return drafting, verifying


def positions_read(position: int, held: int) -> int:
    """Only what lies before the row, and of that only what the target had read by then."""
    return min(position, held)


def lossless(designs: dict[str, Callable[[Dice], Generation]], target: GPT, prompt: Sequence[int],
             count: int) -> set[str]:
    """Every way the dice can fall, against the law of the target itself."""
    own = sequential_law(target, prompt, count)
    return {name for name, run in designs.items() if law_error(output_law(run), own) <= 1e-12}
