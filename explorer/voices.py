"""Who ranks, asked about a caption, an image or single pairs: measures and models' matrices here,
models in `models`.

Scores are float32, the highest first; NaN where a voice has nothing to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capgrade.explorer.pairs import LabelledPairs
from capgrade.measures import Fitted, choose, names_of
from capgrade.measures.base import Scorer
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

DEPTH = 10  # a model's first so many images of a caption are what it retrieves
_BLOCK = 1024  # captions or images ranked at a time


@dataclass(frozen=True)
class MeasureVoice:
    """A fitted measure, whose values are between `low` and `high`; `answer` scores captions that
    are not of the corpus, None where the measure cannot."""

    name: str
    fitted: Fitted
    answer: Scorer | None
    low: float
    high: float
    kind: str = "measure"

    def of_text(self, text: str) -> np.ndarray | None:
        """Of every image for a caption in words, [n_images]; None where only captions of the corpus
        are answered."""
        return self.answer(text) if self.answer else None

    def of_caption(self, caption: int) -> np.ndarray:
        """[n_images]"""
        images = len(self.fitted.ref_ptr) - 1  # type: ignore[attr-defined]
        return self.fitted.score(np.arange(images), np.array([caption]))[:, 0]

    def of_image(self, image: int) -> np.ndarray:
        """Of every caption for an image, [n_captions]."""
        return self.fitted.score(np.array([image]))[0]

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """[n]"""
        return self.fitted.pairs(image, caption)


@dataclass(frozen=True)
class MatrixVoice:
    """Scores of a model, images x captions as it has them; `image` and `caption` say where the
    corpus' items stand in them, int64, -1 for nowhere. It has NaN for those."""

    name: str
    matrix: np.ndarray
    image: np.ndarray
    caption: np.ndarray
    kind: str = "matrix"

    @cached_property
    def low(self) -> float:
        """Its lowest score."""
        return self._range[0]

    @cached_property
    def high(self) -> float:
        """Its highest score."""
        return self._range[1]

    @cached_property
    def _range(self) -> tuple[float, float]:
        ends = [(np.inf, -np.inf)]
        for at in range(0, len(self.matrix), _BLOCK):
            block = np.asarray(self.matrix[at : at + _BLOCK], np.float32)
            finite = block[np.isfinite(block)]  # -inf is a pair that was not scored
            ends.append((finite.min(initial=np.inf), finite.max(initial=-np.inf)))
        lowest, highest = zip(*ends, strict=True)
        return float(min(lowest)), float(max(highest))

    def of_text(self, text: str) -> np.ndarray | None:
        """None: only captions of the corpus are answered."""
        return None

    def of_caption(self, caption: int) -> np.ndarray:
        at = int(self.caption[caption])
        return of_corpus(self._of_column(at), self.image) if at >= 0 else _nothing(self.image)

    def of_image(self, image: int) -> np.ndarray:
        at = int(self.image[image])
        return of_corpus(self._of_row(at), self.caption) if at >= 0 else _nothing(self.caption)

    def _of_column(self, caption: int) -> np.ndarray:
        return np.asarray(self.matrix[:, caption])

    def _of_row(self, image: int) -> np.ndarray:
        return np.asarray(self.matrix[image])

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        row, column = self.image[image], self.caption[caption]
        return np.where(
            (row >= 0) & (column >= 0), self.matrix[row, column].astype(np.float32), np.nan
        )

    def first_images(
        self, captions: Captions, gallery: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The captions that the model knows together with their own image, int64 [n], and the first
        DEPTH images of each, best first, int64 [n, DEPTH] or fewer; `gallery`: of the first so many
        images. Equal scores rank in order."""
        images, rows = self._known(captions, gallery)
        first = np.empty((len(rows), min(DEPTH, len(images))), np.int64)
        for at in range(0, len(rows), _BLOCK):
            block = self.matrix[:, self.caption[rows[at : at + _BLOCK]]]
            scores = np.asarray(block, np.float32)[self.image[images]]
            first[at : at + _BLOCK] = images[np.argsort(-scores, axis=0, kind="stable")[:DEPTH].T]
        return rows, first

    def first_captions(
        self, captions: Captions, gallery: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`first_images` the other way: images that have a caption, and the first DEPTH captions of
        each."""
        images, rows = self._known(captions, gallery)
        images = images[np.isin(images, captions.owner[rows])]
        first = np.empty((len(images), min(DEPTH, len(rows))), np.int64)
        for at in range(0, len(images), _BLOCK):
            block = self.matrix[self.image[images[at : at + _BLOCK]]]
            scores = np.asarray(block, np.float32)[:, self.caption[rows]]
            first[at : at + _BLOCK] = rows[np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]]
        return images, first

    def _known(self, captions: Captions, gallery: int | None) -> tuple[np.ndarray, np.ndarray]:
        """The images of its matrix, the first `gallery` of them, and their captions. InputError for
        fewer."""
        images = np.flatnonzero(self.image >= 0)
        if gallery is not None and gallery > len(images):
            problem = f"a gallery of {gallery:,} images, and '{self.name}' has {len(images):,}"
            raise InputError(problem, remedy="set explore.gallery to at most as many")
        images = images[:gallery]
        return images, np.flatnonzero((self.caption >= 0) & np.isin(captions.owner, images))

    def errors(self, label: MeasureVoice, captions: Captions) -> LabelledPairs:
        """The pairs of a caption with the images that the model ranks among its first DEPTH and
        above the caption's own image, with `label`'s value, the model's score, and the `rank`.

        A benchmark counts each as an error; where the label is high it is a good answer.
        """
        rows, first = self.first_images(captions)
        query, rank = np.nonzero(np.cumsum(first == captions.owner[rows][:, None], axis=1) == 0)
        image, caption = first[query, rank], rows[query]
        voices = {voice.name: voice.of_pairs(image, caption) for voice in (label, self)}
        values = {**voices, "rank": (rank + 1).astype(np.float32)}
        return LabelledPairs.of(captions, image, caption, values)


def of_corpus(scores: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.append(scores, np.nan)[at].astype(np.float32)  # -1 is the last one


def _nothing(at: np.ndarray) -> np.ndarray:
    return np.full(len(at), np.nan, np.float32)


def matrix_voice(name: str, matrix: np.ndarray) -> MatrixVoice:
    """Of a matrix with every image and caption of the corpus, in its order."""
    images, captions = map(np.arange, matrix.shape)
    return MatrixVoice(name, matrix, images, captions)


def measure_voices(
    captions: Captions, names: Sequence[str], params: MeasuresParams
) -> list[MeasureVoice]:
    """Those of the named measures that can be computed here and at once, fitted; the others have
    their values in the pairs only."""
    known = names_of(params)
    chosen = choose([name for name in names if name in known], params)
    fitted = {name: measure.fit(captions) for name, measure in chosen.items() if measure.at_once}
    return [
        MeasureVoice(
            name, one, chosen[name].unseen(one, captions), chosen[name].low, chosen[name].high
        )
        for name, one in fitted.items()
    ]
