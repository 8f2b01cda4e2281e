"""A trained model as one that ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.search.index import SIMILARITY, Searcher, open_search


@dataclass(frozen=True)
class ModelVoice:
    """A trained model; `image` and `caption` say where the corpus' items stand in its index, -1 for nowhere."""

    name: str
    searcher: Searcher
    image: np.ndarray
    caption: np.ndarray
    kind: str = "model"

    def of_text(self, text: str) -> np.ndarray:
        """Float32 [n_images], images of the corpus; NaN for those that the index lacks."""
        return _of_positions(self.searcher.of_text(text), self.image)

    def of_caption(self, caption: int) -> np.ndarray:
        """Float32 [n_images]; all NaN for a caption that the index lacks."""
        if self.caption[caption] < 0:
            return np.full(len(self.image), np.nan, np.float32)
        return _of_positions(self.searcher.of_caption(int(self.caption[caption])), self.image)

    def of_image(self, image: int) -> np.ndarray:
        """Float32 [n_captions]; all NaN for an image that the index lacks."""
        if self.image[image] < 0:
            return np.full(len(self.caption), np.nan, np.float32)
        return _of_positions(self.searcher.of_image(int(self.image[image])), self.caption)

    def of_regions(self, regions: Regions) -> np.ndarray:
        """Float32 [n_captions], for an image that is not of the corpus. InputError for regions of another detector."""
        return _of_positions(self.searcher.of_regions(regions), self.caption)

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        scores = self.similarity()[self.image[image], self.caption[caption]].astype(np.float32)
        return np.where((self.image[image] >= 0) & (self.caption[caption] >= 0), scores, np.nan)

    def similarity(self) -> np.ndarray:
        """float32 [images, captions of its index], by memory map."""
        return np.load(self.searcher.folder / SIMILARITY, mmap_mode="r", allow_pickle=False)


def _of_positions(scores: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.where(at >= 0, scores[np.maximum(at, 0)], np.nan).astype(np.float32)


def model_voice(name: str, run: Path, index: Path, captions: Captions) -> ModelVoice:
    """InputError when the index has none of the images, as when it is of another split."""
    searcher = open_search(run, index)
    image, caption = (
        _positions(ours, theirs)
        for ours, theirs in (
            (captions.image_ids, searcher.index.image_ids),
            (captions.caption_ids, searcher.index.caption_ids),
        )
    )
    if (image < 0).all():
        problem = f"has none of the {len(image)} images of split '{captions.split}'"
        raise InputError(
            problem, file=index, remedy="encode this split: capgrade evaluate --run --split, or choose another --split"
        )
    return ModelVoice(name, searcher, image, caption)


def _positions(ids: Sequence[str], among: Sequence[str]) -> np.ndarray:
    at = {key: k for k, key in enumerate(among)}
    return np.array([at.get(key, -1) for key in ids], np.int64)
