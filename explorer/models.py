"""A trained model as one that ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.explorer.pairs import LabelledPairs
from capgrade.explorer.voices import DEPTH, MeasureVoice
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.search.index import SIMILARITY, Searcher, open_search

BLOCK = 1024  # captions ranked at a time


@dataclass(frozen=True)
class ModelVoice:
    """A trained model, which answers as `MeasureVoice` does; `image` and `caption` say where the corpus' items stand in
    its index, -1 for nowhere. It has NaN for those."""

    name: str
    searcher: Searcher
    image: np.ndarray
    caption: np.ndarray
    kind: str = "model"

    def of_text(self, text: str) -> np.ndarray:
        return _at(self.searcher.of_text(text), self.image)

    def of_caption(self, caption: int) -> np.ndarray:
        at = int(self.caption[caption])
        return _at(self.searcher.of_caption(at), self.image) if at >= 0 else _nothing(self.image)

    def of_image(self, image: int) -> np.ndarray:
        at = int(self.image[image])
        return _at(self.searcher.of_image(at), self.caption) if at >= 0 else _nothing(self.caption)

    def of_regions(self, regions: Regions) -> np.ndarray:
        """[n_captions], for an image that is not of the corpus. InputError for regions of another detector."""
        return _at(self.searcher.of_regions(regions), self.caption)

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        row, column = self.image[image], self.caption[caption]
        return np.where((row >= 0) & (column >= 0), self.similarity()[row, column].astype(np.float32), np.nan)

    def similarity(self) -> np.ndarray:
        """float32 [images, captions of its index], by memory map."""
        return np.load(self.searcher.folder / SIMILARITY, mmap_mode="r", allow_pickle=False)

    def first_images(self, captions: Captions, gallery: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The captions that the model knows together with their own image, int64 [n], and the first DEPTH images of
        each, best first, int64 [n, DEPTH] or fewer; `gallery`: of the first so many images. Equal scores rank in
        order."""
        similarity, images, rows = self.similarity(), *self._known(captions, gallery)
        first = np.empty((len(rows), min(DEPTH, len(images))), np.int64)
        for at in range(0, len(rows), BLOCK):
            block = similarity[:, self.caption[rows[at : at + BLOCK]]]
            scores = np.asarray(block, np.float32)[self.image[images]]
            first[at : at + BLOCK] = images[np.argsort(-scores, axis=0, kind="stable")[:DEPTH].T]
        return rows, first

    def first_captions(self, captions: Captions, gallery: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`first_images` the other way: images that have a caption, and the first DEPTH captions of each."""
        similarity, images, rows = self.similarity(), *self._known(captions, gallery)
        images = images[np.isin(images, captions.owner[rows])]
        first = np.empty((len(images), min(DEPTH, len(rows))), np.int64)
        for at in range(0, len(images), BLOCK):
            block = similarity[self.image[images[at : at + BLOCK]]]
            scores = np.asarray(block, np.float32)[:, self.caption[rows]]
            first[at : at + BLOCK] = rows[np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]]
        return images, first

    def _known(self, captions: Captions, gallery: int | None) -> tuple[np.ndarray, np.ndarray]:
        """The images of its index, the first `gallery` of them, and their captions. InputError for fewer."""
        images = np.flatnonzero(self.image >= 0)
        if gallery is not None and gallery > len(images):
            problem = f"a gallery of {gallery:,} images, and '{self.name}' has {len(images):,}"
            raise InputError(problem, remedy="set explore.gallery to at most as many")
        images = images[:gallery]
        return images, np.flatnonzero((self.caption >= 0) & np.isin(captions.owner, images))

    def errors(self, label: MeasureVoice, captions: Captions) -> LabelledPairs:
        """The pairs of a caption with the images that the model ranks among its first DEPTH and above the caption's own
        image, with `label`'s value, the model's score, and the `rank`.

        A benchmark counts each as an error; where the label is high it is a good answer.
        """
        rows, first = self.first_images(captions)
        query, rank = np.nonzero(np.cumsum(first == captions.owner[rows][:, None], axis=1) == 0)
        image, caption = first[query, rank], rows[query]
        voices = {voice.name: voice.of_pairs(image, caption) for voice in (label, self)}
        values = {**voices, "rank": (rank + 1).astype(np.float32)}
        return LabelledPairs.of(captions, image, caption, values)


def _at(scores: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.append(scores, np.nan)[at].astype(np.float32)  # -1 is the last one


def _nothing(at: np.ndarray) -> np.ndarray:
    return np.full(len(at), np.nan, np.float32)


def model_voice(name: str, run: Path, index: Path, captions: Captions) -> ModelVoice:
    """InputError when the index has none of the images, as when it is of another split."""
    searcher = open_search(run, index)
    image = _positions(captions.image_ids, searcher.items.image_ids)
    if (image < 0).all():
        problem = f"has none of the {len(image)} images of split '{captions.split}'"
        remedy = "encode this split: capgrade evaluate --run --split, or choose another --split"
        raise InputError(problem, file=index, remedy=remedy)
    return ModelVoice(name, searcher, image, _positions(captions.caption_ids, searcher.items.caption_ids))


def _positions(ids: Sequence[str], among: Sequence[str]) -> np.ndarray:
    at = {key: k for k, key in enumerate(among)}
    return np.array([at.get(key, -1) for key in ids], np.int64)
