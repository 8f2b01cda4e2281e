"""Reading what `publish` wrote: the captions of a split, its pairs, and the parameters of the
labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.measures import MEASURES
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import SCHEMA, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, in_order, read_manifest
from capgrade.schemas.params import validated
from capgrade.schemas.shards import scored_reason, shard_batches, shard_schema

CAPTIONS_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "split"])
_PAIRS = {
    "image_id": pa.string(),
    "caption_id": pa.string(),
    "reasons": pa.list_(pa.string()),
    "weight": pa.float32(),
}
HELD = {"params": dict, "measures": dict, "inputs": dict, "tokenizer": str}  # what a manifest has
_AGAIN = "publish it again: capgrade publish"
CARD, CROISSANT, SUMS = "README.md", "croissant.json", "SHA256SUMS"
BENCHMARK = ("images", "texts", "t2i-qrels", "t2i-gains", "i2t-qrels", "i2t-gains")
FOLDERS = ("captions", "relevance", "figures", *BENCHMARK)  # nothing else belongs in them
# Patterns of all files that a published folder has.
LAYOUT = [
    MANIFEST,
    CARD,
    CROISSANT,
    SUMS,
    *(f"{folder}/*" for folder in FOLDERS),
]


def hub_split(split: str) -> str:
    """A split name that `datasets` accepts: letters, digits and `_`. train+restval becomes
    train_restval, all all_."""
    return re.sub(r"\W|(?<=^all)$", "_", split)


def hub_name(target: str) -> tuple[str, str | None]:
    """USER/NAME, and the revision of USER/NAME@REVISION. InputError for what was meant as a path: a
    place where no name of the hub could stand, or a folder USER that is here."""
    name, _, revision = target.partition("@")
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).parent.is_dir():
        remedy = "check the path; the hub is asked where there is no folder USER"
        raise InputError("no such folder, nor a dataset USER/NAME", file=target, remedy=remedy)
    return name, revision or None


def published_captions(folder: Path, split: str | None = None) -> tuple[dict[str, Any], Captions]:
    """The manifest of a published folder, or of its copy from the hub, and the captions of a split.

    Raises InputError for an unfinished or damaged folder, an unknown split, or a choice that is not
    made.
    """
    manifest = read_manifest(folder, "publish")
    lacks = [key for key, kind in HELD.items() if not isinstance(manifest.get(key), kind)]
    if not lacks and not isinstance(manifest["inputs"].get("captions"), str):
        lacks = ["inputs.captions"]
    if "params" not in lacks and manifest["params"].get("layout") == "mteb":
        problem = "a benchmark in the layout of mteb, without weights and reasons"
        raise InputError(problem, file=folder, remedy="publish it without --layout")
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


def params_of(measures: dict[str, Any], folder: Path) -> MeasuresParams:
    """Parameters from what `MeasuresParams.used` wrote. Imported matrices are left out, and
    mixtures with them: their labels are in the pairs."""
    block = measures_block(measures)
    mixtures = {
        name: weights
        for name, weights in block.get("mixtures", {}).items()
        if not is_imported(measures.get(name, {}))  # one that ranks for another is not among them
    }
    return validated(MeasuresParams, {**block, "imported": {}, "mixtures": mixtures}, file=folder)


def measures_block(used: dict[str, Any], block: dict[str, Any] | None = None) -> dict[str, Any]:
    """The block of params.yaml from what was used, where imported measures and mixtures stand
    beside the others."""
    block = {} if block is None else block
    for name, params in used.items():
        if "imported" in params:
            block.setdefault("imported", {})[name] = params["imported"]
        elif "weights" in params:
            block.setdefault("mixtures", {})[name] = params["weights"]
            measures_block(params["measures"], block)
        elif name in MEASURES:
            kind = MEASURES[name]
            usual = {key: kind.parameters.model_fields[key].default for key in kind.fixed}
            own = {key: value for key, value in params.items() if key != "measures"}
            block.setdefault(kind.block or name, {**own, **usual})
            measures_block(params.get("measures", {}), block)
        else:
            problem = f"its labels are of '{name}', a measure that is not installed here"
            raise InputError(problem, remedy="install the package that brings it")
    return block


def is_imported(used: dict[str, Any]) -> bool:
    """Whether a measure is an imported matrix, or a mixture with one."""
    return any("imported" in part for part in (used, *used.get("measures", {}).values()))


def _choose_split(split: str | None, known: list[str], folder: Path) -> str:
    if split is None and len(known) > 1:
        raise InputError(
            f"several splits: {', '.join(known)}", file=folder, remedy="choose one with --split"
        )
    if not known or (split is not None and hub_split(split) not in known):
        raise InputError(
            f"no split '{split}'", file=folder, remedy=f"choose from: {', '.join(known)}"
        )
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
