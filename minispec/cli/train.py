"""train: a target from scratch, on the project's corpus or on the reader's own text; or a draft of another kind."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..bench.timing import environment
from ..model import pair
from ..model.files import read_tokenizer, save_atomic, save_json
from ..model.gpt import GPT
from ..training import acceptance_head, block, diffusion, early_exit, feature, glide, heads, recipes, spelled
from ..training.data import cache_dir
from ..training.own_text import add_text
from ..training.train import fast_dtype, seconds_spent
from . import common

HELP = "train a target, or a draft of another kind; an interrupted run goes on where it was"
EXAMPLE = ("python -m minispec train --output mine\n"
           "python -m minispec train --text novel.txt --steps 300 --output mine\n"
           "python -m minispec train --recipe block --pair mine --output mine")
RECIPES = {recipe.name: recipe for recipe in (recipes.TARGET, block.BLOCK, diffusion.DIFFUSION, heads.HEADS,
                                              feature.FEATURE, glide.GLIDE, glide.CONTROL, early_exit.EARLY_EXIT,
                                              spelled.BYTE)}
TRAIN = {                                                        # name: (recipe, target, tokenizer, report) -> a model
    "diffusion": diffusion.distill_diffusion, "heads": heads.distill_heads, "feature": feature.distill_feature,
    "glide": glide.distill_glide, "glide-control": glide.distill_glide, "early-exit": early_exit.co_train,
    "byte": spelled.train_byte,
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="target", choices=(*RECIPES, "acceptance-head"),
                        help="default: target. From a pair: block or diffusion, a draft that proposes several tokens in "
                             "one pass; heads or feature, one that reads the target's hidden state; glide, one that "
                             "reads its keys and values (glide-control: the same without); early-exit, the target with "
                             "an exit to draft from; byte, a draft that spells; acceptance-head, an estimate of what "
                             "will be accepted, in seconds")
    parser.add_argument("--pair", metavar="FOLDER",
                        help="of a recipe that starts from a pair (default: the shipped one)")
    parser.add_argument("--start", metavar="FILE", help="begin with the weights of this target, not with random ones")
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
    if args.recipe == "acceptance-head":
        return run_acceptance_head(args)
    if args.recipe != "target":
        return run_from_pair(args)
    device, output = common.device_of(args), folder_of(args)
    tokenizer = read_tokenizer(pair.ASSETS / "tokenizer.json")
    recipe = adapt(RECIPES[args.recipe], args)
    if args.text is not None:
        kind = add_text(tokenizer, args.text)
        recipe = replace(recipe, name=f"{recipe.name}-{kind}", weights={kind: 1.0})
    start = None if args.start is None else pair.load_model(args.start, device=device)
    if start is not None:                                        # other weights, another run
        recipe = replace(recipe, name=f"{recipe.name}-on-{digest(Path(args.start))}")
    with resumable(), torch.device(device):
        model = recipes.train(recipe, tokenizer, report=log, start=start)
    unread = recipes.held_out(tokenizer, recipe.weights)
    losses = {kind: round(recipes.text_loss(model, data, batches=16), 3) for kind, data in unread.items()}
    card = {"recipe": recipe.name, "data": recipe.weights, **circumstances(model, recipe),
            "held_out_nats_per_token": losses}
    save(output, "target", model, card, tokenizer, args.json)


def run_acceptance_head(args: argparse.Namespace) -> None:
    """A few hundred parameters, trained in one go: no checkpoint."""
    device, path = common.device_of(args), folder_of(args) / "acceptance-head.safetensors"
    target, draft, tokenizer = pair.load_pair(args.pair, device=device)
    recipe = acceptance_head.HeadRecipe(seed=args.seed)
    recipe = recipe if args.steps is None else replace(recipe, steps=args.steps)
    with resumable():
        head = acceptance_head.train_on_pair(recipe, draft, target, tokenizer, report=log)
    card = {"recipe": args.recipe, "data": recipe.weights, "windows": recipe.windows, "length": recipe.length,
            "steps": recipe.steps, "temperature": recipe.sampling.temperature, "seed": recipe.seed,
            **environment(device, torch.float32)}
    head.save(path, {"recipe": args.recipe})
    save_json(path.with_suffix(".card.json"), card)
    if args.json:
        common.print_json({"file": str(path), **card})
    else:
        print(f"wrote {path}")


def digest(file: Path) -> str:
    """Twelve hexadecimal digits that tell one file of weights from another."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def run_from_pair(args: argparse.Namespace) -> None:
    """The recipes that start from a pair: drafts of other kinds."""
    if args.text is not None:
        raise ValueError(f"--text is for the target: the recipe {args.recipe} reads what its pair was distilled on")
    device, output = common.device_of(args), folder_of(args)
    target, draft, tokenizer = pair.load_pair(args.pair, device=device)
    recipe = adapt(RECIPES[args.recipe], args)                   # another pair is another run
    folder = pair.ASSETS if args.pair is None else Path(args.pair)
    recipe = replace(recipe, name=f"{recipe.name}-{digest(folder / 'target.safetensors')}")
    with resumable():
        if args.recipe == "block":                               # the only one that goes on from the draft
            model = block.distill_block(recipe, draft, target, tokenizer, log)
        else:
            model = TRAIN[args.recipe](recipe, target, tokenizer, log)
    elsewhere = {"name", "config", "weights", "schedule", "seed"}
    own = {field.name: getattr(recipe, field.name) for field in fields(recipe) if field.name not in elsewhere}
    if args.recipe == "early-exit":
        own |= early_exit.held_out_figures(recipe, target, model, tokenizer)
    card = {"recipe": args.recipe, "data": recipe.weights, **own, **circumstances(model, recipe)}
    save(output, args.recipe, model, card, tokenizer, args.json)


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


def circumstances(model: GPT, recipe) -> dict:
    """What a card says of every run. minutes: all sittings together, as the checkpoint counts them."""
    checkpoint, schedule = cache_dir() / f"{recipe.name}.pt", recipe.schedule
    return {"architecture": asdict(model.config), "parameters": model.num_params(), "steps": schedule.steps,
            "tokens_read": schedule.steps * schedule.batch_tokens, "seed": recipe.seed,
            "minutes": round(seconds_spent(checkpoint) / 60, 1), **environment(model.device, fast_dtype(model.device)
                                                                              or torch.float32)}


def save(folder: Path, role: str, model: GPT, card: dict, tokenizer: Tokenizer, as_json: bool) -> None:
    """Write <role>.safetensors, its card and the tokenizer: with both roles there, the folder is a pair."""
    path = folder / f"{role}.safetensors"
    pair.save_model(path, model, card)
    save_atomic(folder / "tokenizer.json", lambda part: tokenizer.save(str(part)))
    if as_json:
        common.print_json({"file": str(path), **card})
    else:
        print(f"wrote {path}: {card['parameters']:,} parameters after {card['steps']} steps")
