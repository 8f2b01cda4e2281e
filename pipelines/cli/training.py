"""Commands around trained models: training, scores, search, and tables of papers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from capgrade.pipelines.cli.options import (
    ENCODER,
    FILE,
    FOLDER,
    NAME,
    PATH,
    SHARE,
    TEXT,
    CommonOptions,
    N,
    OptionalCaptions,
    OptionalRegions,
    Split,
    load,
    print_result,
    refuse_half,
    refuse_options,
    require_all,
)
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.schemas.params import EvaluateParams
    from capgrade.trainer.evaluation.order import MatrixIds
    from capgrade.trainer.evaluation.task import Task

ImageRegions = Annotated[
    Path | None,
    Option("--regions", metavar=FOLDER, help="Folder of `capgrade regions`; not of clip, siglip."),
]
Images = Annotated[
    Path | None, Option(metavar=PATH, help="Images, for clip and siglip: folder or list.")
]


def _choose_input(
    model: str, regions: Path | None, images: Path | None, pictures: str | None
) -> tuple[Path | None, Path | None]:
    """The regions and images for a model. The stages of a pipeline give regions to every model; one
    that reads pictures takes those of `regions.images` instead."""
    if images is not None or pictures is None or regions is None:
        return regions, images
    from capgrade.schemas.say import tell
    from capgrade.trainer.models import model_of

    if model_of(model).reads != "pictures":
        return regions, images
    tell(f"model '{model}' reads the pictures of regions.images, not {regions}")
    return None, Path(pictures)


@dataclass(frozen=True)
class RunToEncode:
    """A trained run that `evaluate` encodes the captions and images with."""

    run: Annotated[
        Path | None, Option(metavar=FOLDER, help="Run of `capgrade train` to encode and score.")
    ] = None
    regions: ImageRegions = None
    images: Images = None
    index: Annotated[
        Path | None, Option(metavar=FOLDER, help="Folder for encodings. Default: RUN/index.")
    ] = None


@dataclass(frozen=True)
class ScoreFiles:
    """Scores of images and captions that another program made."""

    similarity: Annotated[
        list[Path] | None,
        Option(metavar=FILE, help="Images x captions (.npy, .npz, .pt, .arrow, .csv)."),
    ] = None
    embeddings: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="IMAGES CAPTIONS", help="Two tables, same formats: cosines."),
    ] = None
    row_ids: Annotated[
        Path | None, Option(metavar=FILE, help="Image ids of their rows: .txt, .json, .npy.")
    ] = None
    column_ids: Annotated[
        Path | None, Option(metavar=FILE, help="Caption ids of their columns.")
    ] = None
    stand_in: Annotated[
        int | None, Option(metavar=N, help="Caption N of each image stands for the image.")
    ] = None

    @property
    def ids(self) -> MatrixIds | None:
        """The files of ids; None without any."""
        from capgrade.trainer.evaluation.order import MatrixIds

        files = MatrixIds(self.row_ids, self.column_ids)
        return files if self.row_ids or self.column_ids else None


@dataclass(frozen=True)
class LabelFiles:
    """Labels that the scores are compared with."""

    relevance: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Labels of `relevance`, `shards`, `publish`."),
    ] = None
    positives: Annotated[
        Path | None, Option(metavar=FILE, help="Likely positives, a file of `capgrade audit`.")
    ] = None
    judgements: Annotated[
        list[Path] | None,
        Option(metavar=PATH, help="People's scores of pairs; repeat for several."),
    ] = None


@dataclass(frozen=True)
class PositivesList:
    """A list of likely positives in place of captions."""

    lists: Annotated[
        str | None, Option(metavar="NAME_OR_FILE", help="In place of captions: coco-5k, or a file.")
    ] = None
    likely: Annotated[
        float | None,
        Option(metavar=SHARE, help="With --lists: P that is right. Default: 0.5."),
    ] = None


def evaluate(
    *,
    captions: OptionalCaptions = None,
    encoded: RunToEncode,
    scores: ScoreFiles,
    label_files: LabelFiles,
    positives_list: PositivesList,
    split: Split = None,
    fold: Annotated[
        list[int] | None, Option(metavar=N, help="Also average over folds of N images.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        Option(metavar=NAME, help="Of `capgrade list metrics`; repeat for more."),
    ] = None,
    every: Annotated[
        bool, Option("--all", help="Print every metric, not the short table.")
    ] = False,
    compared: Annotated[
        list[str] | None,
        Option("--compare", metavar="[LABEL=]FOLDER", help="Compare finished evaluations."),
    ] = None,
    out: Annotated[
        Path | None, Option(metavar=FOLDER, help="Folder for metrics.json and curves, or tables.")
    ] = None,
    common: CommonOptions,
) -> None:
    """Score a trained run or a similarity matrix on every retrieval metric, both directions, with
    intervals.

    `--compare A --compare B` puts folders that `--out` named, or all in one folder, side by side,
    with paired tests of the first against each other one. With it `--out` writes tables in Markdown
    and LaTeX.
    """
    from capgrade.agreement.judgement_files import judged_digest, name_judgements
    from capgrade.schemas.files import found_digests
    from capgrade.trainer.evaluation.evaluate import similarity_names
    from capgrade.trainer.evaluation.task import load_task

    judged = None if label_files.judgements is None else list(map(str, label_files.judgements))
    options = {
        "split": split,
        "stand_in": scores.stand_in,
        "fold": fold,
        "metric": metric,
        "judgements": judged,
    }
    loaded = load(common.params, common.sets, evaluate=options)
    block = loaded.evaluate
    if compared:
        refuse_half(compared, "--compare")
        refuse_options(
            "with --compare",
            captions=captions,
            split=split,
            fold=fold,
            **vars(encoded),
            **vars(scores),
            **vars(label_files),
        )
        _compare(compared, metric or [], every, out, block.test, common.as_json)
        return
    if positives_list.lists is not None:
        refuse_options(
            "with --lists",
            captions=captions,
            split=block.split,
            embeddings=scores.embeddings,
            stand_in=block.stand_in,
            instances=block.instances,
            **vars(encoded),
            **{**vars(label_files), "judgements": block.judgements or None},
        )
        _evaluate_by_list(
            positives_list.lists, positives_list.likely, scores, block, every, out, common.as_json
        )
        return
    refuse_options("without --lists", likely=positives_list.likely)
    if captions is None:
        remedy = "give --captions, --lists, or --compare with finished evaluations"
        raise InputError("no captions to evaluate on", remedy=remedy)
    similarity = scores.similarity
    if encoded.run is not None:
        refuse_options("with --run", **{**vars(scores), "stand_in": block.stand_in})
        index = encoded.index or encoded.run / "index"
        from capgrade.trainer.fit.checkpoint import read_config

        model = read_config(encoded.run)["params"]["model"]["name"]
        regions, images = _choose_input(
            model, encoded.regions, encoded.images, loaded.regions.images
        )
        typer.echo(
            _encode_split(encoded.run, captions, regions, images, index, block), err=common.as_json
        )
        similarity = [index / "similarity.npy"]
    else:
        refuse_options(
            "without --run", index=encoded.index, regions=encoded.regions, images=encoded.images
        )
    given_ids = {"row_ids": scores.row_ids, "column_ids": scores.column_ids}
    if block.stand_in is not None:
        refuse_options("with --stand-in", **given_ids)
    of_images, of_captions = scores.embeddings or (None, None)
    tables = {"image_embeddings": of_images, "caption_embeddings": of_captions, **given_ids}
    instances = None if block.instances is None else Path(block.instances)
    labels = {
        "relevance": label_files.relevance,
        "positives": label_files.positives,
        "instances": instances,
    }
    judgements = name_judgements(map(Path, block.judgements))
    matrices = dict(zip(similarity_names(similarity or []), similarity or [], strict=True))
    inputs = found_digests(captions=captions, **labels, **tables, **matrices)
    inputs |= {f"judgements {name}": judged_digest(path) for name, path in judgements.items()}
    inputs |= {} if block.split is None else {"split": block.split}
    task, notes = load_task(
        captions,
        similarity=similarity,
        embeddings=scores.embeddings,
        stand_in=block.stand_in,
        split=block.split,
        ids=scores.ids,
        judgements=list(judgements.values()),
        **labels,
    )
    _score(task, notes, block, inputs, every, out, common.as_json)


def _evaluate_by_list(
    name: str,
    likely: float | None,
    scores: ScoreFiles,
    block: EvaluateParams,
    every: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Score a similarity by a list of likely positives."""
    from capgrade.lists import LIKELY, named
    from capgrade.schemas.files import found_digests
    from capgrade.trainer.evaluation.evaluate import similarity_names
    from capgrade.trainer.evaluation.task import load_listed_task

    path, files = named(name), scores.similarity or []
    p = LIKELY if likely is None else likely
    ids = {"row_ids": scores.row_ids, "column_ids": scores.column_ids}
    matrices = dict(zip(similarity_names(files), files, strict=True))
    inputs = {**found_digests(lists=path, **ids, **matrices), "likely": f"{p:g}"}
    task, notes = load_listed_task(path, files, likely=p, ids=scores.ids)
    _score(task, notes, block, inputs, every, out, as_json)


