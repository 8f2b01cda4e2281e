"""What README.md and docs/*.md show as something to type: Python, YAML, and lines for a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^    .*\n)+", flags=re.MULTILINE)
INLINE = re.compile(r"`(capgrade [^`]*?--[^`]*)`")
PROGRAM = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(?=(capgrade|python|make|dvc|git|printf|sha256sum|torchrun) )")


@dataclass(frozen=True)
class Example:
    """`kind` is python, yaml, command, or mention: a command in a sentence, often without all that it needs. `said` is
    what the page shows as a command's answer, where it shows one."""

    page: str
    row: int
    kind: str
    text: str
    said: str = ""


def examples(path: Path) -> list[Example]:
    """In the order of the page."""
    page = path.read_text(encoding="utf-8")
    found, rest = [], page
    for block in FENCE.finditer(page):
        language, body, row = block[1], block[2], _row(page, block.start(2))
        if language in ("python", "yaml"):
            found.append(Example(path.name, row, language, body))
        else:
            found += _commands(path.name, row, body)
        rest = rest.replace(block[0], "\n" * block[0].count("\n"), 1)
    for block in INDENTED.finditer(rest):
        found += _commands(path.name, _row(rest, block.start()), re.sub(r"(?m)^    ", "", block[0]))
    prose = INDENTED.sub(lambda block: "\n" * block[0].count("\n"), rest)
    for inline in INLINE.finditer(prose):
        found.append(Example(path.name, _row(prose, inline.start()), "mention", " ".join(inline[1].split())))
    return sorted(found, key=lambda example: example.row)


def _row(page: str, at: int) -> int:
    return page.count("\n", 0, at) + 1


def _commands(page: str, row: int, body: str) -> Iterator[Example]:
    """A line of a block that starts with a program's name, what it continues with, and what stands below it."""
    lines = [(row + k, line) for k, line in enumerate(body.splitlines())]
    while lines:
        at, line = lines.pop(0)
        while line.endswith("\\") and lines:
            line = f"{line[:-1].rstrip()} {lines.pop(0)[1].strip()}"
        if not PROGRAM.match(line):
            continue
        said = []
        while line.startswith("$ ") and lines and lines[0][1].strip() and not PROGRAM.match(lines[0][1]):
            said.append(lines.pop(0)[1])
        yield Example(page, at, "command", re.sub(r"\s+# .*$", "", PROGRAM.sub("", line)).strip(), "\n".join(said))
