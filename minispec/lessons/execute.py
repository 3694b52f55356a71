"""The executor: runs a notebook in its own folder and writes it back clean, or leaves the file alone.

Two runs of an unchanged notebook give the same bytes, so that a diff shows what a change really changed: cell ids
follow the position, execution counts are 1..n, and nothing is kept that belongs to one run or one machine (timing,
widget models, paths in tracebacks). A widget leaves its static form.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

from ..model.files import save_atomic

METADATA = {"kernelspec": {"display_name": "Python 3", "name": "python3"}, "language_info": {"name": "python"}}
WIDGET = "application/vnd.jupyter.widget-view+json"       # names a model that died with its kernel


class CellFailed(Exception):
    """A cell raised, or did not end in time. The message names the notebook, the cell and the error."""


def execute(path: Path, timeout: float = 300) -> None:
    """Run all cells, then write the notebook with their outputs. timeout: seconds a cell.

    Raises CellFailed, and leaves the file as it was, if a cell raises without the tag "raises-exception"; ValueError if
    the file is no notebook.
    """
    done = ran(read(path), path.parent, timeout, path.name)
    save_atomic(path, lambda part: part.write_text(text_of(done), encoding="utf-8"))


def read(path: Path) -> dict:
    """The notebook as plain data. Raises ValueError if the file is no notebook of format 4."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"{path.name} is not a notebook: it holds no JSON") from None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or not isinstance(notebook.get("cells"), list):
        raise ValueError(f"{path.name} is not a notebook of format 4")
    return notebook


def source_of(cell: dict) -> str:
    """A cell's text, which the format holds as one string or as a list of lines."""
    return "".join(cell["source"])


def tags_of(cell: dict) -> list[str]:
    return cell.get("metadata", {}).get("tags", [])


def text_of(notebook: dict) -> str:
    """The bytes of the file: keys sorted, text as lists of lines, one line an entry."""
    import nbformat
    return nbformat.writes(nbformat.from_dict(notebook)) + "\n"


def cleaned(notebook: dict, name: str) -> dict:
    """The cells' types, sources and tags alone, with ids that follow the position: "03-01" in 03_name.ipynb."""
    cells = []
    for number, cell in enumerate(notebook["cells"], start=1):
        tags = {"tags": tags_of(cell)} if tags_of(cell) else {}
        code = {"execution_count": None, "outputs": []} if cell["cell_type"] == "code" else {}
        cells.append({"id": f"{name.split('_')[0].removesuffix('.ipynb')}-{number:02d}", "cell_type": cell["cell_type"],
                      "metadata": tags, "source": source_of(cell), **code})
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": deepcopy(METADATA), "cells": cells}


def ran(notebook: dict, folder: Path, timeout: float = 300, name: str = "notebook") -> dict:
    """A clean copy with the outputs of a run in `folder`, in a new kernel. Raises CellFailed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    running = nbformat.from_dict(cleaned(notebook, name))
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(running, kernel_name="python3", timeout=timeout, resources=where, record_timing=False,
                            store_widget_state=False, coalesce_streams=True)
    try:
        client.execute()
    except CellExecutionError as error:
        raise CellFailed(f"{name}, {_failed(running)}: {error.ename}: {error.evalue}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise CellFailed(f"{name}: {error}") from None
    outputs = [_clean_outputs(cell) for cell in running.cells]
    fresh = cleaned(running, name)
    for cell, shown, run_cell in zip(fresh["cells"], outputs, running.cells):
        if cell["cell_type"] == "code":
            cell.update(outputs=shown, execution_count=run_cell.execution_count)
    return fresh


def _failed(notebook: dict) -> str:
    """Which cell raised: the last one that has an error among its outputs."""
    broken = [cell for cell in notebook["cells"] if any(o["output_type"] == "error" for o in cell.get("outputs", []))]
    return f"cell {broken[-1]['id']}"


def _clean_outputs(cell: dict) -> list[dict]:
    outputs = cell.get("outputs", [])
    for output in outputs:
        output.get("data", {}).pop(WIDGET, None)
        if output["output_type"] == "error":              # its frames hold paths of this machine
            output["traceback"] = [f"{output['ename']}: {output['evalue']}"]
    return outputs
