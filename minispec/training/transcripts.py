"""Seeded agent transcripts: a coding agent that lists, reads, searches, edits and tests a small project.

What makes agent traffic different from prose is kept: tool calls as JSON with escaped strings, file listings, line
numbers, unified diffs that repeat what was just read, failing runs, retries of the same call with one argument
changed, and quoted repeats of earlier output. Everything is made up from small word lists; `transcript(seed)` is a
pure function of its seed.
"""

from __future__ import annotations

import json
import random

NOUNS = ("account batch cache cart client config cursor draft event field filter graph header index item job key ledger "
         "line list log map mask message metric model node order page path plan point query queue range record report "
         "request route row rule sample schema score segment session shape slot state stream table task ticket token "
         "trace tree user value vector version window worker").split()
VERBS = ("add apply build check clean close collect compare compute convert copy count create decode delete encode fetch "
         "filter find flush format group insert join load merge move normalise open parse patch pick prune push read "
         "remove rename render reset resolve scan send sort split store sync trim update validate verify write").split()
FOLDERS = "app core data db lib net service tools utils web".split()
ERRORS = (("TypeError", "unsupported operand type(s) for +: 'NoneType' and 'int'"), ("KeyError", "'{noun}'"),
          ("IndexError", "list index out of range"), ("ValueError", "{noun} must not be empty"),
          ("AttributeError", "'NoneType' object has no attribute '{noun}'"), ("AssertionError", "{a} != {b}"))
BODIES = (
    ("    total = 0\n    for {n} in {m}s:\n        total += {n}.{f}\n    return total\n", "total += {n}.{f}",
     "total += {n}.{f} or 0"),
    ("    if not {m}s:\n        return None\n    return max({m}s, key=lambda {n}: {n}.{f})\n", "return None", "return []"),
    ("    result = []\n    for {n} in {m}s:\n        if {n}.{f}:\n            result.append({n})\n    return result\n",
     "if {n}.{f}:", "if {n}.{f} is not None:"),
    ("    {n} = {m}s[0]\n    return {n}.{f}\n", "{n} = {m}s[0]", "{n} = next(iter({m}s), None)"),
    ("    return {{{n}.{f}: {n} for {n} in {m}s}}\n", "for {n} in {m}s", "for {n} in sorted({m}s)"),
    ("    with open({m}s) as {n}:\n        return json.load({n})[\"{f}\"]\n", "[\"{f}\"]", ".get(\"{f}\")"),
)


class _Project:
    """The made-up files that one transcript works on."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.folder = rng.choice(FOLDERS)
        names = rng.sample(NOUNS, rng.randint(3, 6))
        self.files = {f"{self.folder}/{name}.py": self._module(name) for name in names}
        self.path = rng.choice(sorted(self.files))

    def _module(self, noun: str) -> list[str]:
        lines = [f'"""Helpers for {noun}s."""', "", "import json", ""]
        for verb in self.rng.sample(VERBS, self.rng.randint(1, 3)):
            body, _, _ = self.rng.choice(BODIES)
            n, f = self.rng.sample(NOUNS, 2)
            lines += ["", f"def {verb}_{noun}s({noun}s):"] + body.format(n=n, m=noun, f=f).rstrip("\n").split("\n") + [""]
        return lines


def _call(name: str, **arguments) -> str:
    return f"<call>{json.dumps({'tool': name, 'arguments': arguments})}</call>\n"


def _result(text: str) -> str:
    return f"<result>\n{text.rstrip()}\n</result>\n"


def _listing(project: _Project) -> str:
    rows = [f"-rw-r--r-- 1 dev dev {sum(map(len, lines)) + len(lines):6d} {path}"
            for path, lines in sorted(project.files.items())]
    return _call("list_files", path=project.folder) + _result("\n".join(rows))


def _numbered(lines: list[str], first: int = 1) -> str:
    return "\n".join(f"{number:4d}  {line}" for number, line in enumerate(lines, first))


def _read(project: _Project) -> str:
    return _call("read_file", path=project.path) + _result(_numbered(project.files[project.path]))


def _search(project: _Project) -> str:
    word = project.path.split("/")[-1][:-3]
    hits = [f"{path}:{number}:{line}" for path, lines in sorted(project.files.items())
            for number, line in enumerate(lines, 1) if word in line]
    return _call("search", pattern=word, path=project.folder) + _result("\n".join(hits[:8]) or "no matches")


def _edit(project: _Project) -> str:
    """Change one line of the open file: the call repeats the old line, the result repeats both as a diff."""
    lines, rng = project.files[project.path], project.rng
    number = rng.choice([i for i, line in enumerate(lines) if line.startswith("    ")])
    old = lines[number]
    new = old.replace(" = ", " = list(", 1) + ")" if " = " in old else old + "  # checked"
    lines[number] = new
    around = [f" {line}" for line in lines[max(0, number - 2):number]]
    after = [f" {line}" for line in lines[number + 1:number + 3]]
    diff = [f"--- a/{project.path}", f"+++ b/{project.path}", f"@@ -{number + 1},1 +{number + 1},1 @@",
            *around, f"-{old}", f"+{new}", *after]
    return _call("edit_file", path=project.path, old=old, new=new) + _result("\n".join(diff))


def _failure(project: _Project) -> str:
    rng, lines = project.rng, project.files[project.path]
    number = rng.choice([i for i, line in enumerate(lines) if line.startswith("    ")])
    kind, text = rng.choice(ERRORS)
    text = text.format(noun=rng.choice(NOUNS), a=rng.randint(0, 9), b=rng.randint(10, 99))
    trace = ("Traceback (most recent call last):\n"
             f"  File \"{project.path}\", line {number + 1}, in {rng.choice(VERBS)}_{rng.choice(NOUNS)}s\n"
             f"    {lines[number].strip()}\n{kind}: {text}")
    return _call("run_tests", path=project.folder) + _result(trace + f"\n1 failed, {rng.randint(2, 40)} passed")


def _retry(project: _Project) -> str:
    """A call that fails on a wrong path, and the same call again with the right one."""
    wrong = project.path.replace(project.folder + "/", "src/")
    return (_call("read_file", path=wrong) + _result(f"error: no such file: {wrong}")
            + f"The file is {project.path}, not {wrong}.\n" + _read(project))


def _quote(project: _Project) -> str:
    lines = [line for line in project.files[project.path] if line.strip()]
    start = project.rng.randrange(max(1, len(lines) - 3))
    return "The relevant lines are:\n" + "\n".join(f"> {line}" for line in lines[start:start + 3]) + "\n"


def transcript(seed: int) -> str:
    """One transcript, 1,000 to 6,000 characters. The same seed gives the same text."""
    rng = random.Random(seed)
    project = _Project(rng)
    verb, noun = rng.choice(VERBS), project.path.split("/")[-1][:-3]
    parts = [f"<task>\nMake {verb}_{noun}s in {project.path} work and keep the tests green.\n</task>\n", _listing(project)]
    steps = [_read, _search, _quote, _edit, _failure, _retry]
    for _ in range(rng.randint(4, 9)):
        parts.append(rng.choice(steps)(project))
    parts += [_edit(project), _call("run_tests", path=project.folder), _result(f"{rng.randint(3, 60)} passed"),
              f"<done>\n{verb}_{noun}s in {project.path} works, all tests pass.\n</done>\n"]
    return "".join(parts)
