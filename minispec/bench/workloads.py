"""Prompts to measure on: openings of held-out documents, which no model of this project was trained on.

The corpus lies on the maintainer's machine, so the openings ship as assets/workloads.json: Python from the standard
library (`code`), its documentation (`docs`), and the two generators' documents (`agent`, `records`). All of them keep
to one rule: about 600 characters, cut at a line's end, and never more than two thirds of the document.

`python -m minispec.bench.workloads` writes the file anew from the corpus of the Python that runs it (about a minute).
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from platform import python_version

from ..model.files import read_json, save_json
from ..training.corpus import KINDS, Document, documents

ASSET = Path(__file__).parent.parent / "assets" / "workloads.json"
SIZE = 600                   # characters of a prompt
COUNT = 12                   # prompts of a workload
LICENCE = "code and docs are quoted from the Python standard library (PSF-2.0); agent and records are generated"


@dataclass(frozen=True)
class Prompt:
    workload: str
    name: str                # of the document
    text: str


def prompts(workload: str, count: int | None = None) -> list[Prompt]:
    """The first `count` prompts of a workload, default all. Raises ValueError for an unknown one, or too many."""
    if workload not in KINDS:
        raise ValueError(f"unknown workload {workload!r}: choose from {', '.join(KINDS)}")
    entries = read_json(ASSET)["prompts"][workload]
    if count is not None and not 1 <= count <= len(entries):
        raise ValueError(f"workload {workload!r} has 1 to {len(entries)} prompts, {count} were asked for")
    return [Prompt(workload, entry["name"], entry["text"]) for entry in entries[:count]]


# --- maintenance ------------------------------------------------------------------------------------------------------

def opening(document: Document) -> str:
    """What a model is given of a document. Of code, from its first definition on: imports are dull to continue."""
    text = document.text
    if document.kind == "code":
        starts = [node.lineno for node in ast.parse(text).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
        text = "\n".join(text.split("\n")[starts[0] - 1:]) if starts else ""
    return text[:min(SIZE, 2 * len(text) // 3)].rpartition("\n")[0].rstrip()


def candidates(kind: str) -> Iterator[Prompt]:
    """Openings of all held-out documents that may be shipped: of code and docs, the standard library's only."""
    library = Path(sysconfig.get_path("stdlib"))
    for document in documents(kind, "held-out"):
        ours = kind in ("agent", "records") or document.name.startswith("topics/")
        if ours or (library / document.name).is_file():
            prompt = Prompt(kind, document.name, opening(document))
            if len(prompt.text) >= SIZE // 3:
                yield prompt


def evenly(found: list[Prompt]) -> list[Prompt]:
    """COUNT of them (fewer if there are fewer), spread evenly over the list."""
    count = min(COUNT, len(found))
    return [found[k * len(found) // count] for k in range(count)]


def write(path: Path = ASSET) -> None:
    """Choose the prompts anew and write them. A pure function of the installed standard library."""
    chosen = {kind: [{"name": prompt.name, "text": prompt.text} for prompt in evenly(list(candidates(kind)))]
              for kind in KINDS}
    save_json(path, {"licence": LICENCE, "python": python_version(), "prompts": chosen})


if __name__ == "__main__":
    write()
