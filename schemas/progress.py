"""Progress of long work: a bar on a terminal, and elsewhere, as in logs, a line now and then."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.text import Text

from capgrade.schemas.say import first_process, spoken_number

FIRST = 5.0  # seconds to the first line
SHORTEST_WAIT = 10.0  # seconds between lines
LONGEST_WAIT = 60.0  # seconds between lines of a long run, at most
# Seconds that speed is measured over: of a bar, and of lines, whose steps may be slow.
PERIOD = (30.0, 600.0)
_T = TypeVar("_T")
Advance = Callable[..., None]  # called when so many steps are done, 1 where no number is given


class _LineColumn(ProgressColumn):
    """The text of `line`, beside the bar."""

    def __init__(self, unit: str | None) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text(line(task, self.unit))


@contextmanager
def progress(what: str, total: int | None, unit: str | None = None) -> Iterator[Advance]:
    """Show how far work is: yields the function that advances the count.

    It is a bar on standard error with count, elapsed time and time left, with `unit` also the speed
    per second. Where there is no terminal it is a line with the same, after five seconds and then
    every ten seconds or more. A
    total of None is not known before the end. Of several processes the first one shows it.
    """
    if not first_process():
        yield lambda steps=1: None
        return
    console = Console(stderr=True)
    lines, stop = not console.is_terminal, threading.Event()
    columns = BarColumn(), _LineColumn(unit)
    bar = Progress(*columns, console=console, disable=lines, speed_estimate_period=PERIOD[lines])
    # One that is not shown is not begun either: at its end rich 13 would print an empty line.
    with nullcontext() if lines else bar:
        number = bar.add_task(what, total=total)
        task = bar.tasks[0]

        def print_lines() -> None:
            """The clock runs whether or not steps are counted: work that stands still shows."""
            while not stop.wait(pause(task.elapsed or 0.0)):
                print(line(task, unit), file=sys.stderr, flush=True)

        printing = threading.Thread(target=print_lines, daemon=True)
        if lines:
            printing.start()
        try:
            yield lambda steps=1: bar.update(number, advance=steps, counted_at=task.elapsed)
        finally:
            stop.set()
            if lines:
                printing.join()


def line(task: Task, unit: str | None = None) -> str:
    """How much is done, after how long, how fast (with a unit), and how long the rest takes: or,
    where work has stood still for longer than that, for how long."""
    of_all = "" if task.total is None else f" of {task.total:,.0f}"
    text = (
        f"{task.description}: {task.completed:,.0f}{of_all}{f' {unit}' if unit else ''} after"
        f" {spoken_time(task.elapsed or 0)}"
    )
    if unit and task.speed:
        text += f", {spoken_number(task.speed)} per second"
    left = task.time_remaining
    if left is None or task.finished:
        return text
    still = (task.elapsed or 0.0) - task.fields.get("counted_at", 0.0)
    return f"{text}, " + (
        f"about {spoken_time(left)} left"
        if still <= left
        else f"none in the last {spoken_time(still)}"
    )


def spoken_time(seconds: float) -> str:
    """A duration: 250 s, 12 min, 3.1 h."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def pause(seconds: float) -> float:
    """Seconds to the next line of a run of so many seconds: five at first, then ten, a tenth of the
    run, or a minute."""
    return FIRST if seconds < FIRST else min(max(SHORTEST_WAIT, seconds / 10), LONGEST_WAIT)


class _Work:
    """A piece of work that counts as `steps`, and how many of them are left to count."""

    def __init__(self, steps: float, advance: Callable[[float], object]) -> None:
        self.steps, self.left, self.advance = steps, steps, advance

    def count(self, steps: float) -> None:
        """Count so many steps, but never more than are left."""
        steps = min(steps, self.left)
        self.left -= steps
        self.advance(steps)


_WORK: ContextVar[_Work | None] = ContextVar("_WORK", default=None)


@contextmanager
def counted_work(steps: float, advance: Advance) -> Iterator[None]:
    """Work that counts as so many steps: parts of it where `part_of_work` and `count_part` say how
    far it is, the rest at its end."""
    work = _Work(steps, advance)
    token = _WORK.set(work)
    try:
        yield
        work.count(work.left)
    finally:
        _WORK.reset(token)


@contextmanager
def part_of_work(part: float, whole: float) -> Iterator[None]:
    """One of the parts of the work that is under way, which may have parts of its own. Where
    nothing is counted it does nothing."""
    work = _WORK.get()
    if work is None:
        yield
        return
    with counted_work(work.steps * part / max(whole, 1), work.count):
        yield


def count_part(part: float, whole: float) -> None:
    """Count a part of the work that is under way as done."""
    if work := _WORK.get():
        work.count(work.steps * part / max(whole, 1))


def counted(items: Iterable[_T], advance: Advance, size: Callable[[_T], int]) -> Iterator[_T]:
    """The same items, each counted by its size once it has been used."""
    for item in items:
        yield item
        advance(size(item))
