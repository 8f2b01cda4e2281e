"""Progress of long work: a bar on a terminal; elsewhere, as in logs and pipes, a line now and then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

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

from capgrade.schemas.heartbeat import heartbeat

_T = TypeVar("_T")


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
    """A bar on standard error with count, elapsed time and time left, with `unit` also the speed per second; where
    there is no terminal, the same as a line every ten seconds or more. Yields the function that advances it. A total of
    None is not known before the end. Of several processes of a training the first one shows it."""
    if os.environ.get("RANK", "0") != "0":  # as torchrun numbers them
        yield lambda steps=1: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        with heartbeat(what, total, unit) as count:
            yield count.advance
        return
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    if unit:
        columns = (*columns, SpeedColumn(unit))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)


def counted(items: Iterable[_T], advance: Advance, size: Callable[[_T], int]) -> Iterator[_T]:
    """The same items, each counted by its size once it has been used."""
    for item in items:
        yield item
        advance(size(item))