def _score(
    task: Task,
    notes: list[str],
    block: EvaluateParams,
    inputs: dict[str, str],
    every: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Score a task, and print it. `inputs` are the digests of what it was read from."""
    from capgrade.trainer.evaluation import evaluate as stage
    from capgrade.trainer.evaluation.tables import show

    evaluations = stage.evaluate(task, block, notes=notes, out=out, inputs=inputs)
    if as_json:
        print_result(stage.as_json(evaluations), True)
    else:
        show(evaluations, every=every or bool(block.metric))


def _encode_split(
    run: Path,
    captions: Path,
    regions: Path | None,
    images: Path | None,
    index: Path,
    params: EvaluateParams,
) -> str:
    """Encode the split by the run's model into `index`. Returns a line on what was done."""
    from capgrade.schemas.times import timed
    from capgrade.trainer.search.index import embed

    coarse = None if params.coarse is None else Path(params.coarse)
    with timed("evaluate --run", index):
        done = embed(
            run,
            captions,
            regions,
            params.split,
            index,
            params.pooling,
            params.best_by,
            coarse,
            params.coarse_top,
            images,
            params.unreadable,
        )
    rows = done["files"]
    line = (
        f"{rows['similarity.npy']['rows']:,} images, {rows['items.json']['rows']:,} captions ->"
        f" {index}"
    )
    if coarse is None:
        return line
    scored = (
        f"scored: the {params.coarse_top} best of each image and caption by {coarse}; all other"
        " pairs are -inf"
    )
    return f"{line}\n{scored}"


def _compare(
    texts: list[str], metrics: list[str], every: bool, out: Path | None, method: str, as_json: bool
) -> None:
    """Print paired tests of the first evaluation against each other one. For a single evaluation,
    or where queries differ, print a table of the metrics."""
    if len(texts) > 1:
        typer.echo(f"comparing {', '.join(texts)}", err=as_json)  # before slow imports
    from capgrade.pipelines.cli.tables import print_comparison
    from capgrade.trainer.evaluation.compare import compare, list_judged, list_reported
    from capgrade.trainer.evaluation.tables import label_folders, table_of_runs, write_tables

    runs = label_folders(texts)
    if len(runs) < 2 and as_json:
        problem = f"a paired test is of two evaluations or more, not {len(runs)}"
        raise InputError(
            problem, remedy="name another one, or leave --json out for a table of this one"
        )
    comparison = None
    if len(runs) > 1:
        try:
            comparison = compare(runs, metrics, every=every or as_json, method=method)
        except InputError as error:
            if as_json or not metrics:
                raise
            typer.echo(f"no test: {error}", err=True)
    names = metrics or (
        list_reported(next(iter(runs.values())))
        if comparison is None
        else list(dict.fromkeys(row.metric for row in comparison.rows))
    )
    names += [] if metrics else list_judged(runs.values())
    if out is not None:
        write_tables(runs, names, out, comparison)
    if as_json and comparison is not None:
        print_result(comparison.json(), True)
    elif comparison is not None:
        print_comparison(comparison)
    else:
        typer.echo(table_of_runs(runs, names), nl=False)
    if out is not None:
        typer.echo(f"-> {out}", err=as_json)


@dataclass(frozen=True)
class LabelSearch:
    """What `search` looks up in labels."""

    relevance: Annotated[
        Path | None, Option(metavar=FOLDER, help="Labels: folder that `capgrade relevance` wrote.")
    ] = None
    caption: Annotated[
        str | None,
        Option(metavar="ID", help="Caption whose images the labels rank. Default: the first."),
    ] = None
    measure: Annotated[
        str | None, Option(metavar=NAME, help="Measure to rank by. Default: the last computed.")
    ] = None
    out: Annotated[
        Path | None,
        Option(metavar=FILE, help="PNG to draw, when the captions come with images."),
    ] = None


@dataclass(frozen=True)
class ModelSearch:
    """What `search` asks a trained model."""

    query: Annotated[
        str | None, Option(metavar=TEXT, help="Caption in words; the images that fit it.")
    ] = None
    image: Annotated[
        str | None, Option(metavar="ID", help="Image of the index; the captions that fit it.")
    ] = None
    index: Annotated[
        Path | None,
        Option(metavar=FOLDER, help="Folder of `evaluate --run`. Default: RUN/index."),
    ] = None


def search(
    *,
    captions: OptionalCaptions = None,
    labels: LabelSearch,
    run: Annotated[
        Path | None, Option(metavar=FOLDER, help="A model: folder that `capgrade train` wrote.")
    ] = None,
    model: ModelSearch,
    words: Annotated[
        Path | None, Option(metavar=FOLDER, help="Folder for what words of TERAN point at.")
    ] = None,
    regions: Annotated[
        Path | None, Option(metavar=FOLDER, help="With --words: folder of `capgrade regions`.")
    ] = None,
    images: Annotated[
        Path | None, Option(metavar=PATH, help="With --words: images that the regions are of.")
    ] = None,
    split: Split = None,
    top: Annotated[
        int | None,
        Option(min=1, metavar=N, help="How many to show. Default: 5, and 6 with --words."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Show what the labels of a caption, or a trained model, rank first.

    `--words FOLDER` draws the region that each word of a caption points at, and plays the pointing
    game if true boxes are known. Where --params has align.run, --run is the folder of the runs.
    """
    as_json, loaded = common.as_json, load(common.params, common.sets)
    if words is not None and run is not None and "run" in loaded.align.model_fields_set:
        if loaded.align.run is None:
            from capgrade.trainer.alignment.align import write_no_alignment

            write_no_alignment(words)
            print_result({"run": None}, as_json, "align.run is null: no words were drawn")
            return
        run, images = run / loaded.align.run, images or loaded.regions.pictures
    if run is None:
        refuse_options("without --run", **vars(model), words=words, regions=regions, images=images)
        if captions is None or labels.relevance is None:
            remedy = "give --captions and --relevance, or --run with --query, --image or --words"
            raise InputError("nothing to search", remedy=remedy)
        refuse_options("with --relevance", split=split)
        _search_labels(captions, labels.relevance, labels, top or 5, as_json)
        return
    refuse_options("with --run", **vars(labels))
    if words is None:
        refuse_options(
            "without --words", captions=captions, regions=regions, images=images, split=split
        )
        _search_model(run, model, top or 5, as_json)
        return
    refuse_options("with --words", **vars(model))
    if captions is None or regions is None or images is None:
        raise InputError(
            "--words without its images", remedy="give --captions, --regions and --images"
        )
    _draw_words(run, captions, regions, images, split, words, top or 6, as_json)


def _search_labels(
    captions: Path, relevance: Path, wanted: LabelSearch, top: int, as_json: bool
) -> None:
    from capgrade.pipelines import show
    from capgrade.pipelines.cli.tables import print_matches

    caption_id, text, matches = show.matches(
        captions, relevance, wanted.caption, wanted.measure, top
    )
    if wanted.out:
        show.picture(captions, text, matches, wanted.out)
    result = {
        "caption_id": caption_id,
        "caption": text,
        "images": [asdict(match) for match in matches],
    }
    print_result(result, True) if as_json else print_matches(text, matches)


def _search_model(run: Path, wanted: ModelSearch, top: int, as_json: bool) -> None:
    require_all("torch", ENCODER)
    from capgrade.pipelines.cli.tables import print_hits
    from capgrade.trainer.search import index as stage

    query, image, index = wanted.query, wanted.image, wanted.index or run / "index"
    if (query is None) == (image is None):
        raise InputError(
            "a search is for a caption or for an image", remedy="give one of --query and --image"
        )
    hits = (
        stage.search(run, index, query, top)
        if query
        else stage.search_captions(run, index, str(image), top)
    )
    (
        print_result({"hits": [asdict(hit) for hit in hits]}, True)
        if as_json
        else print_hits(query or str(image), hits)
    )


def _draw_words(
    run: Path,
    captions: Path,
    regions: Path,
    images: Path,
    split: str | None,
    out: Path,
    count: int,
    as_json: bool,
) -> None:
    from capgrade.pipelines.cli.tables import print_pointing
    from capgrade.trainer.alignment.align import align

    pointing = align(run, captions, regions, split, out, images, count)
    if as_json:
        print_result({"pointing": pointing}, True)
    elif pointing is None:
        typer.echo(f"no true boxes beside these captions, so no pointing game; picture -> {out}")
    else:
        print_pointing(pointing)
        typer.echo(f"-> {out}")


def reproduce(
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="A recipe of `capgrade list recipes`."),
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

    `--set` takes train.KEY=VALUE of all runs, or runs.NAME.KEY=VALUE.
    """
    from capgrade.pipelines.reproduce.recipe import load_recipe, settings_of

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
            remedy="see capgrade reproduce --help, and capgrade list recipes",
        )
    settings = settings_of(recipe, common.params, common.sets or [], small)
    measures = {*recipe.relevance, *(run.measure for run in settings.runs.values())}
    measures |= {entry.measure for entry in recipe.rows if entry.measure}
    require_all("torch", measures=measures, params=settings.measures)
    from capgrade.pipelines.reproduce.stage import reproduce as stage
    from capgrade.pipelines.reproduce.table import table_markdown

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
