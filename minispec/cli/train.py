"""train: a target from scratch, on the project's corpus or on the reader's own text; or a draft of another kind."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..model import pair
from ..model.files import read_tokenizer, save_atomic
from ..model.gpt import GPT
from ..training import block, recipes
from ..training.own_text import add_text
from . import common

HELP = "train a target from scratch; an interrupted run goes on where it was"
EXAMPLE = ("python -m minispec train --output mine\n"
           "python -m minispec train --text novel.txt --steps 300 --output mine\n"
           "python -m minispec train --recipe block --pair mine --output mine")
RECIPES = {recipe.name: recipe for recipe in (recipes.TARGET, block.BLOCK)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="target", choices=tuple(RECIPES),
                        help="default: target; block: the draft of a pair learns to propose several tokens in one pass")
    parser.add_argument("--pair", metavar="FOLDER", help="of a recipe that starts from a pair (default: the shipped one)")
    training_options(parser)


def training_options(parser: argparse.ArgumentParser) -> None:
    """What train and distill have in common."""
    parser.add_argument("--text", metavar="FILE", help="read this text instead of the project's corpus")
    parser.add_argument("--steps", type=int, metavar="N", help="default: the recipe's")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where model, card and tokenizer are written")
    common.json_option(parser)
    common.seed_option(parser)
    common.machine_options(parser, dtype=False)


def run(args: argparse.Namespace) -> None:
    if args.recipe != "target":
        return run_block(args)
    device, output = common.device_of(args), folder_of(args)
    tokenizer = read_tokenizer(pair.ASSETS / "tokenizer.json")
    recipe = adapt(RECIPES[args.recipe], args)
    if args.text is not None:
        kind = add_text(tokenizer, args.text)
        recipe = replace(recipe, name=f"{recipe.name}-{kind}", weights={kind: 1.0})
    started = time.perf_counter()
    with resumable(), torch.device(device):
        model = recipes.train(recipe, tokenizer, report=log)
    card = {"recipe": recipe.name, "data": recipe.weights, "steps": recipe.schedule.steps, "seed": recipe.seed,
            **circumstances(model, started)}
    save(output, "target", model, card, tokenizer, args.json)


def run_block(args: argparse.Namespace) -> None:
    """The recipes that start from a pair: today, the block draft."""
    if args.text is not None:
        raise ValueError(f"--text is for the target: the recipe {args.recipe} reads what its pair was distilled on")
    device, output = common.device_of(args), folder_of(args)
    recipe = adapt(RECIPES[args.recipe], args)
    if args.pair is not None:                                    # another pair is another run
        recipe = replace(recipe, name=f"{recipe.name}-{Path(args.pair).resolve().name}")
    target, draft, tokenizer = pair.load_pair(args.pair, device=device)
    started = time.perf_counter()
    with resumable():
        model = block.distill_block(recipe, draft, target, tokenizer, report=log)
    card = {"recipe": recipe.name, "data": recipe.weights, "loss": recipe.loss, "depths": recipe.depths,
            "steps": recipe.schedule.steps, "seed": recipe.seed, **circumstances(model, started)}
    save(output, "block", model, card, tokenizer, args.json)


# --- shared with distill ----------------------------------------------------------------------------------------------

def folder_of(args: argparse.Namespace) -> Path:
    """--output, looked at before hours of work. Raises ValueError if it is a file, or if --steps is below 1."""
    if args.steps is not None and args.steps < 1:
        raise ValueError(f"--steps must be a whole number >= 1, got {args.steps}")
    if Path(args.output).exists() and not Path(args.output).is_dir():
        raise ValueError(f"{args.output} is a file: name a folder")
    return Path(args.output)


def adapt(recipe, args: argparse.Namespace):
    """The recipe with --steps and --seed. Another seed is another run, with a checkpoint of its own."""
    if args.steps is not None:
        recipe = replace(recipe, schedule=replace(recipe.schedule, steps=args.steps))
    name = recipe.name if args.seed == recipe.seed else f"{recipe.name}-seed-{args.seed}"
    return replace(recipe, seed=args.seed, name=name)


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: the same command goes on from the last checkpoint") from None


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def circumstances(model: GPT, started: float) -> dict:
    """What a card says of every run. minutes: of this call, so less than the whole where a run was resumed."""
    return {"parameters": model.num_params(), "minutes": round((time.perf_counter() - started) / 60, 1),
            "device": model.device.type, "torch": torch.__version__, "python": platform.python_version(),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d")}


def save(folder: Path, role: str, model: GPT, card: dict, tokenizer: Tokenizer, as_json: bool) -> None:
    """Write <role>.safetensors, its card and the tokenizer: with both roles there, the folder is a pair."""
    path = folder / f"{role}.safetensors"
    pair.save_model(path, model, card)
    save_atomic(folder / "tokenizer.json", lambda part: tokenizer.save(str(part)))
    if as_json:
        common.print_json({"file": str(path), **card})
    else:
        print(f"wrote {path}: {card['parameters']:,} parameters after {card['steps']} steps")
