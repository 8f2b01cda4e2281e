"""`capgrade audit` and `capgrade regrade`: what is also right, and what benchmark numbers are
worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.apps.cli.judge import Endpoint, JudgeModel, MaxCost
from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    ENCODER,
    FILE,
    FOLDER,
    NAME,
    PATH,
    SHARE,
    CaptionsDir,
    CommonOptions,
    Force,
    ImagesOption,
    N,
    Out,
    Split,
    load,
    print_result,
    refuse_half,
    require_all,
)
from capgrade.schemas.errors import InputError


def audit(
    captions: CaptionsDir,
    relevance: Annotated[
        Path | None, Option(metavar=FOLDER, help="Folder of `capgrade relevance`: every pair.")
    ] = None,
    shards: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `capgrade shards`: estimates by their weights."),
    ] = None,
    images: ImagesOption = None,
    out: Annotated[
        Path, Option(metavar=FILE, help="HTML file to write, beside a folder of its lists.")
    ] = Path("audit.html"),
    measure: Annotated[
        str | None,
        Option(
            metavar=NAME,
            help="Measure to judge by. Default: the first calibrated one, people before sbert.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        Option(metavar=FILE, help="What `agree --calibrate` wrote, or crisscrossed, the default."),
    ] = None,
    judgements: Annotated[
        Path | None,
        Option(
            metavar=PATH,
            help="Who says what is right, as of `agree`. Default: the truth of scenes, if any.",
        ),
    ] = None,
    similarity: Annotated[
        list[Path] | None,
        Option(
            metavar=FILE,
            help=(
                "Scores of a model, as `evaluate` takes them: how many of its R@1 errors are likely"
                " positives."
            ),
        ),
    ] = None,
    stand_in: Annotated[
        int | None,
        Option(metavar=N, help="As a model: caption N of each image stands for the image."),
    ] = None,
    split: Split = None,
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Which negatives are likely positives: a list of pairs, what share of it is right, and what
    share of all that is right it has; near-duplicates, and own captions that fit nothing; of a
    model, how many of its R@1 errors."""
    agree = load(common.params, common.sets).agree
    if judgements is None and agree.judgements is not None:
        judgements = Path(agree.judgements)
    require_all("vl_convert", *([ENCODER] if stand_in is not None else []))
    from capgrade.agreement.calibration import calibration_file
    from capgrade.apps.audit import audit as stage
    from capgrade.apps.audit import audit_lists_folder
    from capgrade.apps.audit.page import summary_lines

    figures = stage(
        captions,
        out,
        relevance=relevance,
        shards=shards,
        images=images,
        split=split,
        measure=measure,
        calibration=calibration_file(calibration) if calibration else None,
        judgements=judgements,
        agree=agree,
        similarity=similarity or (),
        stand_in=stand_in,
        force=force,
    )
    print_result(
        figures,
        common.as_json,
        "\n".join([*summary_lines(figures), f"{out}, lists in {audit_lists_folder(out)}"]),
    )


def regrade(
    captions: CaptionsDir,
    similarity: Annotated[
        list[Path],
        Option(
            metavar="[NAME=]FILE",
            help="Scores of a model, images x captions, as `evaluate` reads them; repeat it.",
        ),
    ],
    judge_model: JudgeModel,
    out: Out,
    endpoint: Endpoint = None,
    images: ImagesOption = None,
    split: Split = None,
    judgements: Annotated[
        Path | None,
        Option(
            metavar=PATH,
            help="People's scores, as of `agree`, to learn what the judge's score means.",
        ),
    ] = None,
    budget: Annotated[
        int,
        Option(
            min=10,
            metavar=N,
            help="Most pairs to ask about; with --judgements a quarter is of these.",
        ),
    ] = 3000,
    accept: Annotated[
        float,
        Option(
            min=0.01,
            max=1,
            metavar=SHARE,
            help=(
                "Share of the judge's scale from which a pair is right; with --judgements the"
                " probability from which it is listed."
            ),
        ),
    ] = 0.5,
    max_cost: MaxCost = None,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """What models' recall and NDCG are worth: draw a pool of pairs, ask a judge, and estimate R@1
    with what is also right, and NDCG@10 by its grades.

    Similarities are read in the order of the captions table, or with ids beside them. With two
    models the probability that the same one is first is printed. A run goes on where it was
    stopped; nothing that was answered is asked again.
    """
    refuse_half(map(str, similarity), "--similarity")
    paths: dict[str, Path] = {}
    for item in similarity:
        name, equals, file = str(item).partition("=")
        path = Path(file) if equals and not item.exists() else item
        name = name if equals and not item.exists() else item.stem
        if name in paths:
            raise InputError(
                f"two models are called '{name}'",
                file=path,
                remedy="name one: --similarity NAME=FILE",
            )
        paths[name] = path
    require_all("vl_convert", *([ENCODER] if endpoint is None else []))
    loaded = load(common.params, common.sets)
    from capgrade.apps.audit.regrade import lines_of
    from capgrade.apps.audit.regrade import regrade as stage

    figures = stage(
        captions,
        paths,
        out,
        model=judge_model,
        endpoint=endpoint,
        images=images,
        split=split,
        judgements=judgements,
        budget=budget,
        accept=accept,
        max_cost=max_cost,
        params=loaded.judge,
        agree=loaded.agree,
        tell=lambda said: typer.echo(said, err=True),
    )
    judged = f"{figures['answered']:,} of {figures['pairs']:,} pairs judged -> {out}"
    print_result(figures, common.as_json, "\n".join([*lines_of(figures), judged]))
