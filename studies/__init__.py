"""Studies behind pages of docs, and the training of the small detector: run from a checkout, not in
the wheel."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from capgrade.schemas.files import write_text
from capgrade.schemas.output import refuse_file, starting


def arguments(doc: str | None, head: str, *paths: str, **options: Any) -> argparse.Namespace:
    """Of a study: `paths` that it needs and `options` of its own. An --out that holds something
    else than a table with this `head` is refused."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in paths:
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name, more in options.items():
        parser.add_argument(f"--{name}", **more)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out:
        refuse_file(given.out, "table of a study", starting(head.encode()))
    return given


def write_rows(rows: Iterable[str], out: Path | None) -> None:
    """The lines of a Markdown table: printed one by one, and written to `out` once all are
    there."""
    lines = []
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    if out:
        write_text(out, "\n".join(lines) + "\n")
