"""The studies behind pages of docs, and the training of the small detector. They run from a
checkout and are not in the wheel."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from capgrade.schemas.files import write_text
from capgrade.schemas.out_files import refuse_file


def arguments(doc: str | None, *paths: str, **options: Any) -> argparse.Namespace:
    """The arguments of a study: `paths` that it needs, and its own `options`. InputError where a
    file is at --out, but with --force."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in paths:
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name, option in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--force", action="store_true", help="Write over a file that is there.")
    values = parser.parse_args()
    if values.out:
        refuse_file(values.out, values.force)
    return values


def write_rows(rows: Iterable[str], out: Path | None) -> None:
    """Print the lines of a Markdown table one by one, and write them to `out` after the last."""
    lines = []
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    if out:
        write_text(out, "\n".join(lines) + "\n")
