"""What sources read of text files: the path that was given, and JSON; rows are read by `capgrade.schemas.lines`."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import decoded, open_bytes, read_lines
from capgrade.schemas.params import CaptionsParams

__all__ = ["parse_json", "read_json", "read_lines", "source_path"]


def source_path(params: CaptionsParams) -> Path:
    """The file or folder that holds the captions. InputError when none was given."""
    if params.input is None:
        raise InputError(f"source {params.source} needs an input", remedy="name it with --input")
    return Path(params.input)


def read_json(path: Path) -> Any:
    """A whole JSON file. InputError for a missing file, bytes that are not UTF-8, or malformed JSON."""
    with open_bytes(path) as f:
        text = decoded(f.read().removeprefix(codecs.BOM_UTF8), path, first_row=1)
    return parse_json(text, path, first_row=1)


def parse_json(text: str, path: Path, *, first_row: int) -> Any:
    """JSON that starts in row `first_row` of a file. InputError with row and column when malformed."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON at column {error.colno}: {error.msg}"
        remedy = "correct this row; a file that ends early has to be downloaded or written again"
        raise InputError(problem, file=path, row=first_row + error.lineno - 1, remedy=remedy) from None
    except (RecursionError, ValueError):  # brackets without end; a number of thousands of digits
        problem = "not valid JSON: nested too deep, or a number of more digits than any id has"
        raise InputError(problem, file=path, row=first_row, remedy="write the file again") from None
