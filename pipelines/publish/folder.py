"""Stage `publish`: captions and sampled relevance as a Hugging Face dataset folder with its card and checksums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capgrade.labels.published import hub_split
from capgrade.measures.own_pairs import distribution
from capgrade.pipelines.publish.card import dataset_card
from capgrade.pipelines.publish.columns import Calibrated, read_calibrated
from capgrade.pipelines.publish.croissant import croissant
from capgrade.pipelines.publish.mteb import Benchmark, benchmark_card, benchmark_labels, write_split
from capgrade.pipelines.publish.tables import (
    CARD,
    CROISSANT,
    MANIFEST,
    PICTURE,
    SUMS,
    Contents,
    Described,
    PublishedTable,
    Split,
    own_without_themselves,
    write_captions,
    write_pairs,
)
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, digest, read_manifest, write_json, write_manifest, write_text
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import MeasuresParams, PublishParams
from capgrade.schemas.say import warn
from capgrade.schemas.shards import read_shards
from capgrade.text.language import LEAST_ENGLISH, english_share

LICENCE = "set publish.license (an SPDX id such as cc-by-4.0), or --license"
COLOURS = ("#0063b1", "#c4500a")  # series 1 and 2 of the pages' style.css


def publish(
    captions_dir: Path,
    shards_dirs: Sequence[Path],
    out: Path,
    params: PublishParams,
    agreement: dict[str, Any] | None = None,
    relevance_dir: Path | None = None,
    calibration: Path | None = None,
    measures: MeasuresParams | None = None,
) -> dict[str, Any]:
    """Write a folder that `datasets.load_dataset(out, "captions" or "relevance")` reads, one split a shards folder.

    Config `captions` has one row per caption; `relevance` one row a kept image-caption pair with every measure, the
    reasons it was kept and its sampling weight, and unless `params.left_out` is false the values of own pairs without
    the caption among its references. With `calibration` (from `agree`), also what each value of a calibrated measure
    means to people: columns `<measure>_score`, 0..5, and `<measure>_accepted`, 0..1. `agreement` (from `agree`) goes
    into the card, the distributions of `relevance_dir` (from `relevance`) into its picture. `measures` names what the
    shards' measures read where that is not the default (`as_named`). The same input gives the same bytes. Returns the
    manifest.
    Raises InputError without a licence, without a language for captions that are not English, for a folder that
    something else wrote, when shards, relevance, calibration and captions do not belong together, and when one of them
    changes while it is read.
    """
    if not params.license:
        raise InputError("no licence given", remedy=LICENCE)
    if params.layout != "pairs" or params.grades:
        raise InputError(
            "grades or a layout of sampled pairs", remedy="leave publish.grades away, or give --layout mteb"
        )
    made = [read_captions(captions_dir, read_shards(folder).metadata["split"]) for folder in shards_dirs]
    params = params.model_copy(update={"language": _language(params.language, captions_dir, made)})
    shards = {f"shards {k}": folder for k, folder in enumerate(shards_dirs, 1)}
    sources = {"captions": captions_dir, "relevance": relevance_dir, "calibration": calibration, **shards}
    with output_folder(out, "publish"):
        read = found_digests(**sources)
        given = (measures or MeasuresParams()) if params.left_out else None
        splits, calibrated = _write_splits(captions_dir, shards_dirs, out, given, calibration)
        tables = tuple(table for split in splits for table in split.tables)
        contents = Contents(
            params, out, captions_dir, _files(tables, out), tables, splits, relevance_dir, calibrated,
            agreement=agreement,
        )  # fmt: skip
        if relevance_dir:
            draw_distributions(relevance_dir, splits[0].captions.digest, out / PICTURE)
        beside = _write_beside(contents, out, dataset_card(contents), [PICTURE] if relevance_dir else [])
        inputs = {f"shards {split.name}": digest(split.shards.folder / MANIFEST) for split in splits}
        inputs |= _read_by_measures(splits) | {"captions": splits[0].captions.digest}
        inputs |= {"relevance": digest(relevance_dir / MANIFEST)} if relevance_dir else {}
        inputs |= {"calibration": calibrated.sha256} if calibrated else {}
        require_unchanged(read, found_digests(**sources))
        # what `explore` scores new captions with
        facts = {"tokenizer": splits[0].shards.metadata["tokenizer"], "measures": contents.used}
        facts |= {"calibration": calibrated.facts()} if calibrated else {}
        written, all_rows = params.model_dump(mode="json"), _rows(contents, beside)
        return write_manifest(out, "publish", params=written, inputs=inputs, rows=all_rows, **facts)


def publish_benchmark(
    captions_dir: Path, labels_dirs: Sequence[Path], out: Path, params: PublishParams,
    agreement: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write a folder in the layout `mteb`, from folders of `relevance` or `shards`, one a split. Returns the manifest.

    Written are pairs that reach the first of `params.grades`, and own pairs. mteb counts every other pair as 0, also
    what was not sampled, so that dense labels are the right source. The same input gives the same bytes.
    Raises InputError as `publish`, and where the labels do not have the measure.
    """
    if not params.license:
        raise InputError("no licence given", remedy=LICENCE)
    if not params.grades:
        remedy = "name rising thresholds: --set publish.grades='{related: 0.5, fits: 0.7}'"
        raise InputError("no grades given", remedy=remedy)
    labels = [benchmark_labels(folder, captions_dir) for folder in labels_dirs]
    names = [hub_split(one.table.split) for one in labels]
    if not names or len(set(names)) < len(names):
        problem = f"split '{max(names, key=names.count)}' is given twice" if names else "no labels to publish"
        raise InputError(problem, remedy="give --relevance, or --shards, one of each split")
    language = _language(params.language, captions_dir, [one.table for one in labels])
    params = params.model_copy(update={"language": language})
    sources = {"captions": captions_dir, **{f"labels {k}": folder for k, folder in enumerate(labels_dirs, 1)}}
    with output_folder(out, "publish"):
        read = found_digests(**sources)
        splits = tuple(write_split(one, out, params) for one in labels)
        tables = tuple(table for split in splits for table in split.tables)
        contents = Benchmark(params, out, captions_dir, _files(tables, out), tables, splits, agreement=agreement)
        beside = _write_beside(contents, out, benchmark_card(contents), [])
        inputs = {f"{one.kind} {one.name}": digest(Path(one.labels.file) / MANIFEST) for one in splits}
        inputs |= {"captions": splits[0].captions.digest}
        require_unchanged(read, found_digests(**sources))
        facts = {"tokenizer": splits[0].captions.tokenizer, "measures": contents.used}
        written, all_rows = params.model_dump(mode="json"), _rows(contents, beside)
        return write_manifest(out, "publish", params=written, inputs=inputs, rows=all_rows, **facts)


