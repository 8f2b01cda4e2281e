"""Sampled shards: one row per image, the captions it keeps as list columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import in_order, metadata_of, of_all, open_arrow, read_manifest, with_metadata


def shard_schema(measures: Sequence[str], metadata: dict[str, Any]) -> pa.Schema:
    """image_id; image: its number; and lists over the kept captions: their rows in the captions table of the split,
    why each was kept (bits named in the metadata), the inverse of its probability of being kept, and its value
    under every measure."""
    fields = [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("image", pa.int32(), nullable=False),
        pa.field("captions", pa.list_(pa.int32()), nullable=False),
        pa.field("reasons", pa.list_(pa.uint32()), nullable=False),
        pa.field("weight", pa.list_(pa.float32()), nullable=False),
        *(pa.field(name, pa.list_(pa.float32()), nullable=False) for name in measures),
    ]
    return with_metadata(pa.schema(fields), {"kind": "shards", "measures": list(measures), **metadata})


def shard_name(k: int, n: int) -> str:
    """The name of shard k, from 0, of n."""
    return f"shard-{of_all(k, n)}.arrow"


@dataclass(frozen=True)
class Shards:
    """A finished shards folder."""

    folder: Path
    manifest: dict[str, Any]
    schema: pa.Schema

    @property
    def metadata(self) -> dict[str, Any]:
        """What made them: measures, parameters, reasons, captions digest, split, versions."""
        return metadata_of(self.schema)

    @property
    def measures(self) -> list[str]:
        return self.metadata["measures"]

    @property
    def files(self) -> list[Path]:
        """In image order."""
        return [self.folder / name for name in in_order(self.manifest["files"])]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches in image order, memory-mapped."""
        for path in self.files:
            reader = open_arrow(path)
            for k in range(reader.num_record_batches):
                yield reader.get_batch(k)

    def require(self, captions: Captions) -> None:
        """InputError when the shards were made from other captions or another split."""
        if (self.metadata["captions"], self.metadata["split"]) != (captions.digest, captions.split):
            raise InputError(
                f"made from another captions table (split {self.metadata['split']})",
                file=self.folder, remedy="make them for these captions: capgrade shards",
            )  # fmt: skip


def read_shards(folder: Path) -> Shards:
    """Open a shards folder. InputError when unfinished, incomplete or truncated."""
    manifest = read_manifest(folder, "shards")
    for name in manifest["files"]:
        file = open_arrow(folder / name)
        file.need(pa.schema([]), ["measures", "captions", "split", "reasons"])
        with file.whole():
            file.need(shard_schema(metadata_of(file.schema)["measures"], {}))
    return Shards(folder, manifest, open_arrow(folder / min(manifest["files"])).schema)
