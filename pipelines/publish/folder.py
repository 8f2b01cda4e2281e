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
from tempfile import TemporaryDirectory
from typing import Any

from capgrade.agreement.calibration import alike, calibration_file
from capgrade.labels import Labels
from capgrade.labels.layout import CARD, CROISSANT, SUMS, TASK, hub_split
from capgrade.pipelines.publish.card import dataset_card
from capgrade.pipelines.publish.croissant import croissant
from capgrade.pipelines.publish.dry_run import DryRun
from capgrade.pipelines.publish.judged import judged_split
from capgrade.pipelines.publish.mteb import benchmark
from capgrade.pipelines.publish.pictures import pictures_of_splits
from capgrade.pipelines.publish.tables import FIGURE, Judged, PublishedSplit, sampled_pairs
from capgrade.pipelines.publish.task import task_file
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
from capgrade.schemas.output import refuse_foreign
from capgrade.schemas.own_pairs import distribution
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import tell, warn
from capgrade.text.language import describe_other_language
from capgrade.text.tokens import tokens_of

LICENCE = "set publish.license (an SPDX id such as cc-by-4.0), or --license"
NO_SPLIT = "all"  # of captions whose source has no splits
COLOURS = ("#0063b1", "#c4500a")  # series 1 and 2 of the pages' style.css


def publish(
    captions: Path,
    shards: Sequence[Path],
    out: Path,
    params: PublishParams,
    *,
    relevance: Sequence[Path] = (),
    agreement: Path | None = None,
) -> dict[str, Any] | DryRun:
    """Write a folder that `datasets.load_dataset` reads, one split for each folder of labels.

    `agreement` (from `agree`) goes into the card, the distributions of `relevance` into its
    picture; with the layout mteb its folders are labels, as those of `shards`. The same input gives
    the same bytes. Returns the manifest; of a dry run, which is made in the system's folder of
    temporary files and deleted, what it would have written. Raises InputError for parameters that
    do not fit (`_require_fitting`), for captions that are not English where no language is given,
    for a folder that something else wrote, for pictures that are missing, and when labels,
    agreement, calibration and captions do not belong together.
    """
    mteb = params.layout == "mteb"
    _require_fitting(params, relevance, [*shards, *relevance] if mteb else shards)
    labels, shown = ([*shards, *relevance], None) if mteb else (shards, next(iter(relevance), None))
    calibration = calibration_file(Path(params.calibration)) if params.calibration else None
    judged = read_agreement(agreement) if agreement else None
    inputs = found_digests(relevance=shown, calibration=calibration)
    splits, known = _open_splits(labels, captions, params)
    if agreement and judged:
        _require_agreement_of(splits, params, judged, agreement)
    table = splits[0].captions
    language = _languages(params.languages, captions, splits)
    embedded = pictures_of_splits([split.captions for split in splits], params)
    chosen, name = params, params.name or out.resolve().name
    params = params.model_copy(update={"language": language, "name": name})
    dense = _dense_manifest(shown, table.digest) if shown else None
    run = StageRun(stage=PUBLISH, params=params, inputs={})

    def write(folder: Path) -> dict[str, Any]:
        _tell_unchosen(chosen, params, splits)
        contents = replace(
            benchmark(splits, folder, params, embedded, known)
            if mteb
            else sampled_pairs(splits, folder, params, calibration, embedded),
            agreement=judged,
            captions=read_manifest(captions, "captions"),
            relevance=dense,
        )
        write_json(folder / CROISSANT, croissant(contents))
        write_text(folder / CARD, dataset_card(contents))
        if mteb:
            write_text(folder / TASK, task_file(contents))
        files = contents.files
        for name in (CARD, CROISSANT, *([TASK] if mteb else [])):
            files[name] = entry_of(folder / name, rows=0)
        if shown and dense:
            _draw_distributions(shown, dense["params"]["measures"], folder / FIGURE)
            files[FIGURE] = entry_of(folder / FIGURE, rows=0)
        sums = (f"{files[name]['sha256']}  {name}\n" for name in sorted(files))
        write_text(folder / SUMS, "".join(sums))
        files[SUMS] = entry_of(folder / SUMS, rows=0)
        for split in splits if known is None else ():
            made_by = f"{split.manifest['kind']} {split.name}"
            inputs[made_by] = digest(Path(split.labels.file) / MANIFEST)
        inputs.update(contents.read, captions=table.digest)
        if embedded and embedded.digest:
            inputs["images"] = embedded.digest
        # What `explore` scores new captions with.
        facts: dict[str, Any] = {"tokenizer": table.tokenizer, "measures": contents.used}
        facts["splits"] = {split.name: split.captions.split for split in splits}
        if contents.calibrated:
            facts["calibration"] = contents.calibrated.facts()
            if mteb:  # which has grades by it, and no columns
                del facts["calibration"]["columns"]
        rows = {name: entry["rows"] for name, entry in files.items()}
        return replace(run, inputs=inputs).finish(folder, rows, **facts)

    if not params.dry_run:
        with run.folder(out) as folder:
            return write(folder)
    refuse_foreign(out, PUBLISH.name)
    with TemporaryDirectory() as made:
        return DryRun.of(Path(made), write(Path(made)), out)


