"""A matrix of numbers in a .csv file, with or without ids, read strictly."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from capgrade.metrics.ranking import Array
from capgrade.schemas.errors import InputError

PLAIN = "np.savetxt(file, matrix, delimiter=',') writes one that is read"


def read_csv(path: Path, ids: Sequence[str], names: Sequence[str] | None) -> Array:
    """float32 [rows, columns] of numbers between commas. Rows end with a line feed, a carriage return, or both.

    A file whose first field is no number has ids: a first row of `names` and a first column of `ids`, both in their
    order (`DataFrame(matrix, ids, names).to_csv`). Without `names` a file has numbers alone.
    InputError that names the row: for a field that is no number, a row of another length, another id, and for an empty
    file.
    """
    rows = _rows(path)
    number, first = next(rows, (0, []))
    if not number:
        raise InputError("holds no numbers", file=path, remedy=PLAIN)
    labelled = names is not None and not _is_number(first[0])
    if labelled and names is not None:
        _require_ids(first[1:], names, path, number, "column")
    found = [] if labelled else [_numbers(first, path, number)]
    for number, fields in rows:
        if labelled and len(found) < len(ids):
            _require_ids(fields[:1], ids[len(found) : len(found) + 1], path, number, "row")
        found.append(_numbers(fields[1:] if labelled else fields, path, number))
        if len(found[-1]) != len(found[0]):
            problem = f"{len(found[-1])} numbers, in the first row {len(found[0])}"
            raise InputError(problem, file=path, row=number, remedy="give every row as many")
    if not found:
        raise InputError("a header without rows", file=path, remedy=PLAIN)
    return np.stack(found)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as file:  # any line end
            reader = csv.reader(file, skipinitialspace=True)
            yield from ((reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip())
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text ({error.reason})", file=path, remedy=PLAIN) from None
    except csv.Error as error:
        raise InputError(f"not a CSV file ({error})", file=path, remedy=PLAIN) from None


def _numbers(fields: list[str], path: Path, row: int) -> Array:
    try:
        return np.array(fields, np.float32)
    except ValueError:
        at, field = next((k, f) for k, f in enumerate(fields, 1) if not _is_number(f))
        raise InputError(f"field {at} is {field.strip()!r}, not a number", file=path, row=row, remedy=PLAIN) from None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _require_ids(given: Sequence[str], ids: Sequence[str], path: Path, row: int, what: str) -> None:
    given, ids = ([name.strip() for name in some] for some in (given, ids))
    if given == ids:
        return
    pairs = zip(given, ids, strict=False)
    found = next((f"'{a}' where '{b}' is expected" for a, b in pairs if a != b), f"{len(given)}, not {len(ids)}")
    remedy = "write images x captions with the ids of the captions table in its order, or numbers alone"
    raise InputError(f"ids of the {what}s: {found}", file=path, row=row, remedy=remedy)
