"""Pairs of a published dataset, read from its Parquet files as they lie, a column at a time: ids
and reasons as numbers of texts, as Parquet has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists, Pairs, scored_reason

_AGAIN = "publish it again: capgrade publish"
_ROWS = 2**16  # of lists of reasons that are read at a time
_BITS = 32  # of reasons
_TEXTS = ("image_id", "caption_id", "reasons")  # columns that are read as numbers of texts
_IMAGES = 1024  # of a part: what is computed of all pairs takes the memory of one


def from_parquet(
    paths: Sequence[Path],
    image_ids: Sequence[str],
    caption_ids: pa.Array,
    columns: Mapping[str, str],
) -> tuple[list[PairLists], list[str]]:
    """The pairs of published files, some images after others, and the name of each bit of
    reasons, from the lowest. Ids become rows of these images and captions; `columns` are those
    of values, each with the measure that it is of.

    InputError for what is no such table, a pair of what the captions lack, one without a
    weight, or without a value of a measure of every pair, and pairs that are not in the order
    of images.
    """
    reasons: list[str] = []
    names = ["image_id", "caption_id", "weight", "reasons", *columns]
    files = [_PublishedPairs(path, names) for path in paths]

    ids = pa.array(image_ids, pa.string())
    image = _joined(file.rows("image_id", ids) for file in files)
    if (np.diff(image) < 0).any():
        problem = "pairs are not in the order of images"
        raise InputError(problem, file=paths[0].parent, remedy=_AGAIN)
    caption = _joined(file.rows("caption_id", caption_ids) for file in files)
    bits = _joined(file.bits(reasons) for file in files)
    weight = _joined(file.numbers("weight") for file in files)
    values = {}
    for name, measure in columns.items():
        some = scored_reason(measure) in reasons
        values[name] = _joined(file.numbers(name, some) for file in files)
    pairs = Pairs(image, caption, weight, values, bits)
    whole = PairLists.from_pairs(pairs, len(image_ids))
    return [whole.of_images(at, at + _IMAGES) for at in range(0, len(whole), _IMAGES)], reasons


def _joined(columns: Iterable[Iterator[np.ndarray]]) -> np.ndarray:
    """A column from its parts in each file."""
    return np.concatenate([part for column in columns for part in column])


class _PublishedPairs:
    """A Parquet file of pairs, read a column at a time: ids and reasons as numbers of texts, as
    Parquet has them."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, names
        metadata = self._read(lambda: pq.read_metadata(path))
        columns = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
        texts = [name for name in columns if name.partition(".")[0] in _TEXTS]
        self.file = self._read(
            lambda: pq.ParquetFile(path, metadata=metadata, read_dictionary=texts)
        )
        if missing := set(names) - set(self.file.schema_arrow.names):
            raise self._refused(f"no column {', '.join(sorted(missing))}")

    def rows(self, name: str, ids: pa.Array) -> Iterator[np.ndarray]:
        """int32: which of the ids each row has."""
        for chunk in self._column(name, pa.dictionary(pa.int32(), pa.string())):
            row = pc.index_in(chunk.dictionary, ids).take(chunk.indices)
            if row.null_count:
                problem = "a pair of an image or caption that the captions lack"
                raise InputError(problem, file=self.path)
            yield row.to_numpy()

    def numbers(self, name: str, some: bool = False) -> Iterator[np.ndarray]:
        """float32, NaN for a null. InputError for a NaN unless `some` values may be missing."""
        first = 0
        for chunk in self._column(name, pa.float32()):
            values = chunk.to_numpy(zero_copy_only=False)
            if not some and np.isnan(values).any():
                row = f"pairs[{first + int(np.isnan(values).argmax())}]"
                problem = f"column '{name}' has no value"
                raise InputError(problem, file=self.path, row=row, remedy=_AGAIN)
            first += len(values)
            yield values

    def bits(self, names: list[str]) -> Iterator[np.ndarray]:
        """uint32: a bit for each reason of a row. Names that are new are added to `names`."""
        kind = pa.list_(pa.dictionary(pa.int32(), pa.string()))
        batches = self._read(lambda: self.file.iter_batches(_ROWS, columns=["reasons"]))
        while (batch := self._read(lambda: next(batches, None))) is not None:
            lists = self._read(lambda batch=batch: batch["reasons"].cast(kind))
            reason, row = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
            known = reason.dictionary.to_pylist()
            names += [name for name in known if name not in names]
            if len(names) > _BITS:
                raise InputError(f"more than {_BITS} reasons", file=self.path, remedy=_AGAIN)
            bit = np.left_shift(1, np.array([names.index(name) for name in known], np.int64))
            sums = np.bincount(row, bit[reason.indices.to_numpy()], len(lists))
            yield sums.astype(np.uint32)

    def _column(self, name: str, kind: pa.DataType) -> list[pa.Array]:
        column = self._read(lambda: self.file.read(columns=[name])[name].cast(kind))
        return list(column.chunks)

    def _read(self, read: Any) -> Any:
        try:
            return read()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._refused(" ".join(str(error).split())) from error

    def _refused(self, why: str) -> InputError:
        problem = f"not a table of {', '.join(self.names)} ({why})"
        return InputError(problem, file=self.path, remedy=_AGAIN)
