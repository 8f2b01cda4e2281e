"""Tables on the terminal."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDTH = 160  # in a file or a pipe, which have no width: no cell is cut


def console() -> Console:
    """Rich's console, as wide as the terminal or as COLUMNS says; elsewhere no cell is cut."""
    own = Console()
    return own if own.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDTH)


def print_table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    on: Console | None = None,
    texts: Sequence[int] = (0,),
    **more: Any,
) -> None:
    """Print rows of plain text: columns numbered in `texts` to the left, numbers to the right; `on`
    a console, or the terminal's.

    `more` is rich's, of its Table. Numbers stay whole where the terminal is too narrow for the
    table.
    """
    table, rows = Table(title=escape(title), **more), [*rows]
    for k, name in enumerate(columns):
        width = max((len(row[k]) for row in rows), default=0)
        least = min(width, 12) if k in texts else width
        table.add_column(
            name, justify="left" if k in texts else "right", overflow="fold", min_width=least
        )
    for row in rows:
        table.add_row(*map(escape, row))
    (on or console()).print(table, crop=False)
