"""A relevance matrix that someone else computed, or judgements of pairs, as a measure.

A matrix is a relevance file of ours (Arrow), or `.npy` of images x captions, or of captions x
images where the shape can be nothing else. Or it is TERAN's `{name}-{split}-{method}.npy`, which
despite its suffix is a headerless float32 memory map of captions x images, -1 where nothing has
been computed (compute_relevance.py). A CSV of judgements gives each judged pair its mean score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.measures.base import ArrayState, Fill, Measure, NoParams
from capgrade.schemas.arrays import map_npy
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import file_digest
from capgrade.schemas.lines import number, open_bytes, open_table, text_of_cell
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import warn

NPY_MAGIC = b"\x93NUMPY"
ARROW_MAGIC = b"ARROW1"
NOT_COMPUTED = -1.0
_COLUMNS = ("image_id", "caption_id", "score")  # of judgements


@dataclass(frozen=True)
class FittedImported(ArrayState):
    """The matrix stays in its file, opened by memory map."""

    path: str
    n_images: int
    n_captions: int
    layout: str

    @property
    def columns(self) -> int:
        return self.n_captions

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`. InputError for a value that is not finite, or not computed yet."""
        cells, out = self._cell_reader(), np.empty(len(captions), np.float32)
        order = np.argsort(images, kind="stable")
        different, counts = np.unique(images, return_counts=True)
        for k, rows in zip(range(len(different)), np.split(order, np.cumsum(counts)), strict=False):
            image = different[k : k + 1]
            out[rows] = self._require_computed(cells(image, captions[rows]), image, captions[rows])[
                0
            ]
        return out

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`: of the file, these cells and no others."""
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
        bad = ~np.isfinite(values)
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

    def meaning(self) -> str:
        return "relevance that another program computed"

    def files(self) -> dict[str, str]:
        return {f"measures.imported.{self.name}": file_digest(Path(self.path))}

    def fit(self, captions: Captions) -> FittedImported | FittedJudged:
        """Check shape and ids against the captions. InputError when they do not match."""
        path = Path(self.path)
        if not path.is_file():
            raise InputError(f"measure '{self.name}': no such file", file=path)
        fitted: FittedImported | FittedJudged
        if path.suffix.lower() == ".csv":
            fitted = fit_judged(path, captions)
            low, high = float(fitted.values.min()), float(fitted.values.max())
        else:
            fitted = FittedImported(
                str(path), captions.n_images, captions.n_captions, _layout(path, captions)
            )
            low, high = _range(fitted)
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


def _range(fitted: FittedImported) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    for start in range(0, fitted.n_images, 256):
        block = fitted.score(np.arange(start, min(start + 256, fitted.n_images)))
        low, high = min(low, float(block.min())), max(high, float(block.max()))
    return low, high


@dataclass(frozen=True)
class FittedJudged(ArrayState):
    """Mean scores of the judged pairs.

    codes int64, image * n_captions + caption, rising; values float32.
    """

    path: str
    n_captions: int
    image_ids: np.ndarray
    caption_ids: np.ndarray
    codes: np.ndarray
    values: np.ndarray

    @property
    def columns(self) -> int:
        return self.n_captions

    def pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`. InputError for a pair that nobody judged."""
        wanted = image * self.n_captions + caption
        at = np.searchsorted(self.codes, wanted).clip(max=len(self.codes) - 1)
        missing = np.flatnonzero(self.codes[at] != wanted)
        if len(missing):
            first_image = self.image_ids[image[missing[0]]]
            first = f"image '{first_image}', caption '{self.caption_ids[caption[missing[0]]]}'"
            problem = (
                f"{len(missing):,} of {len(wanted):,} pairs were not judged, {first} the first"
            )
            remedy = "judge these pairs too: capgrade judge --pairs"
            raise InputError(problem, file=self.path, remedy=remedy)
        return self.values[at]


def fit_judged(path: Path, captions: Captions) -> FittedJudged:
    """The mean of each pair's scores.

    InputError for another table, ids that the captions lack, and a score that is no number.
    """
    scores_of: dict[int, list[float]] = {}
    header, rows = open_table(path)
    if not set(_COLUMNS) <= set(header):
        raise InputError(f"no columns {', '.join(_COLUMNS)}", file=path, row=1)
    for line, row in rows:
        image_id, caption_id = text_of_cell(row["image_id"]), text_of_cell(row["caption_id"])
        image = captions.image_numbers.get(image_id)
        caption = captions.caption_numbers.get(caption_id)
        if image is None or caption is None:
            problem = f"image '{image_id}', caption '{caption_id}' are not both among the captions"
            raise InputError(
                problem, file=path, row=line, remedy="give judgements of these captions"
            )
        code = image * captions.n_captions + caption
        scores_of.setdefault(code, []).append(number(row["score"], path, line))
    if not scores_of:
        raise InputError("no judgements", file=path)
    codes = np.array(sorted(scores_of), np.int64)
    values = np.array([np.mean(scores_of[code]) for code in codes.tolist()], np.float32)
    ids = np.array(captions.image_ids), np.array(captions.caption_ids)
    return FittedJudged(str(path), captions.n_captions, *ids, codes, values)
