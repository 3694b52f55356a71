"""player: a generation, step by step, as one HTML page that needs no server, no network and no notebook."""

from __future__ import annotations

import argparse

from ..bench.suite import METHODS, chain
from ..bench.workloads import prompts
from ..decoding import SeededDice, Trace, speculate
from ..viz import player
from . import common

HELP = "write a generation, step by step, as one HTML page"
EXAMPLE = ("python -m minispec player --output page.html --prompt 'def add(a, b):'\n"
           "python -m minispec player --output tree.html --tree --temperature 0.8 --seed 3\n"
           "python -m minispec generate --prompt 'import os' --trace trace.json\n"
           "python -m minispec player --output page.html --trace trace.json")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", required=True, help="the page; open it in any browser")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--prompt", metavar="TEXT", help="continue this text")
    given.add_argument("--example", type=int, default=12, metavar="N", help="continue the Nth shipped prompt "
                                                                            "(default: 12)")
    given.add_argument("--trace", metavar="FILE", help="run nothing: show this trace, which generate --trace wrote")
    parser.add_argument("--tree", action="store_true", help="draft a tree of guesses, not a chain")
    common.length_options(parser, new_tokens=32)
    common.sampling_options(parser, temperature=0.0)
    common.model_options(parser)
    common.seed_option(parser)
    common.machine_options(parser)


def run(args: argparse.Namespace) -> None:
    output = common.check_output(args.output)
    trace = None if args.trace is None else Trace.from_json(common.read_text(args.trace))
    target, draft, tokenizer = common.load_models(args)
    if trace is None:
        text = prompts("code", args.example)[-1].text if args.prompt is None else args.prompt
        method = METHODS[tree_method(args.temperature)] if args.tree else chain(args.length)
        trace = speculate(target, method.drafter(draft), tokenizer.encode(text).ids, rule=method.rule,
                          max_new_tokens=args.max_new_tokens, sampling=common.sampling_of(args),
                          dice=SeededDice(args.seed), stop_tokens=common.stop_tokens(tokenizer)).trace
    common.write_text(output, player(trace, tokenizer.decode))
    print(f"{output}: {len(trace.rounds)} rounds, {sum(len(r.emitted) for r in trace.rounds)} tokens")


def tree_method(temperature: float) -> str:
    """At temperature 0 the draft's law has one token: siblings can only be chosen, not drawn."""
    return "tree-match" if temperature == 0 else "tree-recursive"
