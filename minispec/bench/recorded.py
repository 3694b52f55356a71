"""Recorded measurements: what `bench --output` wrote on other machines, shipped with its provenance, shown as recorded.

Files: assets/bench-<device type>-<dtype>.json, for example bench-cpu-float32.json. A reader without a GPU sees what one
GPU did, and when; where no file is recorded for a device, there is nothing to show, and callers say so.
"""

from __future__ import annotations

from ..model.files import read_json
from ..model.pair import ASSETS

MACHINE = "{device}, {dtype}, {threads} threads, torch {torch}, python {python}, {date}, {commit}"


def recorded(device: str | None = None) -> list[dict]:
    """The recorded figures of one device type ("cpu", "cuda") or of all, as `bench --json` prints them; maybe none."""
    return [read_json(path) for path in sorted(ASSETS.glob(f"bench-{device or '*'}-*.json"))]


def provenance(figures: dict) -> str:
    """One line: device, dtype, threads, versions, date and commit of the run."""
    return "recorded: " + MACHINE.format(**figures["environment"])
