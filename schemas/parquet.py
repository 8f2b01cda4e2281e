"""Parquet files of others, opened once their size and their columns are known to be sane."""

from pathlib import Path

import pyarrow.parquet as pq

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading, refuse_unpacked

PARQUET = "Parquet file"
_ROWS_OF_A_BYTE = 8  # at most: a row has an id, or a picture


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file, whose rows are not read yet. InputError for a damaged one, for a column that
    comes twice, and for more rows or bytes than a file of its size has."""
    open_bytes(path).close()
    with reading(path, "Parquet file"):
        file = pq.ParquetFile(path)
        names, size = file.schema_arrow.names, path.stat().st_size
        groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    if twice := [name for name in names if names.count(name) > 1]:
        problem = f"column '{twice[0]}' comes twice"
        raise InputError(problem, file=path, remedy="rename one of the two")
    if file.metadata.num_rows > _ROWS_OF_A_BYTE * size:
        problem = f"{file.metadata.num_rows:,} rows in {size:,} bytes"
        raise InputError(problem, file=path, remedy="write it again")
    refuse_unpacked(max((group.total_byte_size for group in groups), default=0), size, path)
    return file
