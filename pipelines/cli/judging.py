"""`capgrade judge`: a model as a rater of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capgrade.pipelines.cli.options import AsJson, CaptionsDir, Images, Split, say
from capgrade.schemas.errors import InputError

app = typer.Typer()


@app.command()
def judge(
    captions: CaptionsDir,
    pairs: Annotated[
        str, typer.Option(help="Folder of `review sample`, JSON lines of image_id, caption_id, judgements, or 'all'.")
    ],
    endpoint: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint, such as http://localhost:8000/v1.")],
    model: Annotated[str, typer.Option(help="The model's name there, and the rater's in the judgements.")],
    out: Annotated[Path, typer.Option(help="CSV to write: image_id, caption_id, score, rater.")],
    images: Images = None,
    prompt: Annotated[Path | None, typer.Option(help="YAML file of what is asked. Default: 0 to 5.")] = None,
    split: Split = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Requests at a time.")] = 4,
    per_minute: Annotated[float | None, typer.Option(min=0.01, help="Most requests per minute.")] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop before this run costs more; needs the prices.")
    ] = None,
    price_in: Annotated[float | None, typer.Option(min=0, help="Price of a million tokens sent.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Price of a million tokens answered.")] = None,
    tries: Annotated[int, typer.Option(min=1, help="Requests per pair, until an answer counts.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask a model at a chat endpoint how well captions describe images, as judgements that `agree` reads.

    The endpoint's token is read from the environment variable CAPGRADE_JUDGE_TOKEN. A run goes on where the one before
    was stopped; nothing that was answered is asked again.
    """
    from capgrade.pipelines.judging import judge as stage
    from capgrade.pipelines.judging.limits import Prices

    if out.suffix != ".csv":
        raise InputError("judgements are written as CSV", file=out, remedy="call it .csv")
    if max_cost is not None and not (price_in or price_out):
        raise InputError("--max-cost without prices", remedy="give --price-in and --price-out, per million tokens")
    prices = Prices(price_in or 0.0, price_out or 0.0)
    found = stage(
        captions, pairs, out, endpoint=endpoint, model=model, images=images, prompt=prompt, split=split,
        parallel=parallel, per_minute=per_minute, prices=prices, max_cost=max_cost, tries=tries, seconds=timeout,
    )  # fmt: skip
    say(found, as_json, f"{found['answered']:,} of {found['pairs']:,} pairs answered -> {out}")
    if found["unanswered"]:
        beside = out.with_name(f"{out.stem}-unanswered.csv")
        typer.echo(f"{found['unanswered']:,} pairs have no answer that counts -> {beside}", err=True)
    if found["left"]:
        typer.echo(f"{found['left']:,} pairs are left: {found['stopped']}; run again to go on", err=True)
