"""Parquet as `datasets` writes it: pages that a reader finds by their rows, and chunks that stay
when rows move."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capgrade.pipelines.publish import tables

ROWS, INSERTED, BATCH = 400_000, 101, 10_000


def test_every_column_has_a_page_index(made: Path) -> None:
    files = list((made / "out").glob("*/*.parquet"))
    assert len(files) == 4
    for file in files:
        metadata = pq.ParquetFile(file).metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = [group.column(k) for k in range(group.num_columns)]
            assert all(one.has_offset_index and one.has_column_index for one in columns)


def written(table: pa.Table, path: Path) -> bytes:
    """By small batches, as of shards."""
    assert (
        tables.write_parquet(path, table.schema, iter(table.to_batches(BATCH)))[0] == table.num_rows
    )
    assert pq.read_table(path).equals(table)
    return path.read_bytes()


def share_kept(old: bytes, new: bytes) -> float:
    """The part of 500 places in the new file whose next 64 bytes stand somewhere in the old one."""
    starts = np.linspace(0, len(new) - 64, 500, dtype=int)
    return float(np.mean([new[start : start + 64] in old for start in starts]))


@pytest.mark.parametrize("chunked", [True, False])
def test_most_bytes_stay_where_rows_are_put_in_at_the_beginning(
    chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Xet does not send again (https://huggingface.co/blog/parquet-cdc); without chunks by
    content it sends nearly all. The first rows are repeated, as new values would number the
    dictionaries anew, which no chunking helps against."""
    monkeypatch.setitem(tables.AS_DATASETS, "use_content_defined_chunking", chunked)
    rng = np.random.default_rng(0)
    captions, values = rng.integers(0, 5000, (2, ROWS))
    table = pa.table(
        {"caption_id": captions.astype(str), "rouge_l": (values / 5000).astype(np.float32)}
    )
    old = written(table, tmp_path / "old.parquet")
    new = written(pa.concat_tables([table.slice(0, INSERTED), table]), tmp_path / "new.parquet")
    share = share_kept(old, new)
    assert share > 0.7 if chunked else share < 0.1


def test_groups_have_so_many_rows_however_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP", 25_000)
    table = pa.table({"row": np.arange(60_000)})
    written(table, tmp_path / "small.parquet")
    metadata = pq.ParquetFile(tmp_path / "small.parquet").metadata
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [
        25_000,
        25_000,
        10_000,
    ]
