"""Opening labels: a folder of `shards`, `relevance` or `publish`, or its copy from the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.labels.digests import join_texts, nullable
from capgrade.labels.layout import DIGEST, hub_name, hub_split
from capgrade.labels.stored import Complete, Opened, Sampled, Stored
from capgrade.schemas.captions import SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import (
    MANIFEST,
    in_order,
    parse_manifest,
    read_manifest,
)
from capgrade.schemas.pairs import PairLists
from capgrade.schemas.published import from_parquet
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards

# Columns that a dataset and the captions it was published from have in common.
SAME = ["image_id", "caption_id", "caption"]
CAPTIONS_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "split"])
# The same of captions whose texts are not published.
IDS_SCHEMA = pa.schema(
    [
        SCHEMA.field("image_id"),
        SCHEMA.field("caption_id"),
        pa.field(DIGEST, pa.string(), nullable=False),
        SCHEMA.field("image_file"),
    ]
)
HELD = {
    "params": dict,
    "measures": dict,
    "inputs": dict,
    "splits": dict,
    "tokenizer": str,
}  # what a manifest has
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
    manifest, captions = _published_captions(folder, split)
    if source is not None and captions.table["caption"].null_count:
        captions = join_texts(captions, _digests(folder, manifest, captions.split), Path(source))
    elif source is not None:
        named = str(manifest["splits"].get(captions.split, captions.split))
        other = read_captions(Path(source), named)
        if not captions.table.select(SAME).equals(other.table.select(SAME)):
            remedy = f"give the captions it was published from, with their split '{named}'"
            raise InputError(
                f"published from other captions than split '{other.split}'",
                file=folder,
                remedy=remedy,
            )
    calibrated = manifest.get("calibration", {}).get("columns", {})
    names = _choose_measures(measures, [*manifest["measures"], *calibrated], folder)
    parts, reasons = from_parquet(
        _files(folder, manifest, f"relevance/{captions.split}"),
        captions.image_ids,
        captions.table["caption_id"].combine_chunks(),
        {name: calibrated.get(name, name) for name in names},
    )
    stored = Sampled(names, captions.n_captions, parts, reasons)
    labels = _labels_of_captions(folder, stored, captions, manifest["measures"], manifest["inputs"])
    return replace(labels, calibrated=calibrated)


def _published_captions(folder: Path, split: str | None = None) -> tuple[dict[str, Any], Captions]:
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
    ids_alone = isinstance(block, dict) and block.get("captions") == "ids"
    table = _captions_table(folder, manifest, split, IDS_SCHEMA if ids_alone else CAPTIONS_SCHEMA)
    schema, n = SCHEMA, table.num_rows
    if ids_alone:
        table = table.append_column("caption", pa.nulls(n, pa.string()))
        table = table.append_column("tokens", pa.nulls(n, pa.list_(pa.string())))
        unknown = {name: nullable(name) for name in ("caption", "tokens")}
        schema = pa.schema([unknown.get(field.name, field) for field in SCHEMA])
    table = table.append_column("split", pa.array([split] * n, pa.string()))
    table = table.select(SCHEMA.names).combine_chunks().cast(schema)
    if not n:
        raise InputError("no captions", file=folder / "captions")
    return manifest, Captions(table, split, manifest["tokenizer"], manifest["inputs"]["captions"])


def _captions_table(
    folder: Path, manifest: dict[str, Any], split: str, schema: pa.Schema
) -> pa.Table:
    files = _files(folder, manifest, f"captions/{split}")
    return pa.concat_tables(_parquet(path, schema) for path in files)


def _digests(folder: Path, manifest: dict[str, Any], split: str) -> list[str]:
    return _captions_table(folder, manifest, split, IDS_SCHEMA)[DIGEST].to_pylist()


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
    names = _choose_measures(measures, shards.measures, folder)
    parts = [PairLists.from_shards(batch, names) for batch in batches]
    stored = Sampled(names, n_captions, parts, facts["reasons"])
    if captions is not None:
        table = read_captions(Path(captions), facts["split"])
        shards.require(table)
        return _labels_of_captions(folder, stored, table, made_with, shards.manifest["inputs"])
    image_ids = [name for batch in batches for name in batch["image_id"].to_pylist()]
    owner = np.full(n_captions, -1, np.int64)
    for pairs, own in zip(stored.tables(), stored.kept_for("own"), strict=True):
        owner[pairs.caption[own]] = pairs.image[own]
    return Opened(folder, stored, image_ids, n_captions, owners=owner, made_with=made_with)


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
            folder, Complete(matrices), first.image_ids, first.n_captions, made_with=made_with
        )
    table = read_captions(Path(captions), first.metadata.get("split"))
    for matrix in matrices.values():
        matrix.require(table)
    return _labels_of_captions(folder, Complete(matrices), table, made_with)


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
