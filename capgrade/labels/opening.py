"""Opening labels: a folder of `shards`, `relevance` or `publish`, or its copy from the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.labels.layout import hub_name, hub_split
from capgrade.labels.opened import Opened
from capgrade.labels.stored import Dense, Sampled, SampledPart, Stored
from capgrade.schemas.arrow import ArrowFile, metadata_of, write_arrow
from capgrade.schemas.captions import SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import (
    CACHE,
    MANIFEST,
    cache_folder,
    digest,
    in_order,
    package_version,
    parse_manifest,
    read_manifest,
)
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import warn
from capgrade.schemas.shards import read_shards, scored_reason, shard_batches, shard_schema

# Columns that a dataset and the captions it was published from have in common.
SAME = ["image_id", "caption_id", "caption"]
CAPTIONS_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "split"])
_PAIRS = {
    "image_id": pa.string(),
    "caption_id": pa.string(),
    "reasons": pa.list_(pa.string()),
    "weight": pa.float32(),
}
HELD = {"params": dict, "measures": dict, "inputs": dict, "tokenizer": str}  # what a manifest has
_AGAIN = "publish it again: capgrade publish"


def open_labels(
    where: str | Path,
    measures: Sequence[str] | None,
    split: str | None,
    captions: str | Path | None,
    revision: str | None,
) -> Opened:
    """As `Labels.load`."""
    folder = Path(where)
    if folder.is_dir():
        if revision is not None:
            raise InputError("a folder has no revision", file=folder, remedy="leave revision out")
    else:
        name, at = hub_name(str(where))
        from capgrade.labels.hub import download

        folder = download(name, revision or at)
    if not (folder / MANIFEST).is_file():
        remedy = "give a folder of capgrade shards, relevance or publish, or USER/NAME of the hub"
        raise InputError(f"no {MANIFEST}: no labels", file=folder, remedy=remedy)
    kind = parse_manifest(folder / MANIFEST)["kind"]
    if kind not in _KINDS:
        raise InputError(
            f"a {kind} folder", file=folder, remedy=f"give a folder of capgrade {', '.join(_KINDS)}"
        )
    return _KINDS[kind](folder, measures, split, captions)


def _choose_measures(
    measures: Sequence[str] | None, known: Sequence[str], folder: Path
) -> list[str]:
    if measures is not None and not measures:
        remedy = choose_from("", known)
        raise InputError("an empty list of measures", file=folder, remedy=remedy)
    chosen = (
        [measures] if isinstance(measures, str) else list(known if measures is None else measures)
    )
    for name in chosen:
        if name not in known:
            raise InputError(f"no measure '{name}'", file=folder, remedy=choose_from(name, known))
    return chosen


def _open_published(
    folder: Path, measures: Sequence[str] | None, split: str | None, source: str | Path | None
) -> Opened:
    manifest, captions = published_captions(folder, split)
    if source is not None:
        other = read_captions(Path(source), split or captions.split)
        if not captions.table.select(SAME).equals(other.table.select(SAME)):
            remedy = (
                f"give the captions it was published from, or choose its split '{captions.split}'"
                " of them"
            )
            raise InputError(
                f"published from other captions than split '{other.split}'",
                file=folder,
                remedy=remedy,
            )
    calibrated = manifest.get("calibration", {}).get("columns", {})
    names = _choose_measures(measures, [*manifest["measures"], *calibrated], folder)
    batches, reasons = _read_pairs(folder, manifest, captions, [*manifest["measures"], *calibrated])
    stored = _sampled_pairs(batches, names, captions.n_captions, reasons)
    labels = _labels_of_captions(folder, stored, captions, manifest["measures"], manifest["inputs"])
    return replace(labels, calibrated=calibrated)


def _read_pairs(
    folder: Path, manifest: dict[str, Any], captions: Captions, names: Sequence[str]
) -> tuple[list[pa.RecordBatch], list[str]]:
    """The pairs of a published split as batches of shards, and the names of their reasons. They are
    kept in `$CAPGRADE_CACHE/published` and mapped by every process; in memory, with a warning,
    where nothing may be written.
    """
    name = hashlib.sha256(
        f"{digest(folder / MANIFEST)} {captions.split} {package_version()}".encode()
    ).hexdigest()
    path = cache_folder() / "published" / f"{name[:32]}.arrow"
    with suppress(InputError):  # a missing or damaged file is written again
        return _map_pairs(path)
    schema, batches = published_shards(folder, manifest, captions, names)
    try:
        write_arrow(path, schema, batches, CACHE)
    except InputError as error:
        warn(f"the pairs of {folder} cannot be kept, so every process reads them anew: {error}")
        return batches, metadata_of(schema)["reasons"]
    return _map_pairs(path)


def _map_pairs(path: Path) -> tuple[list[pa.RecordBatch], list[str]]:
    file = ArrowFile(path)
    return [file.get_batch(k) for k in range(file.num_record_batches)], metadata_of(file.schema)[
        "reasons"
    ]


def published_captions(folder: Path, split: str | None = None) -> tuple[dict[str, Any], Captions]:
    """The manifest of a published folder, or of its copy from the hub, and the captions of a split.

    Raises InputError for an unfinished or damaged folder, an unknown split, or a choice that is not
    made.
    """
    manifest = read_manifest(folder, "publish")
    lacks = [key for key, kind in HELD.items() if not isinstance(manifest.get(key), kind)]
    if not lacks and not isinstance(manifest["inputs"].get("captions"), str):
        lacks = ["inputs.captions"]
    block = {} if "params" in lacks else manifest["params"].get("publish")
    if isinstance(block, dict) and block.get("layout") == "mteb":
        problem = "a benchmark in the layout of mteb, without weights and reasons"
        raise InputError(problem, file=folder, remedy="run capgrade publish without --layout")
    if lacks:
        raise InputError(f"its manifest has no {lacks[0]}", file=folder, remedy=_AGAIN)
    splits = sorted(
        {
            Path(name).name.rsplit("-", 3)[0]
            for name in manifest["files"]
            if name.startswith("captions/")
        }
    )
    split = _choose_split(split, splits, folder)
    table = pa.concat_tables(
        _parquet(path, CAPTIONS_SCHEMA) for path in _files(folder, manifest, f"captions/{split}")
    )
    table = table.append_column("split", pa.array([split] * table.num_rows, pa.string())).select(
        SCHEMA.names
    )
    table = table.combine_chunks().cast(SCHEMA)
    if not table.num_rows:
        raise InputError("no captions", file=folder / "captions")
    return manifest, Captions(table, split, manifest["tokenizer"], manifest["inputs"]["captions"])


def published_shards(
    folder: Path, manifest: dict[str, Any], captions: Captions, names: Sequence[str]
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The pairs of a published split with these columns of values, laid out as shards are.
    InputError for damaged ones, and for a pair of what the captions lack."""
    image_ids = pa.array(captions.image_ids)
    caption_ids = captions.table["caption_id"].combine_chunks()
    calibrated = manifest.get("calibration", {}).get("columns", {})  # column -> measure
    reasons, parts = pa.array([], pa.string()), []
    for path in _files(folder, manifest, f"relevance/{captions.split}"):
        table = _parquet(path, pa.schema({**_PAIRS, **dict.fromkeys(names, pa.float32())}))
        image = pc.index_in(table["image_id"], image_ids)
        caption = pc.index_in(table["caption_id"], caption_ids)
        if image.null_count or caption.null_count:
            raise InputError("a pair of an image or caption that the captions lack", file=path)
        reason_lists = table["reasons"].combine_chunks()
        reason_names = pc.list_flatten(reason_lists)
        reasons = pc.unique(pa.concat_arrays([reasons, reason_names]))
        bits = np.left_shift(
            np.uint64(1), pc.index_in(reason_names, reasons).to_numpy().astype(np.uint64)
        )
        pair = pc.list_parent_indices(reason_lists).to_numpy()
        kept = {
            "image": image.to_numpy(),
            "captions": caption.to_numpy(),
            "reasons": np.bincount(pair, bits, len(reason_lists)).astype(np.uint32),
        }
        values = {name: table[name].to_numpy() for name in ("weight", *names)}
        partial = {
            name
            for name in names
            if scored_reason(calibrated.get(name, name)) in reasons.to_pylist()
        }
        for name, numbers in values.items():
            if name not in partial and np.isnan(numbers).any():
                row = f"pairs[{int(np.isnan(numbers).argmax())}]"
                raise InputError(f"column '{name}' has no value", file=path, row=row, remedy=_AGAIN)
        parts.append({**kept, **values})
    flat = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    image = flat.pop("image")
    if (np.diff(image) < 0).any():
        raise InputError("pairs are not in the order of images", file=folder, remedy=_AGAIN)
    schema = shard_schema(names, {"reasons": reasons.to_pylist()})
    return schema, list(shard_batches(schema, captions.image_ids, image, flat))


