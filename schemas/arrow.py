"""Tables in Arrow IPC files, uncompressed so that they can be memory-mapped."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MAKE_AGAIN, OUT, atomic, canonical, package_version
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading

TABLE_FORMAT = 1
_METADATA = b"capgrade"


def numpy_type(kind: pa.DataType) -> np.dtype:
    """The NumPy type of Arrow's integers and floats.

    Arrow's own `to_pandas_dtype` needs pandas, which need not be installed.
    """
    return np.dtype(f"{'float' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}")


def with_metadata(schema: pa.Schema, metadata: dict[str, Any]) -> pa.Schema:
    """The schema with `metadata`, and the format's and package's versions, as JSON."""
    text = canonical({"format": TABLE_FORMAT, "package": package_version(), **metadata})
    return schema.with_metadata({_METADATA: text.encode()})


def metadata_of(schema: pa.Schema, file: Path | None = None) -> dict[str, Any]:
    """What `with_metadata` stored, or an empty dict. InputError about `file` for damaged text."""
    try:
        metadata = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
    except Exception as error:
        problem = f"the metadata of an Arrow file are damaged ({error})"
        raise InputError(problem, file=file, remedy=MAKE_AGAIN) from error
    return metadata if isinstance(metadata, dict) else {}


def write_arrow(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], allow: str = OUT
) -> int:
    """Write record batches as one Arrow IPC file, uncompressed, so that it can be memory-mapped.

    Returns its rows. Errors as `atomic`.
    """
    rows = 0
    with (
        atomic(path, allow) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as out,
    ):
        for batch in batches:
            out.write_batch(batch)
            rows += batch.num_rows
    return rows


class ArrowFile:
    """An Arrow IPC file in memory map.

    A record batch is validated when it is taken out, as a damaged offset would end the process.
    That reads offsets and texts, but no numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise InputError("no such file", file=path, remedy=f"check the path, or {MAKE_AGAIN}")
        open_bytes(path).close()
        with self.refuse_damaged():
            self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
            self.schema: pa.Schema = self._reader.schema
            self.num_record_batches: int = self._reader.num_record_batches
            self.columns = dict(zip(self.schema.names, self.schema.types, strict=True))
        metadata_of(self.schema, path)  # Damaged ones are refused here, where the file is known.

    def get_batch(self, k: int) -> pa.RecordBatch:
        """One record batch. InputError for a damaged one."""
        with self.refuse_damaged():
            batch = self._reader.get_batch(k)
            batch.validate(full=True)
        return batch

    def read_all(self) -> pa.Table:
        """The whole table. InputError for a damaged one."""
        batches = [self.get_batch(k) for k in range(self.num_record_batches)]
        return pa.Table.from_batches(batches, self.schema)

    def need(self, columns: pa.Schema, metadata: Iterable[str] = ()) -> None:
        """InputError when a column is not there or of another type, or the metadata lack a key."""
        for field in columns:
            if self.columns.get(field.name) != field.type:
                problem = f"no column '{field.name}' of type {field.type}"
                raise InputError(problem, file=self.path, remedy=MAKE_AGAIN)
        for key in metadata:
            if key not in metadata_of(self.schema):
                raise InputError(f"its metadata have no '{key}'", file=self.path, remedy=MAKE_AGAIN)

    def refuse_damaged(self) -> AbstractContextManager[None]:
        """Raise InputError for what the block raises over a damaged file."""
        return reading(self.path, "Arrow file", remedy=MAKE_AGAIN)


def read_arrow(path: Path) -> pa.Table:
    """The whole table of an Arrow IPC file. InputError as `ArrowFile`."""
    return ArrowFile(path).read_all()
