"""How it is drawn: pure functions from a Trace, or from plain numbers, to SVG and HTML text. Equal input, equal bytes.

Widgets are in `minispec.viz.widgets` and `minispec.viz.controls`, which need ipywidgets; nothing else here needs more
than the core does.
"""

from .agreement import agreement
from .bars import bars, laws_at, split
from .cache_grid import cache_grid
from .cache_lengths import cache_lengths
from .compare import chip_rows, compare
from .curves import acceptance_chart, exactness_meter, verify_chart
from .dart import dart, dart_at
from .departure import departure_view
from .flow import pass_flow
from .frames import Frame, frames
from .gantt import gantt
from .law_bars import law_bars
from .lengths import lengths_chart
from .lines import lines_chart
from .mask_faults import mask_faults
from .passes import passes_grid, passes_of, without_cache
from .player import player
from .race import race
from .ribbon import ribbon
from .roofline import flat_chart, roofline_chart
from .show import Picture, show
from .surface import Measured, surface
from .svg import figure, img
from .token_rows import token_rows
from .tree_view import tree_at, tree_view

__all__ = ["Frame", "Measured", "Picture", "acceptance_chart", "agreement", "bars", "cache_grid", "cache_lengths",
           "chip_rows", "compare", "dart", "dart_at", "departure_view", "exactness_meter", "figure", "flat_chart",
           "frames", "gantt", "img", "law_bars", "laws_at", "lengths_chart", "lines_chart", "mask_faults",
           "pass_flow", "passes_grid", "passes_of", "player", "race", "ribbon", "roofline_chart", "show", "split",
           "surface", "token_rows", "tree_at", "tree_view", "verify_chart", "without_cache"]