def _files(tables: Sequence[PublishedTable], out: Path) -> dict[str, dict[str, Any]]:
    """Rows, bytes and digest of each file."""
    rows = {name: count for table in tables for name, count in table.files.items()}
    return {
        name: {"rows": rows[name], "bytes": (out / name).stat().st_size, "sha256": digest(out / name)}
        for name in sorted(rows)
    }


def _rows(contents: Described, beside: Sequence[str]) -> dict[str, int]:
    """Of each file of the manifest: what stands beside the tables has none."""
    return {**{name: entry["rows"] for name, entry in contents.files.items()}, **dict.fromkeys(beside, 0)}


def _language(given: str | None, captions_dir: Path, splits: Sequence[Captions]) -> str:
    """The language that is given; without one `en`, if the captions of every split are English."""
    for captions in splits:
        if (share := english_share(captions)) >= LEAST_ENGLISH:
            continue
        found = f"of their words {share:.1%} are common English ones"
        if given is None:
            problem = f"no language given, and these captions seem not to be English: {found}"
            remedy = "say which language it is: --set publish.language=de"
            raise InputError(problem, file=captions_dir, remedy=remedy)
        if given.lower().split("-")[0] == "en":
            warn(f"{captions_dir}: the card will say that these captions are English, but {found}")
    return given or "en"


def _write_splits(
    captions_dir: Path, shards_dirs: Sequence[Path], out: Path, given: MeasuresParams | None, calibration: Path | None
) -> tuple[tuple[Split, ...], Calibrated | None]:
    splits: list[Split] = []
    calibrated = None
    for folder in shards_dirs:
        shards = read_shards(folder)
        captions = read_captions(captions_dir, shards.metadata["split"])
        shards.require(captions)
        if any(split.name == hub_split(captions.split) for split in splits):
            raise InputError(f"split '{captions.split}' is given twice", file=folder)
        if splits and shards.measures != splits[0].shards.measures:
            remedy = "make their shards with the same --measures"
            raise InputError("the splits have different measures", file=folder, remedy=remedy)
        own = {} if given is None else own_without_themselves(captions, shards, given)
        calibrated = read_calibrated(calibration, shards) if calibration else None
        tables = write_pairs(captions, shards, out, own, calibrated), write_captions(captions, out)
        if splits and tables[0].schema != splits[0].tables[0].schema:
            remedy = "make their shards with the same self_reference"
            raise InputError("the splits have different columns", file=folder, remedy=remedy)
        splits.append(Split(captions, shards, tables))
    if not splits:
        raise InputError("no shards to publish", remedy="give --shards")
    return tuple(splits), calibrated


def _read_by_measures(splits: Sequence[Split]) -> dict[str, str]:
    """Digests of the files that the measures read, which every split's shards have alike."""
    first: dict[str, str] = {}
    for k, split in enumerate(splits):
        inputs = split.shards.manifest["inputs"]
        read = {key: str(sha) for key, sha in inputs.items() if key not in ("captions", "split")}
        if k and read != first:
            problem = "its measures read other files than the first split's"
            remedy = "make the shards of all splits with the same files"
            raise InputError(problem, file=split.shards.folder, remedy=remedy)
        first = read
    return first


def _write_beside(contents: Described, out: Path, card: str, pictures: Sequence[str]) -> list[str]:
    """The card, the Croissant metadata and the checksums, which are of `pictures` too; all their names."""
    names = [CARD, CROISSANT, *pictures]
    write_json(out / CROISSANT, croissant(contents))
    write_text(out / CARD, card)
    sums = {name: digest(out / name) for name in names} | {n: entry["sha256"] for n, entry in contents.files.items()}
    write_text(out / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    return [*names, SUMS]


def draw_distributions(relevance_dir: Path, captions_digest: str, out: Path) -> None:
    """Draw the distributions that `capgrade relevance` counted as PNG, a panel a measure; the same bytes each time.

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
        for share, kind, colour in zip(shares, ("own captions", "other captions"), COLOURS, strict=True):
            axes.stairs(share, edges, label=kind, color=colour)
        axes.set(title=name, ylabel="share of pairs", yscale="log")
    figure.axes[0].legend(frameon=False)
    with atomic(out) as temporary:
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})  # no version, the same bytes