def _tell_unchosen(
    chosen: PublishParams, params: PublishParams, splits: Sequence[PublishedSplit]
) -> None:
    """Say what the card will have that nobody chose."""
    if chosen.name is None:
        tell(f"the dataset is called '{params.name}', as its folder; --name chooses another name")
    if not chosen.languages:
        said = ", ".join(params.languages)
        tell(f"the captions' language is '{said}', by their words; --language chooses another")
    for split in splits:
        if split.name != split.captions.split and split.captions.split not in chosen.splits:
            was = f"split '{split.captions.split}' is published as '{split.name}'"
            how = f"--splits {split.captions.split}=NAME chooses another name"
            tell(f"{was}, as the hub takes letters, digits and _ alone; {how}")


def _require_fitting(
    params: PublishParams, relevance: Sequence[Path] = (), labels: Sequence[Path] = ()
) -> None:
    """InputError without a licence, for a repository that cannot be, and for what is of another
    layout than the one asked for."""
    mteb = params.layout == "mteb"
    if not params.license:
        raise InputError("no licence given", remedy=LICENCE)
    if params.repository:
        from capgrade.labels.hub import require_repository

        require_repository(params.repository)
    if mteb and not params.grades:
        remedy = "name rising thresholds: --grades related=0.5 --grades fits=0.7"
        raise InputError("no grades given", remedy=remedy)
    if params.calibration and mteb and not params.by_p:
        remedy = "give grades as probabilities, --grades fits=P0.5, or leave it out"
        raise InputError("a calibration, and grades that are values", remedy=remedy)
    if params.judgements:
        _require_judgements_alone(params, labels)
    elif params.split:
        remedy = "leave publish.split out: the labels say of which split they are"
        raise InputError("a split without judgements", remedy=remedy)
    if len(relevance) > 1 and not mteb:
        remedy = "give --relevance once: the card's picture is of one"
        raise InputError(f"{len(relevance)} folders of relevance", remedy=remedy)
    if (params.grades or params.measure) and not mteb:
        remedy = "leave publish.measure and publish.grades away, or give --layout mteb"
        raise InputError("a measure or grades of sampled pairs", remedy=remedy)


def _require_judgements_alone(params: PublishParams, labels: Sequence[Path]) -> None:
    if params.layout != "mteb":
        remedy = "give --layout mteb; sampled pairs take judgements as a measure"
        raise InputError("judgements with the layout pairs", remedy=remedy)
    if labels or params.measure:
        remedy = "leave --shards, --relevance and --measure out, or the judgements"
        raise InputError("judgements, and a measure's labels", remedy=remedy)
    if params.by_p:
        remedy = "write thresholds on the scale of the judgements: --grades fits=4"
        raise InputError("judgements, and grades that are probabilities", remedy=remedy)


