"""Stage `publish`: captions and graded relevance as a Hugging Face dataset folder with its card and
checksums."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capgrade.labels import Labels
from capgrade.labels.published import CARD, CROISSANT, SUMS, hub_split
from capgrade.pipelines.publish.card import dataset_card
from capgrade.pipelines.publish.croissant import croissant
from capgrade.pipelines.publish.mteb import benchmark
from capgrade.pipelines.publish.tables import PICTURE, sampled_pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    atomic,
    digest,
    parse_manifest,
    read_manifest,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.own_pairs import distribution
from capgrade.schemas.params import PublishParams
from capgrade.schemas.say import warn
from capgrade.text.language import describe_other_language

LICENCE = "set publish.license (an SPDX id such as cc-by-4.0), or --license"
COLOURS = ("#0063b1", "#c4500a")  # series 1 and 2 of the pages' style.css


def publish(
    captions_dir: Path,
    labels_dirs: Sequence[Path],
    out: Path,
    params: PublishParams,
    agreement: dict[str, Any] | None = None,
    relevance_dir: Path | None = None,
    calibration: Path | None = None,
) -> dict[str, Any]:
    """Write a folder that `datasets.load_dataset` reads, one split for each folder of labels. The
    same input gives the same bytes. Returns the manifest.

    The layout `pairs` is of folders of `shards`. Config `captions` has one row per caption;
    `relevance` one row a kept image-caption pair with every measure, the reasons it was kept and
    its sampling weight, and unless `params.left_out` is false the values of own pairs without the
    caption among its references. With `calibration` (from `agree`), also what each value of a
    calibrated measure means to people: columns `<measure>_score`, 0..5, and `<measure>_accepted`,
    0..1. The distributions of `relevance_dir` (from `relevance`) go into the card's picture.

    The layout `mteb` is of folders of `relevance` or `shards`: pairs that reach the first of
    `params.grades`, and own pairs. mteb counts every other pair as 0, also what was not sampled, so
    that dense labels are the right source.

    `agreement` (from `agree`) goes into the card. Raises InputError without a licence, for a
    repository that cannot be, without a language for captions that are not English, for a folder
    that something else wrote, when labels, calibration and captions do not belong together, where
    labels do not have the measure, and when one of them changes while it is read.
    """
    mteb = params.layout == "mteb"
    if not params.license:
        raise InputError("no licence given", remedy=LICENCE)
    if params.repository:
        from capgrade.labels.hub import require_name

        require_name(params.repository)  # said before anything is computed
    if mteb and not params.grades:
        remedy = "name rising thresholds: --set publish.grades='{related: 0.5, fits: 0.7}'"
        raise InputError("no grades given", remedy=remedy)
    unwanted = {"relevance_dir": relevance_dir, "calibration": calibration}
    if unused := [name for name, given in unwanted.items() if given and mteb]:
        remedy = "leave it out: its columns and its picture are not of a benchmark"
        raise InputError(f"{unused[0]} with the layout mteb", remedy=remedy)
    if (params.grades or params.measure) and not mteb:
        remedy = "leave publish.measure and publish.grades away, or give --layout mteb"
        raise InputError("a measure or grades of sampled pairs", remedy=remedy)
    labelled = {f"labels {k}": folder for k, folder in enumerate(labels_dirs, 1)}
    sources = {
        "captions": captions_dir,
        "relevance": relevance_dir,
        "calibration": calibration,
        **labelled,
    }
    read = found_digests(**sources)
    labels = [_labels(folder, captions_dir, mteb) for folder in labels_dirs]
    captions = [one.table for one in labels]
    names = [hub_split(one.split) for one in captions]
    if not names or len(set(names)) < len(names):
        problem = (
            f"split '{max(names, key=names.count)}' is given twice"
            if names
            else "no labels to publish"
        )
        raise InputError(
            problem, remedy=f"give --shards{' or --relevance' if mteb else ''}, one of each split"
        )
    params = params.model_copy(
        update={"language": _languages(params.languages, captions_dir, captions)}
    )
    with output_folder(out, "publish") as folder:
        if mteb:
            contents = benchmark(captions_dir, labels, folder, params)
        else:
            contents = sampled_pairs(captions_dir, labels, folder, params, calibration)
        contents = replace(contents, agreement=agreement, relevance_dir=relevance_dir)
        if relevance_dir:
            draw_distributions(relevance_dir, captions[0].digest, folder / PICTURE)
        beside = [CARD, CROISSANT, *([PICTURE] if relevance_dir else [])]
        write_json(folder / CROISSANT, croissant(contents))
        write_text(folder / CARD, dataset_card(contents))
        sums = {name: digest(folder / name) for name in beside} | {
            n: e["sha256"] for n, e in contents.files.items()
        }
        write_text(folder / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
        inputs = {
            f"{one.kind} {one.name}": digest(Path(one.labels.file) / MANIFEST)
            for one in contents.splits
        }
        inputs |= contents.read | {"captions": captions[0].digest}
        inputs |= {name: sha for name, sha in read.items() if name in ("relevance", "calibration")}
        require_unchanged(read, found_digests(**sources))
        # what `explore` scores new captions with
        facts: dict[str, Any] = {"tokenizer": captions[0].tokenizer, "measures": contents.used}
        facts |= {"calibration": contents.calibrated.facts()} if contents.calibrated else {}
        rows = {
            **{name: entry["rows"] for name, entry in contents.files.items()},
            **dict.fromkeys([*beside, SUMS], 0),
        }
        made_with = params.model_dump(mode="json")
        return write_manifest(
            folder, "publish", params=made_with, inputs=inputs, rows=rows, **facts
        )


def _labels(folder: Path, captions_dir: Path, mteb: bool) -> Labels:
    """Those of one split, from `shards`, or for mteb `relevance`. InputError for other folders and
    captions."""
    kind = (
        parse_manifest(folder / MANIFEST)["kind"]
        if mteb and (folder / MANIFEST).is_file()
        else "shards"
    )
    if kind not in ("shards", "relevance"):
        raise InputError(
            f"a {kind} folder", file=folder, remedy="give a folder of capgrade relevance or shards"
        )
    read_manifest(folder, kind)
    return Labels.load(folder, captions=captions_dir)


def _languages(
    given: Sequence[str], captions_dir: Path, splits: Sequence[Captions]
) -> tuple[str, ...]:
    """The languages that are given; without any `en`, unless half of a split's captions have no
    English word."""
    for captions in splits:
        if not given and (found := describe_other_language(captions, 0.5)):
            remedy = (
                "say which languages they are in: --set publish.language=de, or '--set"
                " publish.language=[en, de]'"
            )
            problem = f"no language given, and these captions seem not to be English alone: {found}"
            raise InputError(problem, file=captions_dir, remedy=remedy)
        if {one.lower().split("-")[0] for one in given} <= {"en"} and (
            found := describe_other_language(captions)
        ):
            warn(f"{captions_dir}: the card will say that these captions are English, but {found}")
    return tuple(given) or ("en",)


def draw_distributions(relevance_dir: Path, captions_digest: str, out: Path) -> None:
    """Draw the distributions that `capgrade relevance` counted as PNG, a panel a measure; the same
    bytes each time.

    Raises InputError when the relevance was made from other captions.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    manifest = read_manifest(relevance_dir, "relevance")
    if manifest["inputs"].get("captions") != captions_digest:
        remedy = "make it for these captions: capgrade relevance"
        raise InputError("made from another captions table", file=relevance_dir, remedy=remedy)
    names = manifest["params"]["measures"]
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
        # no version, the same bytes
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
