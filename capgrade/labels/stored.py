"""Where labels lie, and how the cells of a batch are found there: sampled pairs, dense matrices.

Nothing is copied out of Arrow files: a kernel reads them where they are mapped, by the address of each image's run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from capgrade.schemas.compiled import njit
from capgrade.schemas.files import numpy_type
from capgrade.schemas.relevance import Relevance
from capgrade.schemas.threads import get_num_threads

CELLS = 2**20  # of a block, a thread at a time


class RelevanceBlock(NamedTuple):
    """Relevance of captions to images, as numpy arrays or as tensors; where it is not known it is 0 and means nothing.

    A weight is the inverse of the probability that sampling kept the pair: so many pairs it stands for. It is 1 for
    what was kept for certain, and 0 for what is not known.
    """

    relevance: Any  # float32 [images, captions]
    known: Any = None  # bool [images, captions]; None: everywhere
    weights: Any = None  # float32 [images, captions]; None: 1


class Stored(Protocol):
    """Labels of images (rows) and captions (columns) by number; `sampled`: some are not known."""

    @property
    def measures(self) -> Sequence[str]: ...

    @property
    def sampled(self) -> bool: ...

    def fill(self, images: np.ndarray, captions: np.ndarray, measure: str, block: RelevanceBlock) -> None:
        """Put what is known into the three arrays of a block, [n, m] each, zeros and False before."""
        ...

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The captions whose label is known, int, and their values, float32."""
        ...

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """The images whose label is known, int, and their values, float32."""
        ...

    def span(self, measure: str) -> tuple[float, float]:
        """The smallest and the largest value that is known, or what bounds them."""
        ...


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), code


@njit(nogil=True, cache=True)
def _columns(captions, last, before):
    """Where each caption stands in the batch: `last` its last column, -1 for none; `before` the one before."""
    for j in range(len(captions)):
        before[j] = last[captions[j]]
        last[captions[j]] = j


@njit(nogil=True, cache=True)
def _fill_sampled(images, runs, sizes, labels, stands_for, last, before, values, known, weights):
    for i in range(len(images)):
        size = sizes[images[i]]
        kept = carray(pointer(runs[images[i]]), size, np.int32)
        stored = carray(pointer(labels[images[i]]), size, np.float32)
        weight = carray(pointer(stands_for[images[i]]), size, np.float32)
        for k in range(size):
            j = last[kept[k]]
            while j >= 0:
                values[i, j] = stored[k]
                known[i, j] = True
                weights[i, j] = weight[k]
                j = before[j]


@njit(nogil=True, cache=True)
def _fill_dense(images, captions, columns, rows, n_captions, values):
    """Captions ascend, for memory is read ahead; `columns` are theirs in the batch."""
    for i in range(len(images)):
        stored = carray(pointer(rows[images[i]]), n_captions, values.dtype)
        for j in range(len(captions)):
            values[i, columns[j]] = stored[captions[j]]


@dataclass(frozen=True)
class Part:
    """Kept pairs of some images in order: where each one's run starts, int64 [images + 1]; captions int32 [pairs],
    no caption twice in a run; how many pairs each stands for, float32; why it was kept, uint32, a bit a reason; and
    each measure, float32. Arrays are contiguous, in memory or mapped."""

    start: np.ndarray
    captions: np.ndarray
    weights: np.ndarray
    reasons: np.ndarray
    values: Mapping[str, np.ndarray]


