"""export: the pair as Hugging Face folders, the road to transformers and to serving engines."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..model import gpt2, pair

HELP = "write target and draft as Hugging Face GPT-2 folders"
EXAMPLE = ("python -m minispec export --output exported\n"
           "then, in Python: AutoModelForCausalLM.from_pretrained('exported/target')\n"
           "                 .generate(..., assistant_model=AutoModelForCausalLM.from_pretrained('exported/draft'))")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FOLDER", required=True, help="gets two folders: target and draft")
    parser.add_argument("--pair", metavar="FOLDER", help="a pair that train and distill wrote (default: the shipped)")


def run(args: argparse.Namespace) -> None:
    target, draft, tokenizer = pair.load_pair(args.pair)
    for role, model in {"target": target, "draft": draft}.items():
        folder = Path(args.output) / role
        gpt2.export_gpt2(model, tokenizer, folder, name=f"minispec-{role}")
        print(f"wrote {folder}")
