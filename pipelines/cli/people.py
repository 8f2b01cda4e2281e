"""Commands around people's judgements: a page to look at labels and to rate pairs, and a model as a
rater."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from capgrade.pipelines.cli.options import (
    COMMON_OPTIONS,
    ENCODER,
    FILE,
    FOLDER,
    NAME,
    PATH,
    SHARE,
    CaptionsDir,
    CommonOptions,
    ImagesOption,
    Measures,
    N,
    Out,
    ParamsFile,
    SetOptions,
    Split,
    load,
    measures_of_manifest,
    parse_measures,
    print_result,
    refuse_half,
    refuse_options,
    require_all,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.hosts import is_loopback
from capgrade.schemas.say import if_silent, warn

if TYPE_CHECKING:
    from capgrade.apps.explorer.start import ExplorerFolders
    from capgrade.schemas.params import ExploreParams


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


@dataclass(frozen=True)
class LabelFolders:
    """The labels that `explore` shows: a dataset, or captions and folders of the stages."""

    dataset: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `capgrade publish`, or USER/NAME of the hub."),
    ] = None
    captions: Annotated[
        Path | None, Option(metavar=FOLDER, help="Instead: folder that `capgrade captions` wrote.")
    ] = None
    shards: Annotated[
        Path | None, Option(metavar=FOLDER, help="With --captions: folder of `capgrade shards`.")
    ] = None
    relevance: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="With --captions: folder of `capgrade relevance`."),
    ] = None


LABEL_FOLDERS = LabelFolders()


def explore(
    labels: LabelFolders = LABEL_FOLDERS,
    split: Split = None,
    measures: Measures = None,
    runs: Annotated[
        list[Path] | None,
        Option("--run", metavar=FOLDER, help="Folder of `capgrade train`; repeat for several."),
    ] = None,
    indexes: Annotated[
        list[Path] | None,
        Option(
            "--index",
            metavar=FOLDER,
            help="Folder of `capgrade embed`, one per run. Default: RUN/index.",
        ),
    ] = None,
    images: ImagesOption = None,
    reviews: Annotated[
        Path, Option(metavar=FOLDER, help="Folder of the ratings that people give.")
    ] = Path("reviews"),
    sample: Annotated[
        Path | None, Option(metavar=FOLDER, help="Only choose pairs to rate, into FOLDER.")
    ] = None,
    export: Annotated[
        Path | None, Option(metavar=FILE, help="Only write mean scores of --reviews, a CSV.")
    ] = None,
    params: ParamsFile = None,
    sets: SetOptions = None,
) -> None:
    """A local page: what each measure and model ranks first, where they disagree, and pairs for
    people to rate.

    `--sample FOLDER` chooses pairs where measures disagree; with --run a model's misses, with
    `explore.pool` a pool. People rate them with `--reviews FOLDER`, models with `capgrade judge
    --pairs FOLDER`.
    """
    if export is not None:
        refuse_options(
            "with --export", dataset=labels.dataset, captions=labels.captions, sample=sample
        )
        from capgrade.apps.explorer.judgements import export_judgements as write
        from capgrade.apps.explorer.ratings import ReviewRatings

        if export.suffix == ".arrow":
            remedy = "call it .csv; .arrow is a dense matrix"
            raise InputError("judgements are written as CSV", file=export, remedy=remedy)
        typer.echo(f"{write(ReviewRatings.open(reviews), export):,} pairs -> {export}")
        return
    loaded = load(params, sets)
    settings, names = loaded.explore, parse_measures(measures, loaded.shards.measures)
    if sample is not None:
        refuse_options("with --sample", images=images)
        if (runs and settings.pool is not None) or (settings.similarity and settings.pool is None):
            problem = "explore.pool goes with explore.similarity, not with --run"
            raise InputError(
                problem, remedy="set explore.pool and explore.similarity, or give --run"
            )
        if not runs and (settings.gallery is not None or settings.direction != "i2t"):
            raise InputError(
                "explore.gallery and explore.direction are of a model's misses", remedy="give --run"
            )
        if runs and len(runs) > 1:
            raise InputError("--sample looks at the misses of one model", remedy="give --run once")
        fitted = set() if labels.dataset or labels.shards or labels.relevance else set(names)
        require_all(*(["torch"] if runs else []), measures=fitted, params=loaded.measures)
    else:
        if loaded.regions.weights and not settings.detector:
            remedy = "set both, or leave regions.weights out"
            raise InputError("regions.weights without explore.detector", remedy=remedy)
        fitted = _measures_to_fit(labels, names)
        models = ["torch"] if runs or settings.detector else []
        require_all("fastapi", *models, measures=fitted, params=loaded.measures)
    from capgrade.apps.explorer.start import ExplorerFolders

    folders = ExplorerFolders(
        **vars(labels),
        split=split,
        measures=names,
        runs=runs or [],
        indexes=indexes or [],
        images=images,
        params=loaded.measures,
        similarity=[Path(path) for path in settings.similarity],
        judgements=None if settings.judgements is None else Path(settings.judgements),
        detector=(
            loaded.regions.model_copy(update={"detector": settings.detector})
            if settings.detector
            else None
        ),
    )
    if sample is not None:
        _write_sample(sample, folders, settings)
        return
    with if_silent(f"reading {labels.dataset or labels.captions}"):
        from capgrade.apps.explorer.app import serve
        from capgrade.apps.explorer.start import open_explorer

        explorer = open_explorer(folders)
    if not is_loopback(settings.host):
        message = (
            "everybody who reaches this machine by network can search and rate, without a password"
        )
        warn(f"explore.host={settings.host}: {message}")
    serve(
        explorer,
        reviews,
        settings.host,
        settings.port,
        lambda address: typer.echo(f"explorer at {address}"),
    )


def _measures_to_fit(labels: LabelFolders, names: Sequence[str]) -> set[str]:
    """The measures that the explorer fits: those of the labels, or without labels `names`."""
    from capgrade.schemas.files import read_manifest

    if labels.dataset:
        if not labels.dataset.is_dir():  # It is then a dataset of the hub, with labels of its own.
            return set()
        return measures_of_manifest(read_manifest(labels.dataset, "publish")["measures"])
    if labels.shards:
        return measures_of_manifest(read_manifest(labels.shards, "shards")["params"]["measures"])
    return (
        {path.stem for path in labels.relevance.glob("*.arrow")} if labels.relevance else set(names)
    )


def _write_sample(out: Path, folders: ExplorerFolders, settings: ExploreParams) -> None:
    from capgrade.apps.explorer.plans import (
        plan_misses,
        plan_most_informative,
        plan_pool,
        write_lines,
        write_plan,
    )
    from capgrade.apps.explorer.start import read_corpus, read_matrices, read_models

    corpus = read_corpus(folders)
    drawn = corpus.captions, corpus.fingerprint
    if settings.pool is not None:
        matrices = {
            f"model {k}": model.matrix for k, model in enumerate(read_matrices(folders, corpus), 1)
        }
        plan = plan_pool(
            corpus.pairs, matrices, *drawn, settings.pool, settings.count, settings.seed
        )
        for name, stratum in plan.facts["strata"].items():
            typer.echo(f"{name}: {stratum['chosen']:,} of {stratum['pairs']:,} pairs")
    elif not folders.runs:
        plan = plan_most_informative(corpus.pairs, *drawn, settings.count, settings.seed)
    else:
        options = settings.direction, settings.gallery
        plan = plan_misses(
            read_models(folders, corpus)[0], *drawn, settings.count, settings.seed, *options
        )
    write_plan(out, plan)
    write_lines(out, plan, corpus.captions)
    typer.echo(f"{len(plan.items)} pairs to rate, protocol {plan.protocol} -> {out}")


def judge(
    captions: CaptionsDir,
    pairs: Annotated[
        str,
        Option(
            metavar="PATH|all",
            help="Folder of `explore --sample`, JSON lines, judgements, or all pairs.",
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
    )
    message = f"{done['answered']:,} of {done['pairs'] * len(done['prompts']):,} scores -> {out}"
    if done["tokens"]["sent"]:
        usage = f"{done['requests']:,} requests, {done['tokens']['sent']:,} tokens sent"
        usage += f", {done['tokens']['answered']:,} answered"
        usage += f", cost {done['cost']:.3g}" if settings.price_in or settings.price_out else ""
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
            f"{done['left']:,} scores are left: {done['stopped']}; run again to go on", err=True
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