@dataclass
class Sampled:
    """The pairs that sampling kept: of every image a run, wherever it lies."""

    measures: Sequence[str]
    n_captions: int
    parts: Sequence[Part]
    reasons: Sequence[str]  # the name of each bit
    sampled: bool = True
    stand_ins: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)  # for unknown pairs, of each image
    _local: threading.local = field(default_factory=threading.local)

    @cached_property
    def sizes(self) -> np.ndarray:
        """int64 [n_images]: captions kept of each image."""
        return np.concatenate([np.diff(part.start) for part in self.parts])

    @cached_property
    def _runs(self) -> np.ndarray:
        return self._where(part.captions for part in self.parts)

    @cached_property
    def _weights(self) -> np.ndarray:
        return self._where(part.weights for part in self.parts)

    @cached_property
    def _labels(self) -> dict[str, np.ndarray]:
        return {name: self._where(part.values[name] for part in self.parts) for name in self.measures}

    def runs(self, measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """int64 [n_images] each: addresses of the captions of each image, how many, addresses of values and weights."""
        return self._runs, self.sizes, self._labels[measure], self._weights

    def kept_for(self, *names: str) -> Iterator[np.ndarray]:
        """bool [pairs] of each part: kept for one of these reasons."""
        wanted = np.uint32(sum(1 << bit for bit, name in enumerate(self.reasons) if name in names))
        return (part.reasons & wanted > 0 for part in self.parts)

    def span(self, measure: str) -> tuple[float, float]:
        found = [part.values[measure] for part in self.parts if len(part.captions)]
        return float(min(values.min() for values in found)), float(max(values.max() for values in found))

    def _where(self, columns: Iterable[np.ndarray]) -> np.ndarray:
        """int64 [n_images]: the addresses of each image's run of a column of 4 bytes, given of each part."""
        return np.concatenate(
            [column.ctypes.data + 4 * part.start[:-1] for column, part in zip(columns, self.parts, strict=True)]
        )

    def fill(self, images: np.ndarray, captions: np.ndarray, measure: str, block: RelevanceBlock) -> None:
        if not hasattr(self._local, "last"):
            self._local.last = np.full(self.n_captions, -1, np.int32)
        last, before = self._local.last, np.empty(len(captions), np.int32)
        _columns(captions, last, before)

        def some(here: slice) -> None:
            _fill_sampled(images[here], *self.runs(measure), last, before, *(cells[here] for cells in block))

        _in_threads(some, len(images), len(captions))
        last[captions] = -1

    @cached_property
    def _first(self) -> np.ndarray:
        """int64 [parts + 1]: the first image of each part."""
        return np.cumsum([0, *(len(part.start) - 1 for part in self.parts)])

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        at = int(np.searchsorted(self._first, image, side="right")) - 1
        part, row = self.parts[at], image - self._first[at]
        run = slice(part.start[row], part.start[row + 1])
        return part.captions[run], part.values[measure][run]

    @cached_property
    def _by_caption(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs by caption: where each one's start, int64 [n_captions + 1]; their place among all; their image."""
        captions = np.concatenate([part.captions for part in self.parts])
        order = np.argsort(captions, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(captions, minlength=self.n_captions))])
        return start, order, np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)[order]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        start, order, images = self._by_caption
        some = slice(start[caption], start[caption + 1])
        ends = np.cumsum([0, *(len(part.captions) for part in self.parts)])
        part = np.searchsorted(ends, order[some], side="right") - 1
        values = [self.parts[p].values[measure][k - ends[p]] for p, k in zip(part, order[some], strict=True)]
        return images[some], np.array(values, np.float32)


@dataclass
class Dense:
    """A whole matrix of each measure, mapped."""

    matrices: Mapping[str, Relevance]
    sampled: bool = False

    @property
    def measures(self) -> Sequence[str]:
        return list(self.matrices)

    @cached_property
    def _rows(self) -> dict[str, np.ndarray]:
        return {name: _addresses(matrix) for name, matrix in self.matrices.items()}

    def fill(self, images: np.ndarray, captions: np.ndarray, measure: str, block: RelevanceBlock) -> None:
        matrix, columns = self.matrices[measure], np.argsort(captions)
        ascending, half = captions[columns], _item(matrix) == np.float16

        def some(here: slice) -> None:
            values = block.relevance[here]
            block.known[here], block.weights[here] = True, 1
            # numba has no float16: its bits are copied
            cells = np.empty(values.shape, np.uint16) if half else values
            _fill_dense(images[here], ascending, columns, self._rows[measure], matrix.n_captions, cells)
            if half:
                values[:] = cells.view(np.float16)

        _in_threads(some, len(images), len(captions))

    def of_image(self, image: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        matrix = self.matrices[measure]
        return np.arange(matrix.n_captions), matrix.rows(np.array([image]))[0]

    def of_caption(self, caption: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        matrix = self.matrices[measure]
        images = np.arange(sum(batch.num_rows for batch in matrix.batches))
        return images, matrix.cells(images, np.array([caption]))[:, 0]

    def span(self, measure: str) -> tuple[float, float]:
        found = [batch["relevance"].flatten().to_numpy() for batch in self.matrices[measure].batches]
        return float(min(values.min() for values in found)), float(max(values.max() for values in found))


def _in_threads(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Runs of rows of a large block, some at a time."""
    step = max(1, CELLS // max(1, columns))
    spans = [slice(at, at + step) for at in range(0, rows, step)]
    if len(spans) == 1:
        work(spans[0])
        return
    with ThreadPoolExecutor(get_num_threads()) as threads:
        list(threads.map(work, spans))


def _item(matrix: Relevance) -> np.dtype:
    return numpy_type(matrix.schema.field("relevance").type.value_type)


def _addresses(matrix: Relevance) -> np.ndarray:
    """int64 [n_images]: where each image's row lies."""
    found, step = [], _item(matrix).itemsize * matrix.n_captions
    for batch in matrix.batches:
        values = batch["relevance"].flatten().to_numpy()
        found.append(values.ctypes.data + step * np.arange(batch.num_rows, dtype=np.int64))
    return np.concatenate(found)
