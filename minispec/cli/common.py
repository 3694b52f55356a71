"""What the commands share: options, models, and how figures leave."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..decoding import Sampling
from ..model import gpt2, pair
from ..model.files import save_atomic
from ..model.gpt import GPT
from ..training.tokenizer import END

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


# --- options ----------------------------------------------------------------------------------------------------------

def machine_options(parser: argparse.ArgumentParser, dtype: bool = True) -> None:
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    if dtype:
        parser.add_argument("--dtype", default="float32", choices=tuple(DTYPES),
                            help="default: float32. bfloat16 is faster on some machines, and rounds: near-ties may "
                                 "fall differently in passes of different width")


def seed_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of the dice (default: 0)")


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, and nothing else")


def model_options(parser: argparse.ArgumentParser) -> None:
    """Which models: `load_models` reads these."""
    parser.add_argument("--pair", metavar="FOLDER", help="a pair that train and distill wrote (default: the shipped)")
    parser.add_argument("--model", metavar="FOLDER", help="a GPT-2 as target: a Hugging Face folder, or a hub name")
    parser.add_argument("--draft-model", metavar="FOLDER", help="the GPT-2 that drafts for --model")


def sampling_options(parser: argparse.ArgumentParser, temperature: float) -> None:
    parser.add_argument("--temperature", type=float, default=temperature, help=f"default: {temperature:g}; 0 is greedy")
    parser.add_argument("--top-k", type=int, metavar="K", help="sample from the K likeliest tokens only")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P",
                        help="sample from the likeliest tokens that together reach P (default: 1)")


def length_options(parser: argparse.ArgumentParser, new_tokens: int = 128) -> None:
    parser.add_argument("--length", type=int, default=5, metavar="N", help="draft length: tokens a round (default: 5)")
    parser.add_argument("--max-new-tokens", type=int, default=new_tokens, metavar="N", help=f"default: {new_tokens}")


# --- what they mean ---------------------------------------------------------------------------------------------------

def device_of(args: argparse.Namespace) -> torch.device:
    """Raises ValueError for cuda on a machine without it."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no CUDA device on this machine, use --device cpu")
    return torch.device(args.device)


def sampling_of(args: argparse.Namespace) -> Sampling:
    return Sampling(args.temperature, args.top_k, args.top_p)


def load_models(args: argparse.Namespace, draft_needed: bool = True) -> tuple[GPT, GPT | None, Tokenizer]:
    """(target, draft, tokenizer) as the options ask. The draft is None only if none was named and none is needed."""
    where = dict(device=device_of(args), dtype=DTYPES[args.dtype])
    if args.model is None:
        if args.draft_model is not None:
            raise ValueError("--draft-model goes with --model: name the target too")
        return pair.load_pair(args.pair, **where)
    if args.pair is not None:
        raise ValueError("--pair and --model exclude each other: each names a target")
    if draft_needed and args.draft_model is None:
        raise ValueError("--model needs --draft-model: a smaller GPT-2 with the same vocabulary")
    target = gpt2.load_gpt2(args.model, **where)
    draft = gpt2.load_gpt2(args.draft_model, **where) if args.draft_model else None
    if draft is not None and draft.config.vocab_size != target.config.vocab_size:
        raise ValueError(f"a pair must share one vocabulary: {args.model} has {target.config.vocab_size} tokens, "
                         f"{args.draft_model} has {draft.config.vocab_size}")
    return target, draft, gpt2.load_gpt2_tokenizer(args.model)


def stop_tokens(tokenizer: Tokenizer) -> list[int]:
    """The end-of-text token, if the tokenizer has one."""
    end = tokenizer.token_to_id(END)
    return [] if end is None else [end]


# --- text and figures out ---------------------------------------------------------------------------------------------

class TextStream:
    """Token ids in, text out, one token at a time: a character of several bytes appears with its last one."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer, self.held = tokenizer, []

    def feed(self, token: int) -> str:
        self.held.append(token)
        text = self.tokenizer.decode(self.held)
        return "" if text.endswith("\ufffd") and len(self.held) < 4 else self.rest()

    def rest(self) -> str:
        """What is held back, as far as it can be read."""
        text, self.held = self.tokenizer.decode(self.held) if self.held else "", []
        return text


def print_json(value: dict | list) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def check_output(path: str | None) -> Path | None:
    """A file to be written, looked at *before* minutes of work. Raises ValueError if it is a folder."""
    if path is not None and Path(path).is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    return None if path is None else Path(path)


def read_text(path: str) -> str:
    """Raises ValueError, naming the file, if it is not UTF-8 text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


def write_text(path: Path, text: str) -> None:
    """All of it or nothing: an interrupted command leaves the old file."""
    save_atomic(path, lambda part: part.write_text(text, encoding="utf-8"))


def table(header: list[str], rows: list[list[str]]) -> str:
    """Aligned columns, the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    line: Callable[[list[str]], str] = lambda cells: "  ".join(
        cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(cells, widths))).rstrip()
    return "\n".join(map(line, [header, *rows]))
