"""check: prove every rule, by enumeration of the whole loop, and print each error."""

from __future__ import annotations

import argparse

from ..analysis import checks
from . import common

HELP = "prove by enumeration that every exact rule has the target's own law"
EXAMPLE = "python -m minispec check"


def options(parser: argparse.ArgumentParser) -> None:
    common.json_option(parser)


def run(args: argparse.Namespace) -> int:
    rows = checks.rows()
    if args.json:
        common.print_json({"rows": rows})
    else:
        print(report(rows))
    return 0 if all(row["passed"] for row in rows) else 1


def report(rows: list[dict]) -> str:
    failed = [row for row in rows if not row["passed"]]
    verdict = "all passed" if not failed else f"{len(failed)} of {len(rows)} FAILED"
    return "\n".join([
        common.table(["rule", "children", "claims", "cases", "largest error", "result"],
                     [[row["rule"], row["origin"], "exact" if row["exact"] else "lossy", str(row["cases"]),
                       f"{row['max_error']:.2e}", "passed" if row["passed"] else "FAILED"] for row in rows]),
        "", "Error: the largest difference in probability of any output between the loop and the target alone,",
        f"over every way the dice can fall, in float64. {verdict}."])
