"""demo: watch a real speculative loop write Python, then see what it saved, measured in the same run.

The text is streamed first; that run warms up and is not timed, since writing to a terminal takes time too. Then plain
and speculative decoding take turns on the same prompt, with the same seeds, in alternating order.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

from tokenizers import Tokenizer

from ..analysis.metrics import loop_overhead
from ..bench.suite import PLAIN, chain, interleave, row
from ..bench.timing import environment, measure_passes
from ..bench.workloads import prompts
from ..decoding import Generation, Round, SeededDice, speculate
from ..decoding.request import check_request
from ..drafters import LMDrafter
from ..model.gpt import GPT
from . import common
from .ribbon import BONUS, GIVEN, Ribbon

HELP = "stream a completion, show where each token came from, and the speedup over plain decoding"
EXAMPLE = "python -m minispec demo\npython -m minispec demo --temperature 0.8 --length 3 --prompt 'def fibonacci(n):'"
REPEATS = 4                  # of plain and of speculative decoding, after the streamed run


def options(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--prompt", metavar="TEXT", help="continue this text")
    given.add_argument("--example", type=int, default=12, metavar="N",
                       help="continue the Nth shipped prompt: held-out code, which the models never read (default: 12)")
    common.length_options(parser)
    common.sampling_options(parser, temperature=0.0)
    common.model_options(parser)
    parser.add_argument("--color", "--colour", default="auto", choices=("auto", "always", "never"),
                        help="default: auto, on a terminal without NO_COLOR")
    common.json_option(parser)
    common.seed_option(parser)
    common.machine_options(parser)


def run(args: argparse.Namespace) -> None:
    target, draft, tokenizer = common.load_models(args)
    text = prompts("code", args.example)[-1].text if args.prompt is None else args.prompt
    ids, stops = tokenizer.encode(text).ids, common.stop_tokens(tokenizer)
    request = dict(max_new_tokens=args.max_new_tokens, sampling=common.sampling_of(args), stop_tokens=stops)
    check_request(target, ids, args.max_new_tokens, stops)          # bad input is refused before anything is written
    drafter = LMDrafter(draft, args.length)
    if not args.json:
        stream(target, drafter, tokenizer, ids, text, args, request)
    figures = measure(target, draft, ids, args, request)
    figures["text"] = tokenizer.decode(figures.pop("tokens"))
    if args.json:
        common.print_json({"prompt": text, **figures})
    else:
        print("\n" + summary(figures, args.temperature))


def stream(target: GPT, drafter: LMDrafter, tokenizer: Tokenizer, ids: Sequence[int], text: str,
           args: argparse.Namespace, request: dict) -> None:
    """Decode once, and write each token as soon as its round is done."""
    ribbon, pieces = Ribbon(colour=args.color), common.TextStream(tokenizer)
    print(ribbon.legend(), end="\n\n")
    ribbon.write(GIVEN, text)

    def show(r: Round) -> None:
        for token, role in r.provenance():
            ribbon.write(BONUS if role == "target" else role, pieces.feed(token))        # nothing proposed, nothing lost

    speculate(target, drafter, ids, dice=SeededDice(args.seed), on_round=show, **request)
    ribbon.write(GIVEN, pieces.rest())
    ribbon.close()


def measure(target: GPT, draft: GPT, ids: Sequence[int], args: argparse.Namespace, request: dict) -> dict:
    """All figures of the summary, as `--json` prints them, and the tokens."""
    name, method = f"chain-{args.length}", chain(args.length)
    done = interleave(target, draft, [ids] * REPEATS, {name: method}, seed=args.seed, **request)
    passes = measure_passes(target, draft, context=min(200, len(ids)), widths=(1, args.length + 1))
    figures = row(name, method, "prompt", args.temperature, done[name], done[PLAIN], passes)
    plain = row(PLAIN, None, "prompt", args.temperature, done[PLAIN], done[PLAIN], passes)
    differs = first_difference(done[name][0], done[PLAIN][0]) if args.temperature == 0 else None
    return {
        "environment": environment(target.device, target.wte.weight.dtype), "passes": passes.to_dict(), **figures,
        "plain_tokens_per_second": plain["tokens_per_second"],
        "loop_overhead": median(loop_overhead(g.trace) for g in done[name]),
        "outputs_equal": differs is None if args.temperature == 0 else None, "first_difference": differs,
        "tokens": done[name][0].tokens,
    }


def first_difference(a: Generation, b: Generation) -> int | None:
    """The first new token, counted from 0, in which they differ."""
    if a.tokens == b.tokens:
        return None
    return next((k for k, (x, y) in enumerate(zip(a.tokens, b.tokens)) if x != y), min(len(a.tokens), len(b.tokens)))


def summary(f: dict, temperature: float) -> str:
    by_position = " ".join(f"{alpha:.2f}" for alpha in f["acceptance_by_position"])
    rate = "nothing was proposed" if f["acceptance_rate"] is None else f"{f['acceptance_rate']:.2f}"
    c, v = f["passes"]["cost"], f["passes"]["verify_curve"]
    widest = max(v)
    lines = [
        ("speculative decoding", f"{f['tokens_per_second']:.1f} tokens/s"),
        ("plain decoding", f"{f['plain_tokens_per_second']:.1f} tokens/s"),
        ("speedup", f"{f['ratio_to_plain']:.2f}x measured, {f['predicted_speedup']:.2f}x predicted "
                    f"(efficiency {f['efficiency']:.2f})"),
        ("acceptance rate", f"{rate}   by position, given that it was reached: {by_position}"),
        ("tokens per pass", f"{f['tokens_per_pass']:.2f}"),
        ("measured costs", f"draft pass {c:.2f}, target pass over {widest} tokens {v[widest]:.2f} "
                           "(a target pass over one token = 1)"),
        ("loop overhead", f"{f['loop_overhead']:.1%} of the decoding time lies outside of draft and verify"),
        ("outputs", equality(f, temperature)),
        ("measured on",
         "{device}, {dtype}, {threads} threads, torch {torch}, {date}, {commit}".format(**f["environment"])),
    ]
    return "\n".join(f"{name:<22}{value}" for name, value in lines)


def equality(f: dict, temperature: float) -> str:
    if temperature > 0:
        return "one law, different samples: speculation throws the dice in another order (see the check command)"
    if f["outputs_equal"]:
        return "equal to plain decoding, token by token"
    return (f"differ from plain decoding at new token {f['first_difference']}: a near-tie that "
            f"{f['environment']['dtype']} rounds differently in passes of different width")
