"""How it is drawn: pure functions from a Trace, or from plain numbers, to SVG and HTML text. Equal input, equal bytes.

Widgets are in `minispec.viz.widgets`, which needs ipywidgets; nothing else here needs more than the core does.
"""

from .bars import bars, laws_at, split
from .cache_grid import cache_grid
from .curves import acceptance_chart, exactness_meter, verify_chart
from .dart import dart, dart_at
from .frames import Frame, frames
from .gantt import gantt
from .player import player
from .ribbon import ribbon
from .surface import Measured, surface
from .svg import figure, img
from .tree_view import tree_at, tree_view

__all__ = ["Frame", "Measured", "acceptance_chart", "bars", "cache_grid", "dart", "dart_at", "exactness_meter",
           "figure", "frames", "gantt", "img", "laws_at", "player", "ribbon", "split", "surface", "tree_at",
           "tree_view", "verify_chart"]
