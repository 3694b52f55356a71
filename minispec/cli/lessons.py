"""lessons: run the notebooks and write them back clean, look them over, or make copies for students."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import common

HELP = "execute the notebooks, check that they are clean, or write copies for students"
EXAMPLE = ("python -m minispec lessons execute notebooks/03_draft_and_verify.ipynb\n"
           "python -m minispec lessons check\n"
           "python -m minispec lessons student --output source/lessons")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("execute", "check", "student"),
                        help="execute: run each notebook and write it back with its outputs, if all cells ran; "
                             "check: list what is wrong with the files, without running them; "
                             "student: write copies without outputs and solutions, which nbgrader can read")
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="default: notebooks/*.ipynb in this folder")
    parser.add_argument("--output", metavar="FOLDER", help="student: where the copies go")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS",
                        help="execute: the longest that one cell may take (default: 300)")
    common.json_option(parser)


def run(args: argparse.Namespace) -> int:
    if (args.output is None) == (args.action == "student"):
        raise ValueError("--output names the folder for student copies: it goes with student, and with nothing else")
    paths = notebooks(args.notebooks)
    report = {"execute": execute, "check": check, "student": student}[args.action](paths, args)
    if args.json:
        common.print_json({"action": args.action, "notebooks": report})
    return 1 if any(entry["faults"] for entry in report) else 0


def notebooks(named: list[str]) -> list[Path]:
    """The notebooks to work on. Raises ValueError if there are none, or one of them is no notebook."""
    from ..lessons.execute import read

    paths = [Path(name) for name in named] or sorted(Path("notebooks").glob("*.ipynb"))
    if not paths:
        raise ValueError("no notebooks/*.ipynb in this folder: name the notebooks, or go to the project's folder")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such notebook")
        read(path)
    return paths


def execute(paths: list[Path], args: argparse.Namespace) -> list[dict]:
    """Run them one after the other. One that fails is left as it was, and the others still run."""
    from ..lessons.execute import CellFailed
    from ..lessons.execute import execute as run_and_write

    report = []
    for path in paths:
        say(args, f"{path} ...", end=" ")
        try:
            run_and_write(path, args.timeout)
            report.append({"notebook": str(path), "faults": []})
            say(args, "written")
        except CellFailed as failed:
            report.append({"notebook": str(path), "faults": [str(failed)]})
            say(args, f"left as it was\n  {failed}")
    return report


def check(paths: list[Path], args: argparse.Namespace) -> list[dict]:
    from ..lessons.hygiene import faults

    report = [{"notebook": str(path), "faults": faults(path)} for path in paths]
    for entry in report:
        say(args, entry["notebook"], *entry["faults"] or ["clean"], sep="\n  ")
    return report


def student(paths: list[Path], args: argparse.Namespace) -> list[dict]:
    from ..lessons.student import write_copy

    report = []
    for path in paths:
        copy = write_copy(path, Path(args.output))
        report.append({"notebook": str(path), "copy": str(copy), "faults": []})
        say(args, f"{copy} written")
    return report


def say(args: argparse.Namespace, *words: str, **how: str) -> None:
    if not args.json:
        print(*words, flush=True, **how)
