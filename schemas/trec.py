"""Lines of TREC files: their fields, ids that are single words, and the file."""

from collections.abc import Iterable
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.out_files import refuse_file


def fields_of(line: str) -> list[str]:
    """The fields of a line, as trec_eval parts them: at white space of ASCII. Ids may hold U+202F
    or U+3000."""
    return [field.decode() for field in line.encode().split()]


def refuse_spaces(names: Iterable[str], what: str) -> None:
    """InputError for an id that is no single word; `what` is what it is of."""
    for name in names:
        if len(fields_of(name)) != 1:
            raise InputError(
                f"{what} {name!r} is no word", remedy="TREC files have ids without spaces"
            )


def write_trec(path: Path, lines: list[str], force: bool) -> None:
    """Write the lines. InputError where a file is, but with `force`."""
    refuse_file(path, force)
    with atomic(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
