"""Every command and its options, as a table: `python -m tests.tools.commands`."""

import sys
from collections.abc import Iterator

import click
import typer

from capgrade.pipelines.cli import app

# The command in a process of its own. Python ignores Ctrl-C where the shell that started it does, as in the background.
MAIN = "import signal; signal.signal(2, signal.default_int_handler); from capgrade.pipelines.cli import main; main()"
CAPGRADE = [sys.executable, "-c", MAIN]
COMMON = {"--params", "--set", "--json"}  # the same in every command that takes them


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command with its arguments and options; a group counts where it does something by itself."""
    yield from _below(typer.main.get_command(app), "")


def _below(command: click.Command, name: str) -> Iterator[tuple[str, list[str]]]:
    parts = getattr(command, "commands", {})
    if name and (not parts or getattr(command, "invoke_without_command", False)):
        yield name, [max(one.opts, key=len) for one in command.params if not getattr(one, "hidden", False)]
    for part, found in parts.items():
        if not found.hidden:
            yield from _below(found, f"{name} {part}".strip())


def counts() -> tuple[int, int, int]:
    """How many commands, how many options in all, and how many when those of `COMMON` count once."""
    found = [[one for one in options if one.startswith("-")] for _, options in commands()]
    own = sum(len(set(options) - COMMON) for options in found)
    return len(found), sum(map(len, found)), own + len(COMMON)


if __name__ == "__main__":
    for name, options in commands():
        print(f"{name:20}{len(options):3}  {' '.join(options)}")
    print("{} commands, {} options; {} with the common ones counted once".format(*counts()))
