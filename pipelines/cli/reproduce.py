"""The command that reproduces a table of a paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capgrade.pipelines.cli.needed import require_all
from capgrade.pipelines.cli.options import AsJson, ParamsFile, say
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.pipelines.reproduce.recipe import Recipe

app = typer.Typer()


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A recipe, such as sam-3-f30k; see --list.")] = None,
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    regions: Annotated[Path | None, typer.Option(help="Folder that `capgrade regions` wrote.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs, labels and tables; recipes may share it.")] = None,
    judgements: Annotated[Path | None, typer.Option(help="People's judgements, for tables of correlations.")] = None,
    split: Annotated[str, typer.Option(help="Split that rows are scored on.")] = "test",
    row: Annotated[list[str] | None, typer.Option(help="This row alone; repeat for several. Default: all.")] = None,
    small: Annotated[bool, typer.Option(help="Tiny models, one epoch: whether it all runs with these files.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="All recipes, what they need, what was verified.")] = False,
    params: ParamsFile = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="train.KEY=VALUE of all runs, or runs.NAME.KEY=VALUE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A table of a paper: trains what it needs, goes on where it stopped, prints our numbers beside the published."""
    from capgrade.pipelines.reproduce.recipe import listing, load_recipe

    if listed:
        found = listing()
        say(found, as_json, "\n".join(_listed(key, one) for key, one in found.items()))
        return
    if name is not None:
        load_recipe(name)  # an unknown one is said before what else is missing
    if name is None or captions is None or out is None:
        missing = [text for text, given in (("NAME", name), ("--captions", captions), ("--out", out)) if given is None]
        raise InputError(f"no {' and no '.join(missing)}", remedy="see capgrade reproduce --help, or --list")
    _require(load_recipe(name), params, sets or [], small)
    from capgrade.pipelines.reproduce.stage import reproduce as stage
    from capgrade.pipelines.reproduce.table import markdown

    table = stage(
        name, captions, regions, out, judgements=judgements, split=split, rows=row or [], params=params,
        sets=sets or [], small=small, say=lambda text: typer.echo(text, err=True),
    )  # fmt: skip
    typer.echo(json.dumps(table, indent=2) if as_json else f"{markdown(table)}\n-> {out / name}")


def _require(recipe: Recipe, params: Path | None, sets: list[str], small: bool) -> None:
    from capgrade.pipelines.reproduce.recipe import settings_of

    settings = settings_of(recipe, params, sets, small)
    measures = {*recipe.relevance, *(run.measure for run in settings.runs.values())}
    measures |= {row.measure for row in recipe.rows if row.measure}
    require_all("torch", measures=measures, params=settings.measures)


def _listed(name: str, one: dict) -> str:
    line = (
        f"{name:22}{one['paper']}, table {one['table']}; needs {', '.join(one['needs'])}; verified: {one['verified']}"
    )
    return f"{line}; {one['network']}" if one["network"] else line
