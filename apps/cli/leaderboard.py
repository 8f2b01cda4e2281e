"""`capgrade leaderboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from capgrade.pipelines.options import (
    COMMON_OPTIONS,
    FILE,
    FOLDER,
    CommonOptions,
    Force,
    OptionalCaptions,
    load,
    print_result,
    require_all,
)


def leaderboard(
    entries: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|USER/NAME",
            help="Folder of entries, or a dataset repository of the hub that holds them.",
        ),
    ],
    captions: OptionalCaptions = None,
    relevance: Annotated[
        Path | None, Option(metavar=FOLDER, help="Labels for NDCG, as `evaluate` takes them.")
    ] = None,
    out: Annotated[
        Path, Option(metavar=FILE, help="HTML file to write, beside a folder of evaluations.")
    ] = Path("board.html"),
    force: Force = False,
    common: CommonOptions = COMMON_OPTIONS,
) -> None:
    """Models' scores of the same captions on one page, with intervals, and groups that a test does
    not tell apart.

    An entry is a folder: entry.yaml, and similarity.npy or images.npy and captions.npy. It is
    evaluated once. Other labels are keys of `evaluate`: --set evaluate.positives=coco-5k.
    """
    require_all("vl_convert")
    from capgrade.apps.leaderboard import evaluations_folder
    from capgrade.apps.leaderboard import leaderboard as stage

    board = stage(
        entries,
        out,
        captions=captions,
        relevance=relevance,
        params=load(common.params, common.sets).evaluate,
        force=force,
    )
    count = f"{len(board.standings)} entr{'y' if len(board.standings) == 1 else 'ies'}"
    message = f"{count}, {board.evaluated} evaluated now -> {out}, {evaluations_folder(out)}"
    print_result(board.json(), common.as_json, message)
