"""generate: complete a text, with or without speculation."""

from __future__ import annotations

import argparse
import sys

from ..analysis.metrics import metrics
from ..decoding import Generation, Round, SeededDice, generate, speculate
from ..drafters import LMDrafter
from . import common

HELP = "complete a text"
EXAMPLE = ("python -m minispec generate --prompt 'import os' --max-new-tokens 40\n"
           "python -m minispec generate --model gpt2-large --draft-model distilgpt2 --prompt 'Once upon a time' --json")


def options(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--prompt", metavar="TEXT", help="the text to complete")
    given.add_argument("--file", help="read it from this file (default: standard input)")
    parser.add_argument("--plain", action="store_true", help="without speculation: one target pass a token")
    common.length_options(parser)
    common.sampling_options(parser, temperature=1.0)
    common.model_options(parser)
    parser.add_argument("--trace", metavar="FILE", help="write the trace, one record a round, as JSON")
    common.json_option(parser)
    common.seed_option(parser)
    common.machine_options(parser)


def run(args: argparse.Namespace) -> None:
    trace_file, text = common.check_output(args.trace), read_prompt(args)
    target, draft, tokenizer = common.load_models(args, draft_needed=not args.plain)
    pieces = common.TextStream(tokenizer)

    def show(r: Round) -> None:
        print("".join(map(pieces.feed, r.emitted)), end="", flush=True)

    request = dict(max_new_tokens=args.max_new_tokens, sampling=common.sampling_of(args), dice=SeededDice(args.seed),
                   stop_tokens=common.stop_tokens(tokenizer), on_round=None if args.json else show)
    ids = tokenizer.encode(text).ids
    done = (generate(target, ids, **request) if args.plain else
            speculate(target, LMDrafter(draft, args.length), ids, **request))
    if args.json:
        common.print_json({"text": tokenizer.decode(done.tokens), **figures(done)})
    else:
        print(pieces.rest())
    if trace_file is not None:
        common.write_text(trace_file, done.trace.to_json())


def read_prompt(args: argparse.Namespace) -> str:
    """The prompt from the option, the file, or standard input. Raises ValueError if there is none, or it is no text."""
    if args.prompt is not None:
        return args.prompt
    if args.file is not None:
        return common.read_text(args.file)
    if sys.stdin.isatty():
        raise ValueError("nothing to complete: give --prompt TEXT, --file FILE, or a text on standard input")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise ValueError("standard input is not UTF-8 text") from None


def figures(done: Generation) -> dict:
    """What happened, in the words of analysis.metrics; `tokens` are the new token ids, seconds without the prefill."""
    m = metrics(done.trace)
    return {"tokens": done.tokens, "stop_reason": done.stop_reason, "rounds": m.rounds, "proposed": m.proposed,
            "accepted": m.accepted, "acceptance_rate": m.acceptance_rate,
            "acceptance_by_position": m.acceptance_by_position, "tokens_per_pass": m.tokens_per_pass,
            "seconds": m.seconds, "tokens_per_second": m.tokens_per_second}
