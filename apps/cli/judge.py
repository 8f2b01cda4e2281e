"""`capgrade judge`: a model as a rater."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FILE,
    NAME,
    CaptionsDir,
    CommonOptions,
    Force,
    ImagesOption,
    Split,
    load,
    print_result,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import spoken_number

JudgeModel = Annotated[
    str,
    Option(
        metavar=NAME,
        help="The model's name at the endpoint, or a CrossEncoder: folder or hub id.",
    ),
]
Endpoint = Annotated[
    str | None,
    Option(
        metavar="URL",
        help=(
            "An OpenAI-compatible chat endpoint, such as http://localhost:8000/v1, or one's"
            " .../v1/rerank."
        ),
    ),
]
MaxCost = Annotated[
    float | None,
    Option(
        min=0,
        metavar="COST",
        help="Stop before this run costs more; set judge.price_in, _out. 0: only tell.",
    ),
]


def judge(
    captions: CaptionsDir,
    pairs: Annotated[
        str,
        Option(
            metavar="PATH|all",
            help="Folder of `explore sample`, JSON lines, judgements, or all pairs.",
        ),
    ],
    judge_model: JudgeModel,
    out: Annotated[
        Path,
        Option(
            metavar=FILE, help="CSV to write: image_id, caption_id, score, rater, scale, prompt."
        ),
    ],
    endpoint: Endpoint = None,
    images: ImagesOption = None,
    split: Split = None,
    max_cost: MaxCost = None,
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Ask a model how well captions describe images, as judgements and as a measure that `agree`
    reads.

    Without --endpoint the model is a CrossEncoder of sentence-transformers in this process. The
    endpoint's token is read from the environment variable CAPGRADE_JUDGE_TOKEN. A run goes on where
    the one before was stopped; nothing that was answered is asked again.
    """
    if out.suffix != ".csv":
        raise InputError("judgements are written as CSV", file=out, remedy="call it .csv")
    settings = load(common.params, common.sets).judge
    if max_cost is not None and not (settings.price_in or settings.price_out):
        remedy = "set judge.price_in and judge.price_out, per million tokens"
        raise InputError("--max-cost without prices", remedy=remedy)
    from capgrade.apps.judging import judge as stage
    from capgrade.apps.judging import judge_of

    done = stage(
        captions,
        pairs,
        out,
        source=judge_of(endpoint, judge_model, settings),
        model=judge_model,
        images=images,
        split=split,
        max_cost=max_cost,
        params=settings,
        tell=lambda message: typer.echo(message, err=True),
        force=force,
    )
    message = f"{done['answered']:,} of {done['pairs'] * len(done['prompts']):,} scores -> {out}"
    if done["tokens"]["sent"]:
        usage = f"{done['requests']:,} requests, {done['tokens']['sent']:,} tokens sent"
        usage += f", {done['tokens']['answered']:,} answered"
        usage += (
            f", cost {spoken_number(done['cost'])}"
            if settings.price_in or settings.price_out
            else ""
        )
        message += f"\n{usage}, {done['from_probabilities']:,} scores from probabilities"
    print_result(done, common.as_json, message)
    if done["unanswered"]:
        beside = out.with_name(f"{out.stem}-unanswered.csv")
        typer.echo(
            f"{done['unanswered']:,} scores have no answer that counts; the reasons are in"
            f" {beside}",
            err=True,
        )
    if done["left"]:
        typer.echo(
            f"{done['left']:,} scores are left: {done['stopped']}; run again with --force to go on",
            err=True,
        )
