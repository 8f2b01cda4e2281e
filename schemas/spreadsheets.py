"""Cells of the CSV files that people open in a spreadsheet, which would carry out a text that begins as a formula.

Captions and ids come from anybody: `=HYPERLINK(...)` is one. OWASP's list of first characters, "CSV Injection".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MARK = "'"  # a spreadsheet takes what follows as text
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def cells(row: Sequence[Any]) -> list[Any]:
    """A row whose texts are no formulas: one that begins with = + - @, tab or CR gets a MARK; numbers stay."""
    return [MARK + cell if isinstance(cell, str) and _begins_formula(cell) else cell for cell in row]


def told(cell: str) -> str:
    """The text that `cells` wrote as this."""
    return cell[1:] if cell.startswith(MARK) and _FORMULA.match(cell) else cell


def _begins_formula(cell: str) -> bool:
    return _FORMULA.match(cell) is not None and not _NUMBER.fullmatch(cell)
