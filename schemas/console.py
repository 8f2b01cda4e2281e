"""What tables are printed on."""

from __future__ import annotations

import os

from rich.console import Console

WIDTH = 160  # in a file or a pipe, which have no width: no cell is cut


def console() -> Console:
    """A terminal has its own width, and COLUMNS says another."""
    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)
