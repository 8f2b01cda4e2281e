"""Voices, which score images for a caption, captions for an image, or single pairs: measures and
matrices of models here, models in `models`.

Scores are float32, higher ones for better matches, and NaN where a voice has no score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capgrade.measures import Fitted, MeasuresParams, Scorer, choose, names_of
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs

DEPTH = 10  # items that a model retrieves for a query
_BLOCK = 1024  # captions or images ranked at a time


@dataclass(frozen=True)
class MeasureVoice:
    """A fitted measure."""

    name: str
    fitted: Fitted
    score_unseen: Scorer | None  # for captions that are not of the corpus, if the measure can
    captions: Captions  # that it was fitted to
    leaves_out: bool = True  # as `Measure.leaves_out`
    kind: str = "measure"

    def score_text(self, text: str) -> np.ndarray | None:
        """[n_images]: every image for a typed caption; None where the measure scores only captions
        of the corpus. A text of the corpus is left out of the captions of its images."""
        if self.score_unseen is None:
            return None
        scores, twins = np.array(self.score_unseen(text)), rows_saying(self.captions, text)
        owner = self.captions.owner[twins]
        if len(twins) and self.leaves_out:
            scores[owner] = self._own_left_out(owner, twins)
        return scores

    def score_caption(self, caption: int) -> np.ndarray:
        """[n_images]: every image for a caption of the corpus, its own by its other captions."""
        scores = self.fitted.score(np.arange(self.captions.n_images), np.array([caption]))[:, 0]
        owner = self.captions.owner[[caption]]
        if self.leaves_out:
            scores[owner] = self._own_left_out(owner, np.array([caption]))
        return scores

    def score_image(self, image: int) -> np.ndarray:
        """[n_captions]: every caption for an image, each own one by the others."""
        scores = self.fitted.score(np.array([image]))[0]
        if self.leaves_out:
            own = np.array(self.captions.rows_of(image))
            scores[own] = self._own_left_out(np.full(len(own), image), own)
        return scores

    def score_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """[n]: single pairs, own captions by the others of their image."""
        scores = np.array(self.fitted.pairs(image, caption))
        own = np.flatnonzero(self.captions.owner[caption] == image)
        if len(own) and self.leaves_out:
            scores[own] = self._own_left_out(image[own], caption[own])
        return scores

    def _own_left_out(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """[n]: captions of these images by the others of their image, NaN where there is none."""
        images = np.unique(image).astype(np.int64)
        values = np.full(self.captions.n_captions, np.nan, np.float32)
        rows = np.concatenate([self.captions.rows_of(k) for k in images.tolist()])
        values[rows] = self.fitted.own_left_out(images)
        return values[caption]


def rows_saying(captions: Captions, text: str) -> np.ndarray:
    """The captions of this text, int64, whatever spaces are between its words."""
    words = text.split()
    return np.array([k for k, known in enumerate(captions.texts) if known.split() == words], int)


@dataclass(frozen=True)
class MatrixVoice:
    """A model's matrix of scores, which may be of other items, in another order than the corpus.
    Items of the corpus that it lacks have NaN."""

    name: str
    matrix: np.ndarray  # [the model's images, the model's captions]
    image: np.ndarray  # int64 [n_images]: the row of each image, -1 for none
    caption: np.ndarray  # int64 [n_captions]: the column of each caption, -1 for none
    kind: str = "matrix"

    def score_text(self, text: str) -> np.ndarray | None:
        """None: a matrix scores only captions of the corpus."""
        return None

    def score_caption(self, caption: int) -> np.ndarray:
        column = int(self.caption[caption])
        return (
            spread_to_corpus(self._of_column(column), self.image)
            if column >= 0
            else _all_nan(self.image)
        )

    def score_image(self, image: int) -> np.ndarray:
        row = int(self.image[image])
        return (
            spread_to_corpus(self._of_row(row), self.caption)
            if row >= 0
            else _all_nan(self.caption)
        )

    def _of_column(self, caption: int) -> np.ndarray:
        return np.asarray(self.matrix[:, caption])

    def _of_row(self, image: int) -> np.ndarray:
        return np.asarray(self.matrix[image])

    def score_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        row, column = self.image[image], self.caption[caption]
        return np.where(
            (row >= 0) & (column >= 0), self.matrix[row, column].astype(np.float32), np.nan
        )

    def retrieve_images(
        self, captions: Captions, gallery: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The captions that the model has together with their own image, int64 [n], and the first
        DEPTH images of each, best first, int64 [n, DEPTH] or fewer columns. `gallery`: search the
        first so many images. Equal scores keep the order of the corpus."""
        images, rows = self._known_items(captions, gallery)
        ranked = np.empty((len(rows), min(DEPTH, len(images))), np.int64)
        for start in range(0, len(rows), _BLOCK):
            block = self.matrix[:, self.caption[rows[start : start + _BLOCK]]]
            scores = np.asarray(block, np.float32)[self.image[images]]
            ranked[start : start + _BLOCK] = images[
                np.argsort(-scores, axis=0, kind="stable")[:DEPTH].T
            ]
        return rows, ranked

    def retrieve_captions(
        self, captions: Captions, gallery: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `retrieve_images`, from images to captions: the images with a caption that the model
        has, and the first DEPTH captions of each."""
        images, rows = self._known_items(captions, gallery)
        images = images[np.isin(images, captions.owner[rows])]
        ranked = np.empty((len(images), min(DEPTH, len(rows))), np.int64)
        for start in range(0, len(images), _BLOCK):
            block = self.matrix[self.image[images[start : start + _BLOCK]]]
            scores = np.asarray(block, np.float32)[:, self.caption[rows]]
            ranked[start : start + _BLOCK] = rows[
                np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
            ]
        return images, ranked

    def _known_items(
        self, captions: Captions, gallery: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The images that the matrix has, or the first `gallery` of them, and their captions that
        it has. InputError for fewer images than `gallery`."""
        images = np.flatnonzero(self.image >= 0)
        if gallery is not None and gallery > len(images):
            problem = f"a gallery of {gallery:,} images, and '{self.name}' has {len(images):,}"
            raise InputError(problem, remedy="set explore.gallery to at most as many")
        images = images[:gallery]
        return images, np.flatnonzero((self.caption >= 0) & np.isin(captions.owner, images))

    def find_errors(self, label: MeasureVoice, captions: Captions) -> Pairs:
        """Pairs of a caption and each of its first DEPTH images that the model ranks above the
        caption's own, with the values of `label` and of the model, and the `rank`. A benchmark
        counts each as an error, although some have a high label."""
        rows, ranked = self.retrieve_images(captions)
        query, rank = np.nonzero(np.cumsum(ranked == captions.owner[rows][:, None], axis=1) == 0)
        image, caption = ranked[query, rank], rows[query]
        voices = {voice.name: voice.score_pairs(image, caption) for voice in (label, self)}
        values = {**voices, "rank": (rank + 1).astype(np.float32)}
        return Pairs(image, caption, np.ones(len(image)), values)


def spread_to_corpus(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Scores of a model's items in the corpus' order, NaN for the position -1."""
    # The position -1 takes the last element, which is the added NaN.
    return np.append(scores, np.nan)[positions].astype(np.float32)


def _all_nan(positions: np.ndarray) -> np.ndarray:
    return np.full(len(positions), np.nan, np.float32)


def make_matrix_voice(name: str, matrix: np.ndarray) -> MatrixVoice:
    """A voice of a matrix that has every image and caption of the corpus, in its order."""
    images, captions = map(np.arange, matrix.shape)
    return MatrixVoice(name, matrix, images, captions)


def fit_measure_voices(
    captions: Captions, names: Sequence[str], params: MeasuresParams
) -> list[MeasureVoice]:
    """The named measures, fitted to the captions, of which those are left out that cannot be
    computed here at once: of these the explorer has only the stored values of pairs."""
    computable = names_of(params)
    chosen = choose([name for name in names if name in computable], params)
    fitted = {name: measure.fit(captions) for name, measure in chosen.items() if measure.at_once}
    return [
        MeasureVoice(
            name,
            fitted_measure,
            chosen[name].unseen(fitted_measure, captions),
            captions,
            chosen[name].leaves_out,
        )
        for name, fitted_measure in fitted.items()
    ]


def leave_themselves_out(
    pairs: Pairs, owner: np.ndarray, voices: Sequence[MeasureVoice], params: MeasuresParams
) -> Pairs:
    """The pairs with values of own captions by the others of their image. They are not known, NaN,
    of a measure that cannot be computed here at once. owner int64 [n_captions]."""
    own = np.flatnonzero(pairs.is_own(owner))
    voices_by_name, values = {voice.name: voice for voice in voices}, dict(pairs.values)
    measures = choose([name for name in values if name in names_of(params)], params)
    for name, measure in measures.items():
        if measure.leaves_out:
            values[name] = values[name].copy()
            voice = voices_by_name.get(name)
            values[name][own] = (
                np.nan if voice is None else voice.score_pairs(pairs.image[own], pairs.caption[own])
            )
    return replace(pairs, values=values)
