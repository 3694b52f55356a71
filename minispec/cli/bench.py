"""bench: every method against plain decoding, interleaved in one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from ..analysis.rounding import width_gap
from ..bench import suite
from ..bench.against import against_transformers
from ..bench.more import MORE, Workshop, available, build
from ..bench.recorded import MACHINE, recorded
from ..bench.timing import environment, measure_passes
from ..bench.workloads import prompts
from ..model.gpt import GPT
from ..model.listening import Listening
from ..model.pair import ASSETS
from ..training.corpus import KINDS
from . import common

HELP = "time every method against plain decoding, interleaved in one run"
EXAMPLE = ("python -m minispec bench --methods chain-4 chain-6 ngram-8\n"
           "python -m minispec bench --workloads code agent --prompts 12 --output bench.json\n"
           "python -m minispec bench --methods chain-5 --temperatures 0 --transformers")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"default: all of {', '.join(suite.METHODS)}, "
                             f"and those for which the pair has the models: {', '.join(MORE)}")
    parser.add_argument("--workloads", nargs="+", default=["code"], metavar="NAME",
                        help=f"default: code, of {', '.join(KINDS)}")
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0], metavar="T", help="default: 0 1")
    parser.add_argument("--prompts", type=int, default=4, metavar="N", help="of each workload (default: 4, at most 12)")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: 128")
    parser.add_argument("--recorded", action="store_true",
                        help="time nothing: show the measurements that ship with minispec, and where they were made")
    parser.add_argument("--transformers", action="store_true",
                        help="also time greedy generate() of transformers, plain and assisted, with the same weights")
    common.model_options(parser)
    parser.add_argument("--output", metavar="FILE", help="write the figures to this file, as --json prints them")
    common.json_option(parser)
    common.seed_option(parser)
    common.machine_options(parser)


def run(args: argparse.Namespace) -> None:
    if args.recorded:
        return show(recorded(), args.json)
    output, folder = common.check_output(args.output), ASSETS if args.pair is None else Path(args.pair)
    names = suite.known(args.methods, [*suite.METHODS, *([] if args.model else available(folder))])
    texts = {workload: [prompt.text for prompt in prompts(workload, args.prompts)] for workload in args.workloads}
    for temperature in args.temperatures:
        suite.Sampling(temperature)                        # a bad one is refused before anything is timed
    target, draft, tokenizer = common.load_models(args)
    target = Listening(target)
    shop = Workshop(target, draft, tokenizer, folder)
    methods = {name: suite.METHODS.get(name) or build(name, shop) for name in names}
    ids = {workload: [tokenizer.encode(text).ids for text in several] for workload, several in texts.items()}
    passes = measure_passes(target, draft)
    rows = suite.run(target, draft, ids, methods, passes, temperatures=args.temperatures,
                     max_new_tokens=args.max_new_tokens, seed=args.seed, on_generation=progress(args))
    clear_progress()
    figures = {"environment": environment(target.device, target.model.wte.weight.dtype), "passes": passes.to_dict(),
               "rounding": rounding(target, ids[args.workloads[0]][0]), "rows": rows}
    if args.transformers:
        workload = args.workloads[0]
        figures["against_transformers"] = [{"workload": workload, **r} for r in against_transformers(
            target.model, draft, tokenizer, ids[workload], max_new_tokens=args.max_new_tokens)]
    if output is not None:
        common.write_text(output, json.dumps(figures, indent=2, allow_nan=False) + "\n")
    if args.json:
        common.print_json(figures)
    else:
        print(report(figures))


def rounding(target: GPT, ids: list[int]) -> dict:
    """What greedy choices may hang on: how far passes over several tokens and over one differ, on a prompt's start."""
    width = min(8, len(ids))
    return {"width": width, "largest_logit_difference": width_gap(target, ids[:64], width)}


def show(several: list[dict], as_json: bool) -> None:
    """Recorded figures, each under its provenance."""
    if as_json:
        common.print_json(several)
    else:
        print("\n\n".join("recorded: " + report(figures) for figures in several) or "no measurement is recorded yet")


def progress(args: argparse.Namespace) -> Callable[[str, float, int, str], None] | None:
    """A line on stderr that says what was just timed; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(workload: str, temperature: float, prompt: int, method: str) -> None:
        print(f"\r\x1b[K{workload}, temperature {temperature:g}, prompt {prompt + 1} of {args.prompts}: {method}",
              end="", file=sys.stderr, flush=True)

    return show


def clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def report(figures: dict) -> str:
    """The tables: one for each workload and temperature."""
    passes = figures["passes"]
    lines = [
        MACHINE.format(**figures["environment"]),
        "decoding time only: the prefill is not in it. One-token target pass {:.2f} ms, draft pass c = {:.3f}".format(
            1000 * passes["target_seconds"], passes["cost"]),
        "verify curve  " + "  ".join(f"v({k}) = {v:.2f}" for k, v in passes["verify_curve"].items())]
    if found := figures.get("rounding"):
        lines.append("logits of passes over 1 and over {width} tokens differ by up to {largest_logit_difference:.1e}: "
                     "greedy choices closer than that may fall differently".format(**found))
    for (workload, temperature), rows in groupby(figures["rows"], lambda r: (r["workload"], r["temperature"])):
        lines += ["", f"{workload}, temperature {temperature:g}", common.table(
            ["method", "length", "nodes", "tokens/s", "ratio", "predicted", "efficiency", "tokens/pass", "draft passes",
             "acceptance", "by position"],
            [cells(r) for r in rows])]
    if rows := figures.get("against_transformers"):
        lines += ["", f"the same weights in transformers, temperature 0, {rows[0]['workload']}, whole calls"]
        lines += [common.table(
            ["method", "minispec tokens/s", "transformers tokens/s", "ratio", "equal outputs"],
            [[r["method"], f"{r['tokens_per_second']:.1f}", f"{r['transformers_tokens_per_second']:.1f}",
              f"{r['ratio']:.2f}", f"{r['equal_outputs']:.0%}"] for r in rows])]
    return "\n".join(lines)


def cells(r: dict) -> list[str]:
    rate = "-" if r["acceptance_rate"] is None else f"{r['acceptance_rate']:.2f}"
    return [r["method"], str(r["draft_length"]), str(r["nodes"]), f"{r['tokens_per_second']:.1f}",
            f"{r['ratio_to_plain']:.2f}", f"{r['predicted_speedup']:.2f}", f"{r['efficiency']:.2f}",
            f"{r['tokens_per_pass']:.2f}", f"{r['draft_passes_per_round']:.2f}", rate,
            " ".join(f"{alpha:.2f}".lstrip("0") for alpha in r["acceptance_by_position"][:4])]
