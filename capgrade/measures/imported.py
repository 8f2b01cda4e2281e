"""Relevance that someone else computed, of all pairs or of some, as a measure.

A matrix is a relevance file of ours (Arrow), or `.npy` of images x captions, or of captions x
images where the shape can be nothing else. Or it is TERAN's `{name}-{split}-{method}.npy`, which
despite its suffix is a headerless float32 memory map of captions x images, -1 where nothing has
been computed (compute_relevance.py). A CSV of judgements gives each judged pair its mean score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from capgrade.measures.base import ArrayState, Fill, Measure, NoParams
from capgrade.measures.pair_files import are_pairs, read_pairs
from capgrade.schemas.arrays import map_npy
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import file_digest
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import warn

NPY_MAGIC = b"\x93NUMPY"
ARROW_MAGIC = b"ARROW1"
NOT_COMPUTED = -1.0


@dataclass(frozen=True)
class FittedImported(ArrayState):
    """The matrix stays in its file, opened by memory map."""

    path: str
    n_images: int
    n_captions: int
    layout: str
    some: bool = False  # it holds NaN: pairs that are not known

    @property
    def columns(self) -> int:
        return self.n_captions

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`; NaN for a pair that is not known.

        InputError for an infinity, and for a value that is not computed yet.
        """
        cells, out = self._cell_reader(), np.empty(len(captions), np.float32)
        order = np.argsort(images, kind="stable")
        different, counts = np.unique(images, return_counts=True)
        for k, rows in zip(range(len(different)), np.split(order, np.cumsum(counts)), strict=False):
            image = different[k : k + 1]
            out[rows] = self._require_computed(cells(image, captions[rows]), image, captions[rows])[
                0
            ]
        return out

    def scored(self, images: np.ndarray) -> np.ndarray | None:
        """As `Fitted.scored`: what is no NaN."""
        return np.flatnonzero(~np.isnan(self.known(images))) if self.some else None

    def known(self, images: np.ndarray) -> np.ndarray:
        """float32 [len(images), n_captions]; NaN for a pair that is not known."""
        values = self._cell_reader()(images, slice(0, self.n_captions))
        return self._require_computed(values, images, np.arange(self.n_captions))

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`: of the file, these cells and no others."""
        if self.some:
            raise _not_all(self.path)
        cells = self._cell_reader()

        def fill(first: int, last: int, out: np.ndarray) -> None:
            values = cells(images, slice(first, last))
            out[:, : last - first] = self._require_computed(values, images, np.arange(first, last))

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return self._require_computed(self._cell_reader()(images, captions), images, captions)

    def _require_computed(
        self, values: np.ndarray, images: np.ndarray, captions: np.ndarray
    ) -> np.ndarray:
        bad = np.isinf(values) if self.some else ~np.isfinite(values)
        if self.layout == "teran":
            bad |= values == NOT_COMPUTED
        if bad.any():
            row, column = np.argwhere(bad)[0]
            value = f"{values[row, column]}{' as float32' if np.isinf(values[row, column]) else ''}"
            problem = (
                f"image {images[row]}, caption {captions[column]} holds {value}: not a relevance"
            )
            remedy = "finish computing the matrix, or leave this measure out"
            raise InputError(problem, file=self.path, remedy=remedy)
        return values

    def _cell_reader(self) -> Callable[[np.ndarray, slice | np.ndarray], np.ndarray]:
        """A function that reads cells, float32 [images, captions].

        It takes images, and a slice or an array of captions.
        """
        if self.layout == "arrow":
            return read_relevance(Path(self.path)).cells
        matrix: np.ndarray
        if self.layout == "teran":
            matrix = np.memmap(self.path, np.float32, "r", shape=(self.n_captions, self.n_images)).T
        else:
            matrix = map_npy(Path(self.path))
            matrix = matrix.T if self.layout == "captions x images" else matrix

        def cells(images: np.ndarray, captions: slice | np.ndarray) -> np.ndarray:
            at = images if isinstance(captions, slice) else images[:, None]
            with np.errstate(over="ignore"):  # what overflows is an infinity, which is refused
                return np.ascontiguousarray(matrix[at, captions], np.float32)

        return cells


class Imported(Measure[NoParams]):
    """A relevance file as a measure. Values are taken as they are, and so is their range."""

    at_once = leaves_out = False

    def __init__(self, name: str, path: str) -> None:
        super().__init__()
        self.name, self.path = name, path
        self.low, self.high = 0.0, 1.0
        self._last: tuple[Captions, FittedImported | FittedPairs] | None = None

    def files(self) -> dict[str, str]:
        return {f"measures.imported.{self.name}": file_digest(Path(self.path))}

    def partial(self, captions: Captions) -> bool:
        """Whether the file lacks pairs of these captions. InputError as `fit`."""
        return self.fit(captions).some

    def own_unknown(self, captions: Captions) -> int:
        """How many own captions have no value. InputError as `fit`."""
        own = self.fit(captions).pairs(captions.owner, np.arange(captions.n_captions))
        return int(np.isnan(own).sum())

    def fit(self, captions: Captions) -> FittedImported | FittedPairs:
        """Check shape and ids against the captions. InputError when they do not match."""
        if self._last is None or self._last[0] is not captions:
            self._last = captions, self._read(captions)
        return self._last[1]

    def _read(self, captions: Captions) -> FittedImported | FittedPairs:
        path = Path(self.path)
        if not path.is_file():
            raise InputError(f"measure '{self.name}': no such file", file=path)
        fitted: FittedImported | FittedPairs
        if are_pairs(path):
            codes, values = read_pairs(path, captions)
            some = len(codes) < captions.n_images * captions.n_captions
            fitted = FittedPairs(str(path), captions.n_captions, codes, values, some)
            low, high = float(values.min()), float(values.max())
        else:
            size = captions.n_images, captions.n_captions
            fitted, low, high = _look_at(FittedImported(str(path), *size, _layout(path, captions)))
        # A range must not be empty, also where all values are equal.
        self.low, self.high = low, max(high, low + 1e-6, math.nextafter(low, math.inf))
        return fitted


def _layout(path: Path, captions: Captions) -> str:
    with open_bytes(path) as f:
        magic = f.read(6)
    if magic == ARROW_MAGIC:
        read_relevance(path).require(captions)
        return "arrow"
    if magic == NPY_MAGIC:
        return _npy_layout(path, captions)
    size, expected = path.stat().st_size, 4 * captions.n_captions * captions.n_images
    if size != expected:
        matrix = f"{captions.n_captions} captions x {captions.n_images} images"
        problem = f"{size} bytes: neither Arrow nor .npy, "
        problem += f"and a headerless float32 matrix of {matrix} has {expected}"
        remedy = "give the file that was computed for these captions"
        raise InputError(problem, file=path, remedy=remedy)
    return "teran"


def _npy_layout(path: Path, captions: Captions) -> str:
    matrix = map_npy(path)
    shape = (captions.n_images, captions.n_captions)
    if matrix.dtype.kind not in "fiu" or matrix.shape not in (shape, shape[::-1]):
        problem = f"{matrix.dtype} of shape {matrix.shape}, "
        problem += f"where the captions have {shape[0]} images and {shape[1]} captions"
        remedy = "give float images x captions or captions x images"
        raise InputError(problem, file=path, remedy=remedy)
    if matrix.shape == shape[::-1] == shape:  # a square file does not say which axis is which
        layout = "read as images x captions; if its rows are captions, write its transpose"
        warn(f"{path} is square: {layout}")
    return "images x captions" if matrix.shape == shape else "captions x images"


def _look_at(fitted: FittedImported) -> tuple[FittedImported, float, float]:
    """The matrix, which knows whether it lacks values, and its range. A NaN is a lacking value in a
    `.npy`; in the other layouts it is a fault."""
    lenient = replace(fitted, some="x" in fitted.layout)
    low, high, some = np.inf, -np.inf, False
    for start in range(0, fitted.n_images, 256):
        block = lenient.known(np.arange(start, min(start + 256, fitted.n_images)))
        some |= bool(np.isnan(block).any())
        low, high = min(low, np.fmin.reduce(block, None)), max(high, np.fmax.reduce(block, None))
        # A block of NaN alone has none of either, and min and max keep what was there.
    if not low <= high:
        raise InputError("every value is NaN", file=fitted.path, remedy="give one or more")
    return replace(fitted, some=some), float(low), float(high)


def _not_all(path: str) -> InputError:
    """Of a file that lacks pairs, where all are asked for."""
    remedy = "make shards, which hold what is known; or give a file of every pair"
    return InputError("not every pair is known, and a matrix has all", file=path, remedy=remedy)


@dataclass(frozen=True)
class FittedPairs(ArrayState):
    """Mean scores of the pairs that are known.

    codes int64, image * n_captions + caption, rising; values float32.
    """

    path: str
    n_captions: int
    codes: np.ndarray
    values: np.ndarray
    some: bool  # pairs are missing

    @property
    def columns(self) -> int:
        return self.n_captions

    @property
    def has_blocks(self) -> bool:
        return False

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`; NaN for a pair that is not known."""
        wanted = images * self.n_captions + captions
        at = np.searchsorted(self.codes, wanted).clip(max=len(self.codes) - 1)
        return np.where(self.codes[at] == wanted, self.values[at], np.float32(np.nan))

    def scored(self, images: np.ndarray) -> np.ndarray | None:
        if not self.some:
            return None
        first = np.searchsorted(self.codes, images * self.n_captions)
        last = np.searchsorted(self.codes, (images + 1) * self.n_captions)
        return np.concatenate(
            [
                self.codes[a:b] + (row - image) * self.n_captions
                for row, (image, a, b) in enumerate(zip(images, first, last, strict=True))
            ]
        )

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`. InputError where pairs are missing."""
        if self.some:
            raise _not_all(self.path)
        return super().filler(images, start)
