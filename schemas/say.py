"""What the user of a run has to know: warnings of our category, and lines on standard error."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Timer
from typing import TextIO

_printed: set[str] = set()


class CapgradeWarning(UserWarning):
    """A result that may mislead, or an input that is used otherwise than it seems.

    >>> import warnings
    >>> import capgrade
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", capgrade.CapgradeWarning)  # each is an error here
    """


def warn(message: str) -> None:
    """A CapgradeWarning at the line, outside of this package, that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "capgrade":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CapgradeWarning, stacklevel=level)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """`warnings.showwarning` of the command line: a line for each of ours, without the place in the
    code."""
    shown = f"warning: {message}\n"
    if not issubclass(category, CapgradeWarning):
        shown = warnings.formatwarning(message, category, filename, lineno, line)
    print(shown, end="", file=file or sys.stderr, flush=True)


def tell(message: str) -> None:
    """Print what a first run waits for, once in a process; a worker process prints nothing."""
    if parent_process() is None and message not in _printed:
        _printed.add(message)
        print(message, file=sys.stderr, flush=True)


def spoken_number(value: float) -> str:
    """Three figures or a whole number, and no power of ten: 2.5, 48.1, 1,900."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@contextmanager
def if_silent(message: str, seconds: float = 4.0) -> Iterator[None]:
    """Tell this where the block has lasted so long, and nothing else was printed by `tell`; of the
    processes of one launcher the first does."""
    if not first_process():
        yield
        return
    before = len(_printed)
    timer = Timer(seconds, lambda: tell(message) if len(_printed) == before else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_process() -> bool:
    """Whether this is the first of the processes that a launcher started, or the only one."""
    return os.environ.get("RANK", "0") in ("", "0")
