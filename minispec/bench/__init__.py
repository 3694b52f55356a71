"""What the clock says: passes, methods against plain decoding, and the machine they were measured on."""

from .suite import METHODS, Method, interleave, run
from .timing import Passes, environment, measure_passes

__all__ = ["METHODS", "Method", "Passes", "environment", "interleave", "measure_passes", "run"]
