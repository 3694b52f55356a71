"""The command line: one file a command. Each has HELP, EXAMPLE, options(parser) and run(args) -> exit status or None.

Exit status: 0 done, 1 a check failed, 2 bad input (one line on stderr that says what), 130 interrupted, 141 the reader
of our output went away. A traceback would be a fault of this program, so none is caught but those.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from . import bench, check, demo, distill, export, generate, lessons, player, train

COMMANDS = {"demo": demo, "generate": generate, "bench": bench, "check": check, "train": train, "distill": distill,
            "export": export, "lessons": lessons, "player": player}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ValueErrors, so that all bad input ends in the same one line."""

    def error(self, message: str) -> None:
        raise ValueError(f"{message} (see {self.prog} --help)")


def parser() -> Parser:
    top = Parser(prog="minispec", description="Speculative decoding: watch it, time it, prove it.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP.capitalize() + ".",
                                      epilog="example:\n  " + "\n  ".join(module.EXAMPLE.split("\n")),
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        module.options(command)
        command.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> its exit status."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")            # a model may write what the terminal can't show
    try:
        args = parser().parse_args(argv)
        status = args.run(args) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _silence()
        return 141
    except KeyboardInterrupt as stop:
        return _complain(str(stop) or "interrupted", 130)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    except ValueError as error:
        return _complain(str(error), 2)


def _complain(message: str, status: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print("minispec:", " ".join(message.split()), file=sys.stderr)
    return status


def _silence() -> None:
    """Nobody reads our output any more: send the rest to nowhere, or Python complains once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
