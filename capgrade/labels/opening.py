"""Opening labels: which kind of folder it is, and whose ids its rows have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.labels import Labels
from capgrade.labels.published import hub_name, published_captions, published_shards
from capgrade.labels.stored import Dense, Sampled, SampledPart, Stored
from capgrade.measures.embeddings import cache_folder
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    CACHE,
    MANIFEST,
    digest,
    metadata_of,
    open_arrow,
    package_version,
    parse_manifest,
    read_manifest,
    write_arrow,
)
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import warn
from capgrade.schemas.shards import read_shards

# Columns that a dataset and the captions it was published from have in common.
SAME = ["image_id", "caption_id", "caption"]


def open_labels(
    where: str | Path,
    measures: Sequence[str] | None,
    split: str | None,
    captions: str | Path | None,
    revision: str | None,
) -> Labels:
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
    remedy = f"choose from: {', '.join(known)}"
    if measures is not None and not measures:
        raise InputError("an empty list of measures", file=folder, remedy=remedy)
    chosen = (
        [measures] if isinstance(measures, str) else list(known if measures is None else measures)
    )
    for name in chosen:
        if name not in known:
            raise InputError(f"no measure '{name}'", file=folder, remedy=remedy)
    return chosen


def _open_published(
    folder: Path, measures: Sequence[str] | None, split: str | None, source: str | Path | None
) -> Labels:
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
    path = cache_folder().with_name("published") / f"{name[:32]}.arrow"
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
    file = open_arrow(path)
    return [file.get_batch(k) for k in range(file.num_record_batches)], metadata_of(file.schema)[
        "reasons"
    ]


def _require_split(own_split: str | None, split: str | None, folder: Path) -> None:
    if split not in (None, own_split):
        raise InputError(
            f"labels of split '{own_split}', not of '{split}'",
            file=folder,
            remedy="choose that split",
        )


def _open_shards(
    folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None
) -> Labels:
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
    return Labels(folder, stored, image_ids, n_captions, owners=owner, made_with=made_with)


def _sampled_pairs(
    batches: Sequence[pa.RecordBatch], names: Sequence[str], n_captions: int, reasons: Sequence[str]
) -> Sampled:
    """The pairs of shards' batches, without a copy of the columns that have no nulls."""
    parts = []
    for batch in batches:
        offsets = batch["captions"].offsets.to_numpy().astype(np.int64)
        # A value that is not known is null, and a NaN here; other columns stay where they lie.
        flat = {
            name: batch[name].flatten().to_numpy(zero_copy_only=False)
            for name in ("captions", "weight", "reasons", *names)
        }
        columns = flat.pop("captions"), flat.pop("weight"), flat.pop("reasons")
        parts.append(SampledPart(offsets - offsets[0], *columns, flat))
    return Sampled(names, n_captions, parts, reasons)


def _open_relevance(
    folder: Path, measures: Sequence[str] | None, split: str | None, captions: str | Path | None
) -> Labels:
    manifest = read_manifest(folder, "relevance")
    files = [Path(name) for name in sorted(manifest["files"]) if name.endswith(".arrow")]
    made_with = manifest["params"]["measures"]
    names = _choose_measures(measures, [file.stem for file in files], folder)
    matrices = {name: read_relevance(folder / f"{name}.arrow") for name in names}
    first = next(iter(matrices.values()))
    _require_split(first.metadata.get("split"), split, folder)
    if captions is None:
        return Labels(
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
) -> Labels:
    return Labels(
        folder,
        stored,
        captions.image_ids,
        captions.n_captions,
        captions.owner,
        captions,
        made_with,
        inputs or {},
    )


_KINDS: dict[str, Callable[[Path, Sequence[str] | None, str | None, str | Path | None], Labels]] = {
    "shards": _open_shards,
    "relevance": _open_relevance,
    "publish": _open_published,
}
