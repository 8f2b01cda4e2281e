"""Sampled shards: one row per image, the captions it keeps as list columns.

Format 2 stores the values of own captions without themselves; shards of format 1 are read, and have
none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import by_size, in_order, of_all, read_manifest
from capgrade.schemas.pairs import LEFT_OUT, PairLists

_FORMAT = 2


def shard_schema(
    measures: Sequence[str], metadata: dict[str, Any], left_out: Sequence[str] = ()
) -> pa.Schema:
    """The schema of a row per image: image_id, its number, and lists over the kept captions.

    Lists have captions' rows in the table of the split, why each was kept (bits named in the
    metadata), the inverse of its probability of being kept, and its value by each measure: null
    where that is not known, only of a measure with a `scored_reason`. Of the measures `left_out`
    there is also a list over the own captions, in the order of their rows: the value without the
    caption itself among its references, null where the image has no other.
    """
    fields = [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("image", pa.int32(), nullable=False),
        pa.field("captions", pa.list_(pa.int32()), nullable=False),
        pa.field("reasons", pa.list_(pa.uint32()), nullable=False),
    ]
    for name in ("weight", *measures):
        fields.append(pa.field(name, pa.list_(pa.float32()), nullable=False))
    for name in left_out:
        fields.append(pa.field(name + LEFT_OUT, pa.list_(pa.float32()), nullable=False))
    facts = {"format": _FORMAT, "kind": "shards", "measures": list(measures)}
    return with_metadata(pa.schema(fields), {**facts, **metadata})


def shard_batch(
    schema: pa.Schema,
    image_ids: Sequence[str],
    images: np.ndarray,
    pairs: PairLists,
    own: Sequence[int] | np.ndarray = (),
    left_out: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> pa.RecordBatch:
    """A batch of `shard_schema`: images with their numbers, int [n], and the pairs of each.

    `left_out` has each measure's values of own captions without themselves, of image k those of
    rows own[k] to own[k + 1]. A NaN is null: a value that is not known.
    """
    columns = {"captions": pairs.caption, "reasons": pairs.reasons, "weight": pairs.weight}
    own_columns = {name + LEFT_OUT: values for name, values in left_out.items()}
    arrays = {"image_id": pa.array(image_ids, pa.string()), "image": pa.array(images, pa.int32())}
    for start, lists in ((pairs.start, {**columns, **pairs.values}), (own, own_columns)):
        for name, flat in lists.items():
            kind = schema.field(name).type
            items = pa.array(flat, kind.value_type, from_pandas=True)
            arrays[name] = pa.ListArray.from_arrays(pa.array(start, pa.int32()), items, kind)
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def shard_name(k: int, n: int) -> str:
    """The name of shard k, from 0, of n."""
    return f"shard-{of_all(k, n)}.arrow"


def write_shards(
    out: Path, schema: pa.Schema, parts: Sequence[Path], target_mb: int
) -> tuple[dict[str, int], int]:
    """Write shards from the parts of all blocks. Returns the rows of each, and all pairs."""
    groups = list(by_size(parts, lambda part: part.stat().st_size, target_mb * 2**20))
    rows, pairs = {}, 0
    for k, group in enumerate(groups):
        name = shard_name(k, len(groups))
        batches = []
        for path in group:
            batch = ArrowFile(path).get_batch(0)  # in memory map
            pairs += len(batch["captions"].flatten())
            batches.append(batch)
        rows[name] = write_arrow(out / name, schema, batches)
    return rows, pairs


@dataclass(frozen=True)
class Shards:
    """A finished shards folder."""

    folder: Path
    manifest: dict[str, Any]
    files: list[Path]  # in image order
    schema: pa.Schema
    metadata: dict[str, Any]  # what made them: measures, parameters, reasons, captions, split
    measures: list[str]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches in image order, memory-mapped."""
        for path in self.files:
            reader = ArrowFile(path)
            for k in range(reader.num_record_batches):
                yield reader.get_batch(k)

    def left_out(self, measure: str) -> np.ndarray | None:
        """The value of each caption to its own image without itself: float32 [n_captions].

        NaN where the image has no other caption. None for a measure that cannot leave captions out,
        and for shards of format 1 (`has_left_out`).
        """
        if measure + LEFT_OUT not in self.schema.names:
            return None
        values = np.full(self.metadata["n_captions"], np.nan, np.float32)
        own_bit = 1 << self.metadata["reasons"].index("own")
        for batch in self.batches():
            own = batch["reasons"].flatten().to_numpy() & own_bit > 0
            captions = batch["captions"].flatten().to_numpy()[own]
            values[captions] = batch[measure + LEFT_OUT].flatten().to_numpy(zero_copy_only=False)
        return values

    @property
    def has_left_out(self) -> bool:
        """Whether values of own captions without themselves are stored."""
        return self.metadata["format"] >= _FORMAT

    def require(self, captions: Captions) -> None:
        """InputError when the shards were made from other captions or another split."""
        if (self.metadata["captions"], self.metadata["split"]) != (captions.digest, captions.split):
            raise InputError(
                f"made from another captions table (split {self.metadata['split']})",
                file=self.folder,
                remedy="make them for these captions: capgrade shards",
            )


def read_shards(folder: Path) -> Shards:
    """Open a shards folder. InputError when unfinished, incomplete or truncated."""
    manifest = read_manifest(folder, "shards")
    files = [folder / name for name in in_order(manifest["files"])]
    for path in files:
        file = ArrowFile(path)
        file.need(pa.schema([]), ["measures", "captions", "split", "reasons"])
        with file.refuse_damaged():
            file.need(shard_schema(metadata_of(file.schema)["measures"], {}))
    metadata = metadata_of(file.schema)
    return Shards(folder, manifest, files, file.schema, metadata, metadata["measures"])
