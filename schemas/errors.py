"""The one error that users see."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path


def first_of(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class InputError(Exception):
    """Something the user gave is wrong: what, in which file and row, and what to do about it.

    `capgrade` prints it as one line and exits with status 2; nothing already computed is lost.
    `row` is what an editor shows: lines of a text file count from 1 (a header is row 1); entries of
    a JSON list or of an Arrow table are named by their index from 0, as a string such as
    "annotations[17]".

    >>> str(InputError("no captions", file="dogs.csv", remedy="write some"))
    'dogs.csv: no captions -> write some'
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.file, self.row, self.remedy = problem, file, row, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = "" if self.file is None else str(self.file)
        if self.row is not None:
            where += f" row {self.row}" if where else f"row {self.row}"
        text = f"{where}: {self.problem}" if where else self.problem
        return f"{text} -> {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple:
        """With every field, so that an error raised in a worker process arrives whole."""
        return partial(
            InputError, self.problem, file=self.file, row=self.row, remedy=self.remedy
        ), ()
