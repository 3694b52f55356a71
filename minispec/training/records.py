"""Seeded logs with facts to keep, and the compact form of each: material for context compaction.

A log is a stream of timestamped lines, most of them noise. A few lines set facts (`key = value`); a later line may
set the same key again, and the last one counts. After the log stands its compact form, one slot for each header, so
a model trained on these documents learns what compaction should write. `facts(seed)` gives the right answers.
"""

from __future__ import annotations

import random

SLOT_START, SLOT_END = "<|slot_start|>", "<|slot_end|>"
HEADERS = ("GOAL", "FILES", "DECISIONS", "STATE", "TODO")
_KEYS = {"GOAL": ("task", "deadline", "owner"), "FILES": ("source", "target", "config"),
         "DECISIONS": ("format", "backend", "policy"), "STATE": ("phase", "progress", "version"),
         "TODO": ("next", "blocked_by", "review")}
_VALUES = {
    "task": ("migrate billing", "speed up search", "fix login", "split the monolith", "trim the index", "rotate keys"),
    "deadline": ("monday", "tuesday", "friday", "end of march", "end of june", "next sprint"),
    "owner": ("ana", "bo", "chen", "dara", "emil", "femi", "gita", "hugo"),
    "source": ("app/main.py", "core/user.py", "db/schema.sql", "net/client.py", "web/forms.py"),
    "target": ("app/cart.py", "core/order.py", "db/index.sql", "net/server.py", "web/views.py"),
    "config": ("dev.toml", "prod.toml", "stage.yaml", "local.ini"),
    "format": ("json", "csv", "parquet", "protobuf"), "backend": ("postgres", "sqlite", "redis", "memory"),
    "policy": ("retry twice", "fail fast", "keep newest", "keep oldest"),
    "phase": ("design", "build", "review", "rollout"), "progress": ("10 %", "25 %", "50 %", "75 %", "90 %"),
    "version": ("0.9", "1.0", "1.1", "2.0", "2.1"),
    "next": ("write tests", "update docs", "deploy", "measure", "call the owner"),
    "blocked_by": ("nothing", "licence", "hardware", "security review"), "review": ("pending", "done", "skipped"),
}
_NOISE = ("heartbeat ok", "cache warm, {n} entries", "GET /status 200 in {n} ms", "worker {n} idle", "gc freed {n} kB",
          "retrying connection {n}", "queue length {n}", "tick {n}", "flushed {n} rows", "poll returned nothing")


def facts(seed: int) -> dict[str, dict[str, str]]:
    """{header: {key: final value}} of `log(seed)`."""
    return _events(random.Random(seed))[1]


def _events(rng: random.Random) -> tuple[list[str], dict[str, dict[str, str]]]:
    kept: dict[str, dict[str, str]] = {header: {} for header in HEADERS}
    lines, clock = [], rng.randint(0, 80_000)
    for _ in range(rng.randint(12, 30)):
        clock += rng.randint(1, 90)
        stamp = f"[{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}]"
        if rng.random() < 0.4:
            header = rng.choice(HEADERS)
            key = rng.choice(_KEYS[header])
            kept[header][key] = rng.choice(_VALUES[key])
            lines.append(f"{stamp} set {key} = {kept[header][key]}")
        else:
            lines.append(f"{stamp} {rng.choice(_NOISE).format(n=rng.randint(1, 99))}")
    return lines, kept


def log(seed: int) -> str:
    """One log and its compact form. The same seed gives the same text."""
    lines, kept = _events(random.Random(seed))
    slots = []
    for header in HEADERS:
        body = "; ".join(f"{key} = {value}" for key, value in sorted(kept[header].items())) or "nothing"
        slots.append(f"{SLOT_START}{header}: {body}{SLOT_END}")
    return "\n".join(lines) + "\n\nSUMMARY\n" + "\n".join(slots) + "\n"
