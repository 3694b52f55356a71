"""distill: train a draft on its target's own distribution."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..model import pair
from ..model.files import read_tokenizer
from ..training import distill, losses, recipes
from ..training.corpus import KINDS
from ..training.own_text import add_text
from . import common, train

HELP = "train a draft on the target's distribution; an interrupted run goes on where it was"
EXAMPLE = ("python -m minispec distill --output mine\n"
           "python -m minispec distill --recipe draft-20 --output mine\n"
           "python -m minispec distill --target mine/target.safetensors --text novel.txt --output mine")


def known_recipes() -> dict[str, distill.Distillation]:
    return {recipe.name: recipe for recipe in (distill.DRAFT, *distill.LADDER)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="draft", choices=tuple(known_recipes()),
                        help="default: draft, the shipped one; the others have 1/5, 1/10 and 1/20 of the target's size")
    parser.add_argument("--target", metavar="FILE", help="a target written by train (default: the shipped one)")
    parser.add_argument("--loss", default=distill.DRAFT.loss, choices=tuple(losses.DISTILL),
                        help=f"default: {distill.DRAFT.loss}")
    train.training_options(parser)


def run(args: argparse.Namespace) -> None:
    device, output = common.device_of(args), train.folder_of(args)
    file = pair.ASSETS / "target.safetensors" if args.target is None else Path(args.target)
    target, tokenizer = pair.load_model(file, device=device), read_tokenizer(file.with_name("tokenizer.json"))
    recipe = train.adapt(known_recipes()[args.recipe], args)
    if args.text is not None:
        kind, samples = add_text(tokenizer, args.text), recipe.weights["samples"]
        recipe = replace(recipe, weights={kind: 1 - samples, "samples": samples})
    recipe = replace(recipe, loss=args.loss, name=run_name(recipe, args, file))
    with train.resumable():
        draft = distill.distill(recipe, target, tokenizer, report=train.log)
    kinds = KINDS if args.text is None else [kind for kind in recipe.weights if kind != "samples"]
    unread = recipes.held_out(tokenizer, kinds)
    alpha = {kind: round(distill.mean_acceptance(draft, target, data, batches=16), 3) for kind, data in unread.items()}
    card = {"recipe": recipe.name, "target": file.name, "data": recipe.weights, "loss": recipe.loss,
            "sample_tokens": recipe.sample_tokens, **train.circumstances(draft, recipe),
            "held_out_mean_acceptance": alpha}
    train.save(output, args.recipe, draft, card, tokenizer, args.json)


def run_name(recipe: distill.Distillation, args: argparse.Namespace, target: Path) -> str:
    """A checkpoint belongs to one run: whatever differs from the shipped recipe goes into its name."""
    other_text = [kind for kind in recipe.weights if kind.startswith("text-")]
    other_loss = [args.loss] if args.loss != distill.DRAFT.loss else []
    return "-".join([recipe.name, train.digest(target), *other_text, *other_loss])
