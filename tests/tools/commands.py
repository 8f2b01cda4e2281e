"""Every command and its options; the command in a process of its own."""

import sys
from collections.abc import Iterator

import click
import typer

from capgrade.pipelines.cli import app

# Python ignores Ctrl-C where the shell that started it does, as in the background.
MAIN = (
    "import signal; signal.signal(2, signal.default_int_handler); from capgrade.pipelines.cli"
    " import main; main()"
)
CAPGRADE = [sys.executable, "-c", MAIN]


def commands(hidden: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Each command with its arguments and options, those too that help does not show if `hidden`; a
    group counts where it does something by itself."""
    yield from _below(typer.main.get_command(app), "", hidden)


def _below(command: click.Command, name: str, hidden: bool) -> Iterator[tuple[str, list[str]]]:
    parts = getattr(command, "commands", {})
    if name and (not parts or getattr(command, "invoke_without_command", False)):
        yield (
            name,
            [
                max(one.opts, key=len)
                for one in command.params
                if hidden or not getattr(one, "hidden", False)
            ],
        )
    for part, found in parts.items():
        if not found.hidden:
            yield from _below(found, f"{name} {part}".strip(), hidden)
