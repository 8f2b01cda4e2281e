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
from capgrade.pipelines.publish.tables import (
    CARD,
    CROISSANT,
    MANIFEST,
    PICTURE,
    SUMS,
    Contents,
    Split,
    own_without_themselves,
    write_captions,
    write_pairs,
)
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, digest, read_manifest, write_json, write_manifest, write_text
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import MeasuresParams, PublishParams
from capgrade.schemas.say import warn
from capgrade.schemas.shards import read_shards
from capgrade.text.language import LEAST_ENGLISH, english_share

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
        raise InputError("no licence given", remedy="set publish.license (an SPDX id such as cc-by-4.0), or --license")
    params = params.model_copy(update={"language": _language(params.language, captions_dir, shards_dirs)})
    shards = {f"shards {k}": folder for k, folder in enumerate(shards_dirs, 1)}
    sources = {"captions": captions_dir, "relevance": relevance_dir, "calibration": calibration, **shards}
    with output_folder(out, "publish"):
        read = found_digests(**sources)
        given = (measures or MeasuresParams()) if params.left_out else None
        splits, calibrated = _write_splits(captions_dir, shards_dirs, out, given, calibration)
        rows = {name: count for split in splits for table in split.tables for name, count in table.files.items()}
        files = {
            name: {"rows": rows[name], "bytes": (out / name).stat().st_size, "sha256": digest(out / name)}
            for name in sorted(rows)
        }
        contents = Contents(params, out, captions_dir, splits, files, agreement, relevance_dir, calibrated)
        beside = _write_beside(contents, out)
        inputs = {f"shards {split.name}": digest(split.shards.folder / MANIFEST) for split in splits}
        inputs |= _read_by_measures(splits) | {"captions": splits[0].captions.digest}
        inputs |= {"relevance": digest(relevance_dir / MANIFEST)} if relevance_dir else {}
        inputs |= {"calibration": calibrated.sha256} if calibrated else {}
        require_unchanged(read, found_digests(**sources))
        # what `explore` scores new captions with
        facts = {"tokenizer": splits[0].shards.metadata["tokenizer"], "measures": contents.used}
        facts |= {"calibration": calibrated.facts()} if calibrated else {}
        written, all_rows = params.model_dump(mode="json"), {**rows, **dict.fromkeys(beside, 0)}
        return write_manifest(out, "publish", params=written, inputs=inputs, rows=all_rows, **facts)


def _language(given: str | None, captions_dir: Path, shards_dirs: Sequence[Path]) -> str:
    """The language that is given; without one `en`, if the captions of every split are English."""
    for folder in shards_dirs:
        captions = read_captions(captions_dir, read_shards(folder).metadata["split"])
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


def _write_beside(contents: Contents, out: Path) -> list[str]:
    """The card, the Croissant metadata, the picture and the checksums; their names."""
    names = [CARD, CROISSANT]
    if contents.relevance_dir:
        draw_distributions(contents.relevance_dir, contents.splits[0].captions.digest, out / PICTURE)
        names.append(PICTURE)
    write_json(out / CROISSANT, croissant(contents))
    write_text(out / CARD, dataset_card(contents))
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