def _choose_split(split: str | None, known: list[str], folder: Path) -> str:
    if split is None and len(known) > 1:
        raise InputError(
            f"several splits: {', '.join(known)}",
            file=folder,
            remedy="choose one by {split}",
            keys=("split",),
        )
    if not known or (split is not None and hub_split(split) not in known):
        raise InputError(f"no split '{split}'", file=folder, remedy=choose_from(split, known))
    return known[0] if split is None else hub_split(split)


def _files(folder: Path, manifest: dict[str, Any], prefix: str) -> list[Path]:
    return [
        folder / name
        for name in in_order(n for n in manifest["files"] if n.rsplit("-", 3)[0] == prefix)
    ]


def _parquet(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return (
            pq.read_table(path, columns=schema.names)
            .select(schema.names)
            .combine_chunks()
            .cast(schema)
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = f"not a table of {', '.join(schema.names)} ({' '.join(str(error).split())})"
        raise InputError(problem, file=path, remedy=_AGAIN) from error


def _require_split(own_split: str | None, split: str | None, folder: Path) -> None:
    if split not in (None, own_split):
        raise InputError(
            f"labels of split '{own_split}', not of '{split}'",
            file=folder,
            remedy="choose that split",
        )


def _open_shards(
    folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None
) -> Opened:
    shards = read_shards(folder)
    facts, batches = shards.metadata, list(shards.batches())
    _require_split(facts["split"], split, folder)
    n_captions, made_with = int(facts["n_captions"]), facts["params"]["measures"]
    stored = _sampled_pairs(
        batches, _choose_measures(measures, shards.measures, folder), n_captions, facts["reasons"]
    )
    if captions is not None:
        table = read_captions(Path(captions), facts["split"])
        shards.require(table)
        return _labels_of_captions(folder, stored, table, made_with, shards.manifest["inputs"])
    image_ids = [name for batch in batches for name in batch["image_id"].to_pylist()]
    owner = np.full(n_captions, -1, np.int64)
    for (image, caption), own in zip(stored.kept_pairs(), stored.kept_for("own"), strict=True):
        owner[caption[own]] = image[own]
    return Opened(folder, stored, image_ids, n_captions, owners=owner, made_with=made_with)


def _sampled_pairs(
    batches: Sequence[pa.RecordBatch], names: Sequence[str], n_captions: int, reasons: Sequence[str]
) -> Sampled:
    """The pairs of shards' batches, without a copy of the columns that have no nulls."""
    parts = []
    for batch in batches:
        offsets = batch["captions"].offsets.to_numpy().astype(np.int64)
        columns = []
        for name in ("captions", "weight", "reasons", *names):
            # A value that is not known is null, and a NaN here; other columns stay where they lie.
            columns.append(batch[name].flatten().to_numpy(zero_copy_only=False))
        captions, weights, bits, *values = columns
        by_measure = dict(zip(names, values, strict=True))
        parts.append(SampledPart(offsets - offsets[0], captions, weights, bits, by_measure))
    return Sampled(names, n_captions, parts, reasons)


def _open_relevance(
    folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None
) -> Opened:
    manifest = read_manifest(folder, "relevance")
    files = [Path(name) for name in sorted(manifest["files"]) if name.endswith(".arrow")]
    made_with = manifest["params"]["measures"]
    names = _choose_measures(measures, [file.stem for file in files], folder)
    matrices = {name: read_relevance(folder / f"{name}.arrow") for name in names}
    first = next(iter(matrices.values()))
    _require_split(first.metadata.get("split"), split, folder)
    if captions is None:
        return Opened(
            folder, Dense(matrices), first.image_ids, first.n_captions, made_with=made_with
        )
    table = read_captions(Path(captions), first.metadata.get("split"))
    for matrix in matrices.values():
        matrix.require(table)
    return _labels_of_captions(folder, Dense(matrices), table, made_with)


def _labels_of_captions(
    folder: Path,
    stored: Stored,
    captions: Captions,
    made_with: dict[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Opened:
    return Opened(
        folder,
        stored,
        captions.image_ids,
        captions.n_captions,
        captions.owner,
        captions,
        made_with,
        inputs or {},
    )


_KINDS: dict[str, Callable[[Path, Sequence[str] | None, str | None, str | Path | None], Opened]] = {
    "shards": _open_shards,
    "relevance": _open_relevance,
    "publish": _open_published,
}