def _open_splits(
    folders: Sequence[Path], captions_dir: Path, params: PublishParams
) -> tuple[list[PublishedSplit], Judged | None]:
    """The labels of each split: of `shards`, or for mteb of `relevance`; or of judgements, and what
    is known of these.

    InputError for other folders and captions, for a split that comes twice or has no name, and
    without any.
    """
    if params.judgements:
        split, judged = judged_split(captions_dir, params)
        return [replace(split, name=_published_name(split.captions.split, params))], judged
    mteb = params.layout == "mteb"
    splits = dict[str, PublishedSplit]()
    kinds = "--shards, --relevance or --judgements" if mteb else "--shards"
    one_of_each = f"give {kinds}, one of each split"
    for folder in folders:
        kind = "shards"
        if mteb and (folder / MANIFEST).is_file():
            kind = parse_manifest(folder / MANIFEST)["kind"]
        if kind not in ("shards", "relevance"):
            remedy = "give a folder of capgrade relevance or shards"
            raise InputError(f"a {kind} folder", file=folder, remedy=remedy)
        manifest = read_manifest(folder, kind)
        labels = Labels.load(folder, captions=captions_dir)
        name = _published_name(labels.table.split, params)
        if name in splits:
            raise InputError(f"split '{name}' is given twice", remedy=one_of_each)
        splits[name] = PublishedSplit(name, labels, labels.table, manifest)
    if not splits:
        raise InputError("no labels to publish", remedy=one_of_each)
    known = {split.captions.split for split in splits.values()}
    if other := sorted(params.splits.keys() - known):
        problem = f"publish.splits names '{other[0]}'"
        raise InputError(problem, remedy=f"name a split of the labels: {', '.join(sorted(known))}")
    return list(splits.values()), None


def _published_name(split: str, params: PublishParams) -> str:
    """What a split is called as it is published: as it was chosen, or as the captions call it.

    InputError where neither says, and for a name that the hub does not take.
    """
    if split in params.splits:
        name = params.splits[split]
        if name != hub_split(name) or not name:
            remedy = f"of letters, digits and _, and not all: {hub_split(name) or 'test'}"
            raise InputError(f"split name '{name}'", remedy=remedy)
        return name
    if split == NO_SPLIT:
        problem = "no split name: the captions have none, and the hub reserves the name all"
        raise InputError(problem, remedy=f"name it: --splits {NO_SPLIT}=test, or train")
    return hub_split(split)


def _require_agreement_of(
    splits: Sequence[PublishedSplit], params: PublishParams, figures: dict[str, Any], file: Path
) -> None:
    """InputError where `figures`, read from `file`, have a published measure of other parameters
    than a split's labels, or do not say of which."""
    for split in splits:
        labels, found = split.labels, figures.get("params", {})
        chosen = labels.measures
        if params.layout == "mteb":
            chosen = [labels.choose_measure(params.measure)]
        made_with = labels.made_with or {}
        judged = [name for name in chosen if name in figures["measures"] and name in made_with]
        if untold := [name for name in judged if name not in found]:
            problem = f"does not say with which parameters {untold[0]} was computed"
            remedy = "make it again: capgrade agree --captions --out, or leave it out"
            raise InputError(problem, file=file, remedy=remedy)
        # own pairs are among the judged ones
        other = [name for name in judged if not alike(made_with[name], found[name], own=True)]
        if other:
            folder = Path(labels.file).name
            problem = (
                f"{' and '.join(other)} {'has' if len(other) == 1 else 'have'} other parameters"
                f" than in {folder}"
            )
            remedy = f"make it with those of {folder}: capgrade agree --set, or leave it out"
            raise InputError(problem, file=file, remedy=remedy)


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
