"""Progress bars for long work: on a terminal only, so that logs and pipes stay clean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Advance(Protocol):
    """What a stage calls when so many steps are done."""

    def __call__(self, steps: int = 1) -> None: ...


class SpeedColumn(ProgressColumn):
    """Steps per second over the last half minute."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g} {self.unit}/s")


@contextmanager
def progress(what: str, total: int | None, unit: str | None = None) -> Iterator[Advance]:
    """A bar on standard error with count, elapsed time and time left, with `unit` also the speed per second. Yields
    the function that advances it. A total of None is not known before the end."""
    console = Console(stderr=True)
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    if unit:
        columns = (*columns, SpeedColumn(unit))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)
