"""The one error that users see."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

_FEW = 8  # names that are all printed, also beside a near one
_MANY = 40  # names that are printed where none is near


def first_names(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest(name: object, names: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Those of the names that are spelt nearest to an unknown one, the nearest first; perhaps none.

    Names that begin with it come first. Capitals do not count, nor does `-` for `_`. `cutoff` is
    how much has to be equal, 0..1.

    >>> nearest("cidre", ["bleu", "cider", "cider_plain"])
    ['cider']
    """
    by_spelling: dict[str, list[str]] = {}
    for known in names:
        by_spelling.setdefault(_plain(known), []).append(known)
    plain = _plain(name)
    begun = [one for one in by_spelling if plain and one.startswith(plain)]
    spellings = sorted(begun, key=len) + get_close_matches(plain, by_spelling, most, cutoff)
    return [known for one in dict.fromkeys(spellings) for known in by_spelling[one]][:most]


def _plain(name: object) -> str:
    return str(name).strip().casefold().replace("-", "_")


def choose_from(name: object, names: Iterable[str], command: str | None = None) -> str:
    """The remedy for an unknown name: the nearest ones, and all where they are few.

    `command` prints all of them.

    >>> choose_from("tset", ["train", "val", "test"])
    'near it: test; choose from: train, val, test'
    """
    known = [*dict.fromkeys(names)]
    near = nearest(name, known)
    parts = [f"near it: {', '.join(near)}"] if near else []
    if len(known) <= _FEW or not near:
        parts.append(f"choose from: {first_names(known, _MANY) or 'none'}")
    elif command:
        parts.append(f"all: {command}")
    return "; ".join(parts)


class InputError(Exception):
    """Something the user gave is wrong: what, in which file and row, and what to do about it.

    `capgrade` prints it as one line and exits with status 2; nothing already computed is lost.
    `row` is what an editor shows: lines of a text file count from 1 (a header is row 1); entries of
    a JSON list or of an Arrow table are named by their index from 0, as a string such as
    "annotations[17]". `keys` are arguments that the remedy names in braces: as Python writes them
    here, as options where a command prints the error.

    >>> error = InputError("several splits", file="dogs", remedy="give {split}", keys=["split"])
    >>> str(error), error.at_shell("--{}".format)
    ('dogs: several splits -> give split', 'dogs: several splits -> give --split')
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | str | None = None,
        remedy: str | None = None,
        keys: Sequence[str] = (),
    ) -> None:
        self.problem, self.file, self.row = problem, file, row
        self._remedy, self.keys = remedy, keys
        super().__init__(str(self))

    @property
    def remedy(self) -> str | None:
        """What to do about it in Python."""
        return self._named(_in_python)

    def _named(self, write: Callable[[str], str]) -> str | None:
        text = self._remedy
        for key in self.keys:
            if text and (mark := f"{{{key}}}") in text:
                text = text.replace(mark, write(key))
        return text

    def __str__(self) -> str:
        return self._line(self.remedy)

    def at_shell(self, option_of: Callable[[str], str]) -> str:
        """The line for who typed a command; `option_of` an argument is how a command takes it."""
        return self._line(self._named(option_of))

    def _line(self, remedy: str | None) -> str:
        where = "" if self.file is None else str(self.file)
        if self.row is not None:
            where += f" row {self.row}" if where else f"row {self.row}"
        text = f"{where}: {self.problem}" if where else self.problem
        return f"{text} -> {remedy}" if remedy else text

    def __reduce__(self) -> tuple:
        """With every field, so that an error raised in a worker process arrives whole."""
        return partial(
            InputError,
            self.problem,
            file=self.file,
            row=self.row,
            remedy=self._remedy,
            keys=self.keys,
        ), ()

    def of(self, file: str | Path | None) -> "InputError":
        """The same of another file."""
        return InputError(
            self.problem, file=file, row=self.row, remedy=self._remedy, keys=self.keys
        )


def _in_python(key: str) -> str:
    """parameters['cider']['sigma'] of parameters.cider.sigma."""
    name, *inner = key.split(".")
    return name + "".join(f"[{part!r}]" for part in inner)


def check_choice(what: str, value: str, known: Sequence[str]) -> str:
    """A named form: unknown ones list what there is."""
    if value not in known:
        raise InputError(f"{what} {value!r} is not known", remedy=choose_from(value, known))
    return value
