"""Rows of text as a table in Markdown, in LaTeX, and in columns of plain text. `console` prints
them on a terminal."""

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Literal, TypeAlias

Style: TypeAlias = Literal["markdown", "latex"]
Row: TypeAlias = Sequence[str]
ENDINGS: dict[str, Style] = {".md": "markdown", ".tex": "latex"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "_%&#${}"},
}


class Bold(str):
    """A cell in bold."""


def markdown(header: Row, rows: Sequence[Row], left: int = 1) -> str:
    """A table, its first columns at the left."""
    lines = [header, ["---"] * left + ["---:"] * (len(header) - left), *rows]

    def written(cell: str) -> str:
        text = cell.replace("|", r"\|")
        return f"**{text}**" if isinstance(cell, Bold) else text

    return "".join(f"| {' | '.join(map(written, line))} |\n" for line in lines)


def latex(
    header: Row, rows: Sequence[Row], left: int = 1, groups: Sequence[tuple[str, int]] = ()
) -> str:
    """The same as a tabular with rules of booktabs. `groups` are heads over so many columns each,
    the first columns included; one without a text has no rule."""
    kinds = "l" * left + "r" * (len(header) - left)
    top = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", *_grouped(groups), _line(header)]
    return "\n".join([*top, r"\midrule", *map(_line, rows), r"\bottomrule", r"\end{tabular}", ""])


def _line(cells: Row) -> str:
    return " & ".join(_cell(cell) for cell in cells) + r" \\"


def _cell(cell: str) -> str:
    text = re.sub("|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found[0]], cell)
    return rf"\textbf{{{text}}}" if isinstance(cell, Bold) else text


def _grouped(groups: Sequence[tuple[str, int]]) -> list[str]:
    if not groups:
        return []
    heads = [
        rf"\multicolumn{{{size}}}{{c}}{{{_cell(text)}}}" if text else " & ".join([""] * size)
        for text, size in groups
    ]
    rules, first = [], 1
    for text, size in groups:
        if text:
            rules.append(rf"\cmidrule(lr){{{first}-{first + size - 1}}}")
        first += size
    return [" & ".join(heads) + r" \\", " ".join(rules)]


WRITERS: dict[Style, Callable[..., str]] = {"markdown": markdown, "latex": latex}


def plain(rows: Sequence[Row]) -> str:
    """Cells in columns, two spaces apart."""
    columns = list(zip_longest(*rows, fillvalue=""))
    widths = [max(map(len, column)) for column in columns]
    lines = (zip(row, widths, strict=True) for row in zip(*columns, strict=True))
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in line).rstrip() for line in lines
    )
