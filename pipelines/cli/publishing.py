"""The command that publishes: a dataset folder, its upload, and the check of either."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capgrade.pipelines.cli.needed import parts_of, require_all
from capgrade.pipelines.cli.options import AsJson, ParamsFile, Sets, agreement_of, load, say, with_given
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.schemas.params import MeasuresParams, PublishParams

app = typer.Typer()


@app.command()
def publish(
    captions: Annotated[Path | None, typer.Option(help="Folder that `capgrade captions` wrote.")] = None,
    shards: Annotated[
        list[Path] | None, typer.Option(help="Folder that `capgrade shards` wrote; one per split.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; with --push alone, the one to upload.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the dataset. Default: capgrade-scenes.")] = None,
    licence: Annotated[str | None, typer.Option("--license", "--licence", help="As the hub, e.g. cc-by-4.0.")] = None,
    agreement: Annotated[Path | None, typer.Option(help="JSON of `capgrade agree --out`, for the card.")] = None,
    relevance: Annotated[
        Path | None, typer.Option(help="Folder of `capgrade relevance`, for the card's picture.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="JSON of `capgrade agree --calibrate`, or crisscrossed: what values mean to people, as columns."
        ),
    ] = None,
    push: Annotated[str | None, typer.Option(metavar="USER/NAME", help="Upload to this Hugging Face dataset.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Let everybody see a repository that --push makes.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let --push overwrite and delete files of a repository of something else.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(metavar="REPO_OR_FOLDER", help="Only check a folder, or USER/NAME[@REVISION], byte by byte."),
    ] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write a Hugging Face dataset folder with its card, upload it if asked to, or check one.

    A repository that `--push` makes is private; `--public` makes it public. One that holds something else than this
    dataset is refused without `--replace`.

    `--push USER/NAME --out DIR` without captions and shards uploads a folder that exists. `--check` takes a folder or
    a repository; with `--out DIR` it is compared with that folder too. Exit status 2 when something differs.
    """
    if check:
        _check(check, out, as_json)
        return
    if (public or replace) and not push:
        raise InputError(f"--{'public' if public else 'replace'} without --push", remedy="give --push USER/NAME")
    if out is None:
        raise InputError("no folder to write", remedy="give --out, or --check REPO_OR_FOLDER")
    if captions or shards or not push:
        loaded = load(params, sets)
        block = with_given(loaded.publish, name=name, license=licence, repository=push)
        _make(captions, shards, out, block, agreement, relevance, calibration, loaded.measures, as_json)
    else:
        _refuse_unused(name=name, license=licence, agreement=agreement, relevance=relevance,
                       calibration=calibration)  # fmt: skip
    if push:
        from capgrade.pipelines.publish.push import push as upload

        typer.echo(str(upload(out, push, public=public, replace=replace)), err=as_json)


def _refuse_unused(**given: object) -> None:
    """InputError for an option of the folder that is written, where a folder is uploaded as it is."""
    if unused := [name for name, value in given.items() if value is not None]:
        remedy = "leave it out: the folder is uploaded as it is"
        raise InputError(f"--{unused[0]} without --captions and --shards", remedy=remedy)


def _make(
    captions: Path | None,
    shards: list[Path] | None,
    out: Path,
    params: PublishParams,
    agreement: Path | None,
    relevance: Path | None,
    calibration: Path | None,
    measures: MeasuresParams,
    as_json: bool,
) -> None:
    if captions is None:
        raise InputError("no captions to publish", remedy="give --captions and --shards")
    require_all("datasets", measures=_fitted(shards or [], params))
    from capgrade.pipelines.agreement.calibration import named
    from capgrade.pipelines.publish.folder import publish as stage

    figures = agreement_of(agreement) if agreement else None
    known = named(calibration) if calibration else None
    done = stage(captions, shards or [], out, params, figures, relevance, known, measures)
    rows = ", ".join(f"{file} {entry['rows']:,}" for file, entry in done["files"].items() if entry["rows"])
    say(done, as_json, f"{rows} -> {out}")


def _fitted(shards: list[Path], params: PublishParams) -> set[str]:
    """The measures that are computed again, of own pairs without the caption among its references."""
    from capgrade.schemas.files import read_manifest

    used = [read_manifest(folder, "shards")["params"]["measures"] for folder in shards if params.left_out]
    return {part for one in used for part in parts_of(one)}


def _check(target: str, made: Path | None, as_json: bool) -> None:
    from capgrade.pipelines.publish.check import check

    found = check(target, made)
    problems = [str(problem) for problem in found.problems]
    ok = f"ok: {found.name}: version {found.version}, {found.files} files, {found.bytes:,} bytes as they were made"
    say({**asdict(found), "problems": problems}, as_json, ok) if as_json or not problems else None
    for problem in problems:
        typer.secho(f"error: {problem}", fg="red", err=True)
    if problems:
        raise typer.Exit(2)
