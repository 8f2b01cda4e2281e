"""Stage `publish`: captions and graded relevance as a Hugging Face dataset with its card.

The layout `pairs` is of folders of `shards`. Config `captions` has a row per caption; `relevance` a
row per kept image-caption pair, with every measure, the reasons it was kept and its sampling
weight, and unless `left_out` is false the values of own pairs without the caption among its
references. With a calibration (from `agree`) it also says what the values mean to people: columns
`<measure>_score`, 0..5, and `<measure>_accepted`, 0..1.

The layout `mteb` is of folders of `relevance` or `shards`: pairs that reach the first of `grades`,
and own pairs. mteb counts every other pair as 0, also what was not sampled, so that dense labels
are the right source.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capgrade.agreement.calibration import named
from capgrade.labels import Labels
from capgrade.labels.layout import CARD, CROISSANT, SUMS, hub_split
from capgrade.pipelines.publish.card import dataset_card
from capgrade.pipelines.publish.croissant import croissant
from capgrade.pipelines.publish.mteb import benchmark
from capgrade.pipelines.publish.tables import FIGURE, PublishedSplit, sampled_pairs
from capgrade.pipelines.stages.publish import PUBLISH, PublishParams
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    atomic,
    digest,
    entry_of,
    found_digests,
    parse_manifest,
    read_manifest,
    write_json,
    write_text,
)
from capgrade.schemas.judges import read_agreement
from capgrade.schemas.own_pairs import distribution
from capgrade.schemas.run import Run
from capgrade.schemas.say import tell, warn
from capgrade.text.language import describe_other_language
from capgrade.text.tokens import tokens_of

LICENCE = "set publish.license (an SPDX id such as cc-by-4.0), or --license"
COLOURS = ("#0063b1", "#c4500a")  # series 1 and 2 of the pages' style.css


def publish(
    captions: Path,
    shards: Sequence[Path],
    out: Path,
    params: PublishParams,
    *,
    relevance: Sequence[Path] = (),
    agreement: Path | None = None,
) -> dict[str, Any]:
    """Write a folder that `datasets.load_dataset` reads, one split for each folder of labels.

    `agreement` (from `agree`) goes into the card, the distributions of `relevance` into its
    picture; with the layout mteb its folders are labels, as those of `shards`. The same input gives
    the same bytes. Returns the manifest. Raises InputError for parameters that do not fit
    (`_require_fitting`), for captions that are not English where no language is given, for a folder
    that something else wrote, and when labels, calibration and captions do not belong together.
    """
    _require_fitting(params, relevance)
    mteb = params.layout == "mteb"
    labels, shown = ([*shards, *relevance], None) if mteb else (shards, next(iter(relevance), None))
    calibration = named(Path(params.calibration)) if params.calibration else None
    judged = read_agreement(agreement) if agreement else None
    inputs = found_digests(relevance=shown, calibration=calibration)
    splits = _open_splits(labels, captions, mteb)
    table = splits[0].captions
    language = _languages(params.languages, captions, splits)
    name = params.name or out.resolve().name
    unnamed = params.name is None
    params = params.model_copy(update={"language": language, "name": name})
    dense = _dense_manifest(shown, table.digest) if shown else None
    run = Run(stage=PUBLISH, params=params, inputs={})
    with run.folder(out) as folder:
        if unnamed:
            tell(f"the dataset is called '{name}', as its folder; --name chooses another name")
        contents = replace(
            benchmark(splits, folder, params)
            if mteb
            else sampled_pairs(splits, folder, params, calibration),
            agreement=judged,
            captions=read_manifest(captions, "captions"),
            relevance=dense,
        )
        write_json(folder / CROISSANT, croissant(contents))
        write_text(folder / CARD, dataset_card(contents))
        files = contents.files
        for name in (CARD, CROISSANT):
            files[name] = entry_of(folder / name, rows=0)
        if shown and dense:
            _draw_distributions(shown, dense["params"]["measures"], folder / FIGURE)
            files[FIGURE] = entry_of(folder / FIGURE, rows=0)
        sums = (f"{files[name]['sha256']}  {name}\n" for name in sorted(files))
        write_text(folder / SUMS, "".join(sums))
        files[SUMS] = entry_of(folder / SUMS, rows=0)
        for split in splits:
            made_by = f"{split.manifest['kind']} {split.name}"
            inputs[made_by] = digest(Path(split.labels.file) / MANIFEST)
        inputs |= contents.read | {"captions": table.digest}
        # What `explore` scores new captions with.
        facts: dict[str, Any] = {"tokenizer": table.tokenizer, "measures": contents.used}
        facts |= {"calibration": contents.calibrated.facts()} if contents.calibrated else {}
        rows = {name: entry["rows"] for name, entry in files.items()}
        return replace(run, inputs=inputs).finish(folder, rows, **facts)


def _require_fitting(params: PublishParams, relevance: Sequence[Path] = ()) -> None:
    """InputError without a licence, for a repository that cannot be, and for what is of another
    layout than the one asked for."""
    mteb = params.layout == "mteb"
    if not params.license:
        raise InputError("no licence given", remedy=LICENCE)
    if params.repository:
        from capgrade.labels.hub import require_name

        require_name(params.repository)
    if mteb and not params.grades:
        remedy = "name rising thresholds: --grades related=0.5 --grades fits=0.7"
        raise InputError("no grades given", remedy=remedy)
    if params.calibration and mteb:
        remedy = "leave it out: its columns are not of a benchmark"
        raise InputError("a calibration with the layout mteb", remedy=remedy)
    if len(relevance) > 1 and not mteb:
        remedy = "give --relevance once: the card's picture is of one"
        raise InputError(f"{len(relevance)} folders of relevance", remedy=remedy)
    if (params.grades or params.measure) and not mteb:
        remedy = "leave publish.measure and publish.grades away, or give --layout mteb"
        raise InputError("a measure or grades of sampled pairs", remedy=remedy)


def _open_splits(folders: Sequence[Path], captions_dir: Path, mteb: bool) -> list[PublishedSplit]:
    """The labels of each split: of `shards`, or for mteb of `relevance`.

    InputError for other folders and captions, for a split that comes twice, and without any.
    """
    splits = dict[str, PublishedSplit]()
    one_of_each = f"give --shards{' or --relevance' if mteb else ''}, one of each split"
    for folder in folders:
        kind = "shards"
        if mteb and (folder / MANIFEST).is_file():
            kind = parse_manifest(folder / MANIFEST)["kind"]
        if kind not in ("shards", "relevance"):
            remedy = "give a folder of capgrade relevance or shards"
            raise InputError(f"a {kind} folder", file=folder, remedy=remedy)
        manifest = read_manifest(folder, kind)
        labels = Labels.load(folder, captions=captions_dir)
        name = hub_split(labels.table.split)
        if name in splits:
            raise InputError(f"split '{name}' is given twice", remedy=one_of_each)
        splits[name] = PublishedSplit(name, labels, labels.table, manifest)
    if not splits:
        raise InputError("no labels to publish", remedy=one_of_each)
    return list(splits.values())


def _dense_manifest(folder: Path, captions_digest: str) -> dict[str, Any]:
    """The manifest of a `relevance` folder. InputError where it was made from other captions."""
    manifest = read_manifest(folder, "relevance")
    if manifest["inputs"].get("captions") != captions_digest:
        remedy = "make it for these captions: capgrade relevance"
        raise InputError("made from another captions table", file=folder, remedy=remedy)
    return manifest


def _languages(
    languages: Sequence[str], captions_dir: Path, splits: Sequence[PublishedSplit]
) -> tuple[str, ...]:
    """The languages that are given; without any `en`, unless half of a split's captions have no
    English word."""
    english = all(one.lower().split("-")[0] == "en" for one in languages)
    for split in splits:
        tokens = tokens_of(split.captions)
        if not languages and (reason := describe_other_language(tokens, 0.5)):
            remedy = (
                "say which languages they are in: publish.language, or --language en, or de, or"
                " en,de"
            )
            problem = f"no language given, and these captions do not tell theirs: {reason}"
            raise InputError(problem, file=captions_dir, remedy=remedy)
        if english and (reason := describe_other_language(tokens)):
            warn(f"{captions_dir}: the card will say that these captions are English, but {reason}")
    return tuple(languages) or ("en",)


def _draw_distributions(relevance_dir: Path, names: Sequence[str], out: Path) -> None:
    """Draw the distributions that `capgrade relevance` counted as PNG, a panel for each measure.

    The bytes are the same each time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(names), 3), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        edges, *shares = distribution(relevance_dir, name)
        for share, kind, colour in zip(
            shares, ("own captions", "other captions"), COLOURS, strict=True
        ):
            axes.stairs(share, edges, label=kind, color=colour)
        axes.set(title=name, ylabel="share of pairs", yscale="log")
    figure.axes[0].legend(frameon=False)
    with atomic(out) as temporary:
        # Without matplotlib's version, bytes stay the same.
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
