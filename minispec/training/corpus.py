"""The corpus: the Python on the reader's own machine, and two seeded generators. Nothing is downloaded.

Four kinds of document:
    code     the standard library and the installed requirements' sources, without tests
    docs     the language reference (`pydoc_data.topics`) and the docstrings of the same modules
    agent    tool-call transcripts (transcripts.py)
    records  logs with facts worth keeping (records.py)

Each document belongs to one split, chosen by a stable hash of its *relative* name: the same file is held out on every
machine, whatever the order of the walk. Vendored copies share the split of the original, and equal texts count once.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("code", "docs", "agent", "records")
SPLITS = ("train", "validation", "held-out")
GENERATED = {"train": 6000, "validation": 200, "held-out": 200}      # documents a generator yields for each split


@dataclass(frozen=True)
class Document:
    kind: str
    name: str
    text: str


def split_of(name: str) -> str:
    """94 % train, 3 % validation, 3 % held-out, by a hash of the name alone."""
    bucket = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 100
    return "train" if bucket < 94 else "validation" if bucket < 97 else "held-out"


def documents(kind: str, split: str) -> Iterator[Document]:
    """All documents of one kind and split, in a fixed order. Raises ValueError for an unknown kind or split."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of document {kind!r}: choose from {', '.join(KINDS)}")
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose from {', '.join(SPLITS)}")
    if kind == "code":
        yield from _code(split)
    elif kind == "docs":
        yield from _docs(split)
    else:
        from . import records, transcripts
        generate = transcripts.transcript if kind == "agent" else records.log
        for number in range(GENERATED[split]):
            seed = int.from_bytes(hashlib.sha256(f"{kind}/{split}/{number}".encode()).digest()[:6], "big")
            yield Document(kind, f"{kind}-{number}", generate(seed))


# --- code ---------------------------------------------------------------------------------------------------------------

def _source_files() -> Iterator[tuple[str, Path]]:
    """(name, path) of every Python file of the standard library and of site-packages, sorted by name."""
    roots = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    found = {}
    for root in roots:
        for path in root.rglob("*.py"):
            name = path.relative_to(root).as_posix()
            if not _is_excluded(name):
                found.setdefault(name.split("_vendor/")[-1], path)               # a vendored copy is the original
    yield from sorted(found.items())


def _is_excluded(name: str) -> bool:
    parts = name.split("/")
    if any("test" in part.lower() for part in parts):
        return True                                                              # tests: other text, often data
    if "site-packages" in parts or parts[0] in ("encodings", "wcwidth", "minispec"):
        return True                                                              # tables, and ourselves
    return name.startswith("transformers/models/")               # hundreds of near-copies would leak across the splits


def clean_source(text: str) -> str | None:
    """The source without its leading comment block (a licence, mostly), or None if it is a table or generated."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    while lines and (not lines[0].strip() or lines[0].startswith("#")):
        lines.pop(0)
    text = "\n".join(line.rstrip() for line in lines).strip() + "\n"
    if not 200 <= len(text) <= 300_000 or max(map(len, lines), default=0) > 400:
        return None
    digits = sum(c.isdigit() for c in text)
    foreign = sum(ord(c) > 127 for c in text)
    return None if digits > 0.12 * len(text) or foreign > 0.01 * len(text) else text


def _sources(split: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for name, path in _source_files():
        text = clean_source(path.read_text(encoding="utf-8", errors="ignore"))
        digest = hashlib.sha256(text.encode()).digest() if text else None
        if text is None or digest in seen:
            continue
        seen.add(digest)
        if split_of(name) == split:
            yield name, text


def _code(split: str) -> Iterator[Document]:
    for name, text in _sources(split):
        yield Document("code", name, text)


# --- docs ---------------------------------------------------------------------------------------------------------------

def _docs(split: str) -> Iterator[Document]:
    from pydoc_data.topics import topics
    for name, text in sorted(topics.items()):
        if split_of(f"topics/{name}") == split:
            yield Document("docs", f"topics/{name}", text.strip() + "\n")
    for name, text in _sources(split):
        strings = docstrings(text)
        if len(strings) > 400:
            yield Document("docs", name, strings)


def docstrings(source: str) -> str:
    """The docstrings of a module, its classes and functions, each under its dotted name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    parts = []

    def visit(node: ast.AST, path: str) -> None:
        text = ast.get_docstring(node)
        if text and len(text) > 40:
            parts.append(f"{path}\n{text}\n" if path else f"{text}\n")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                visit(child, f"{path}.{child.name}" if path else child.name)

    visit(tree, "")
    return "\n".join(parts)
