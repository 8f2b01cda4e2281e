"""`capgrade judge`: a model as a rater of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.options import AsJson, CaptionsDir, Images, ParamsFile, Sets, Split, load, say
from capgrade.schemas.errors import InputError

app = typer.Typer()


@app.command()
def judge(
    captions: CaptionsDir,
    pairs: Annotated[str, typer.Option(help="Folder of `explore --sample`, JSON lines, judgements, or 'all'.")],
    endpoint: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint, such as http://localhost:8000/v1.")],
    model: Annotated[str, typer.Option(help="The model's name there, and the rater's in the judgements.")],
    out: Annotated[Path, typer.Option(help="CSV to write: image_id, caption_id, score, rater.")],
    images: Images = None,
    split: Split = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop before this run costs more; set judge.price_in, _out.")
    ] = None,
    params: ParamsFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Ask a model at a chat endpoint how well captions describe images, as judgements that `agree` reads.

    The endpoint's token is read from the environment variable CAPGRADE_JUDGE_TOKEN. A run goes on where the one before
    was stopped; nothing that was answered is asked again.
    """
    from capgrade.pipelines.judging import judge as stage
    from capgrade.pipelines.judging.endpoint import Prices

    if out.suffix != ".csv":
        raise InputError("judgements are written as CSV", file=out, remedy="call it .csv")
    asked = load(params, sets).judge
    prices = Prices(asked.price_in, asked.price_out)
    if max_cost is not None and not (prices.sent or prices.answered):
        remedy = "set judge.price_in and judge.price_out, per million tokens"
        raise InputError("--max-cost without prices", remedy=remedy)
    found = stage(
        captions, pairs, out, endpoint=endpoint, model=model, images=images,
        prompt=None if asked.prompt is None else Path(asked.prompt), split=split, parallel=asked.parallel,
        per_minute=asked.per_minute, prices=prices, max_cost=max_cost, tries=asked.tries, seconds=asked.timeout,
    )  # fmt: skip
    say(found, as_json, f"{found['answered']:,} of {found['pairs']:,} pairs answered -> {out}")
    if found["unanswered"]:
        beside = out.with_name(f"{out.stem}-unanswered.csv")
        typer.echo(f"{found['unanswered']:,} pairs have no answer that counts -> {beside}", err=True)
    if found["left"]:
        typer.echo(f"{found['left']:,} pairs are left: {found['stopped']}; run again to go on", err=True)
