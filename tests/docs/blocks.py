"""What README.md and docs/*.md show as something to type: Python, YAML, and lines for a shell."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markdown_it import MarkdownIt

NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)")
MENTION = re.compile(r"capgrade .*--")
PROGRAM = re.compile(
    r"^(?:\$ )?(?:\.venv/bin/)?(?=(capgrade|python|make|mkdir|dvc|git|printf|sha256sum|torchrun) )"
)


@dataclass(frozen=True)
class Example:
    """`kind` is python, yaml, command, or mention: a command in a sentence, often without all that
    it needs. `said` is what the page shows as a command's answer, where it shows one."""

    page: str
    row: int
    kind: str
    text: str
    said: str = ""


def differs(said: str, printed: str, within: float = 0.02) -> str | None:
    """The first line that a page shows and a command does not print, in the page's order; None
    where there is none.

    Words are compared as they stand; `...` stands for the rest of a line. Numbers may differ by
    `within` of their value or by one in the last place that is shown, as embeddings do between
    processors. Frames of tables and the width of columns do not count.
    """
    lines = [line for line in map(_words, printed.splitlines()) if line]
    for shown in filter(None, map(_words, said.splitlines())):
        at = next((k for k, line in enumerate(lines) if _alike(shown, line, within)), None)
        if at is None:
            return " ".join(shown)
        del lines[: at + 1]
    return None


def _words(line: str) -> list[str]:
    return re.sub("[\u2500-\u257f]", " ", line).split()


def _alike(shown: list[str], printed: list[str], within: float) -> bool:
    if shown[-1] == "...":
        shown, printed = shown[:-1], printed[: len(shown) - 1]
    return len(shown) == len(printed) and all(map(partial(_same, within=within), shown, printed))


def _same(shown: str, printed: str, within: float) -> bool:
    ours, theirs = NUMBER.split(shown), NUMBER.split(printed)
    if len(ours) != len(theirs) or ours[::2] != theirs[::2]:
        return False
    return all(
        abs(float(a.replace(",", "")) - float(b.replace(",", "")))
        <= max(
            within * abs(float(a.replace(",", ""))),
            1.01 * 10.0 ** -len(a.partition(".")[2]) if "." in a else 0,
        )
        for a, b in zip(ours[1::2], theirs[1::2], strict=True)
    )


def examples(path: Path) -> list[Example]:
    """In the order of the page."""
    found = []
    for block in MarkdownIt().parse(path.read_text(encoding="utf-8")):
        row = block.map[0] + 1 if block.map else 0
        if block.type == "fence" and block.info in ("python", "yaml"):
            found.append(Example(path.name, row + 1, block.info, block.content))
        elif block.type in ("fence", "code_block"):
            found += _commands(path.name, row + (block.type == "fence"), block.content)
        for part in block.children or ():
            if part.type == "code_inline" and MENTION.match(part.content):
                found.append(Example(path.name, row, "mention", part.content))
    return found


def _commands(page: str, row: int, body: str) -> Iterator[Example]:
    """A line of a block that starts with a program's name, what it continues with, and what stands
    below it."""
    lines = [(row + k, line) for k, line in enumerate(body.splitlines())]
    while lines:
        at, line = lines.pop(0)
        while line.endswith("\\") and lines:
            line = f"{line[:-1].rstrip()} {lines.pop(0)[1].strip()}"
        if not PROGRAM.match(line):
            continue
        said = []
        while (
            line.startswith("$ ")
            and lines
            and lines[0][1].strip()
            and not PROGRAM.match(lines[0][1])
        ):
            said.append(lines.pop(0)[1])
        yield Example(
            page,
            at,
            "command",
            re.sub(r"\s+# .*$", "", PROGRAM.sub("", line)).strip(),
            "\n".join(said),
        )
