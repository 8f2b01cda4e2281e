"""`capgrade verify`: whether folders are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.options import AsJson, say

app = typer.Typer()


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a stage, or a folder that holds several.")],
    as_json: AsJson = False,
) -> None:
    """Check that everything below a folder is whole: manifests, sizes, checksums. Exit status 2 if it is not."""
    from capgrade.pipelines.verify import verify as check

    report = check(folder)
    lines = [f"ok: {found.folder}: {found.kind}, {found.files} files, {found.bytes:,} bytes" for found in report.usable]
    say(report.json(), as_json, "\n".join(lines)) if as_json or lines else None
    for problem in report.problems:
        typer.secho(f"error: {problem}", fg="red", err=True)
    if report.problems:
        raise typer.Exit(2)
