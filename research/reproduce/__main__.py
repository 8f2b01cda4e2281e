"""`python -m research.reproduce`: a table of a paper."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    FILE,
    FOLDER,
    NAME,
    CommonOptions,
    OptionalCaptions,
    OptionalRegions,
    require_all,
)
from capgrade.schemas.errors import InputError
from research.command import run_command
from research.reproduce.recipe import load_recipe, settings_of


def reproduce(
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="A recipe of `python -m research.recipes`."),
    ] = None,
    captions: OptionalCaptions = None,
    regions: OptionalRegions = None,
    out: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder for runs, labels and tables; recipes may share it."),
    ] = None,
    judgements: Annotated[
        Path | None, Option(metavar=FILE, help="People's judgements, for tables of correlations.")
    ] = None,
    split: Annotated[str, Option(metavar="SPLIT", help="Split that rows are scored on.")] = "test",
    row: Annotated[
        list[str] | None,
        Option(metavar=NAME, help="This row alone; repeat for several. Default: all."),
    ] = None,
    small: Annotated[
        bool,
        Option("--small", help="Tiny models, one epoch: whether it all runs with these files."),
    ] = False,
    common: CommonOptions,
) -> None:
    """A table of a paper: trains what it needs, goes on where it stopped, prints our numbers beside
    the published.

    `--set` takes train.KEY=VALUE of all runs, or presets.RUN.KEY=VALUE.
    """
    # An unknown recipe is an error of its own, raised before other options are missed.
    recipe = load_recipe(name) if name is not None else None
    if name is None or recipe is None or captions is None or out is None:
        missing = [
            text
            for text, value in (("RECIPE", name), ("--captions", captions), ("--out", out))
            if value is None
        ]
        raise InputError(
            f"no {' and no '.join(missing)}",
            remedy="see python -m research.reproduce --help, and python -m research.recipes",
        )
    settings = settings_of(recipe, common.params, common.sets or [], small)
    measures = {*recipe.relevance, *(run.measure for run in settings.runs.values())}
    measures |= {entry.measure for entry in recipe.rows if entry.measure}
    require_all("torch", measures=measures, params=settings.measures)
    from research.reproduce.stage import reproduce as stage
    from research.reproduce.table import table_markdown

    table = stage(
        name,
        captions,
        regions,
        out,
        judgements=judgements,
        split=split,
        rows=row or [],
        params=common.params,
        sets=common.sets or [],
        small=small,
    )
    typer.echo(
        json.dumps(table, indent=2)
        if common.as_json
        else f"{table_markdown(table)}\n-> {out / name}"
    )


def main() -> None:
    """Reproduce a table, as the command line asks."""
    example = "sam-3-f30k --captions data/captions --regions data/regions --out tables"
    run_command("research.reproduce", reproduce, example)


if __name__ == "__main__":
    main()
