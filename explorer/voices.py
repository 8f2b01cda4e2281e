"""Who ranks: each measure and each trained model, asked about a caption, an image or single pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pipelines.agree import pair_values
from pipelines.measures import MEASURES, Fitted, choose
from pipelines.measures.typed import Typed, typed
from schemas.captions import Captions
from schemas.errors import InputError
from schemas.params import MeasuresParams
from schemas.regions import Regions
from trainer.index import SIMILARITY, Searcher, open_search


class Voice(Protocol):
    """One that ranks. Scores are float32, the highest first; NaN where it has nothing to say."""

    name: str
    kind: str  # measure or model

    def of_text(self, text: str) -> np.ndarray | None:
        """Of every image for a caption in words, [n_images]; None when it answers only captions of the corpus."""

    def of_caption(self, caption: int) -> np.ndarray:
        """[n_images]"""

    def of_image(self, image: int) -> np.ndarray:
        """Of every caption for an image, [n_captions]."""

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """[n]"""


@dataclass(frozen=True)
class MeasureVoice:
    name: str
    fitted: Fitted
    answer: Typed | None
    kind: str = "measure"

    def of_text(self, text: str) -> np.ndarray | None:
        return self.answer(text) if self.answer else None

    def of_caption(self, caption: int) -> np.ndarray:
        images = len(self.fitted.ref_ptr) - 1  # type: ignore[attr-defined]
        return self.fitted.score(np.arange(images), np.array([caption]))[:, 0]

    def of_image(self, image: int) -> np.ndarray:
        return self.fitted.score(np.array([image]))[0]

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        return pair_values(self.fitted, image, caption)


@dataclass(frozen=True)
class ModelVoice:
    """A trained model; `image` and `caption` say where the corpus' items stand in its index, -1 for nowhere."""

    name: str
    searcher: Searcher
    image: np.ndarray
    caption: np.ndarray
    kind: str = "model"

    def of_text(self, text: str) -> np.ndarray:
        return _placed(self.searcher.of_text(text), self.image)

    def of_caption(self, caption: int) -> np.ndarray:
        if self.caption[caption] < 0:
            return np.full(len(self.image), np.nan, np.float32)
        return _placed(self.searcher.of_caption(int(self.caption[caption])), self.image)

    def of_image(self, image: int) -> np.ndarray:
        if self.image[image] < 0:
            return np.full(len(self.caption), np.nan, np.float32)
        return _placed(self.searcher.of_image(int(self.image[image])), self.caption)

    def of_regions(self, regions: Regions) -> np.ndarray:
        return _placed(self.searcher.of_regions(regions), self.caption)

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        scores = self.similarity()[self.image[image], self.caption[caption]].astype(np.float32)
        return np.where((self.image[image] >= 0) & (self.caption[caption] >= 0), scores, np.nan)

    def similarity(self) -> np.ndarray:
        """float32 [images, captions of its index], by memory map."""
        return np.load(self.searcher.folder / SIMILARITY, mmap_mode="r", allow_pickle=False)


def _placed(scores: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.where(at >= 0, scores[np.maximum(at, 0)], np.nan).astype(np.float32)


def measure_voices(captions: Captions, names: Sequence[str], params: MeasuresParams) -> list[MeasureVoice]:
    """Those of the named measures that are ours, fitted; imported ones have their values in the pairs only."""
    ours = [name for name in names if name in MEASURES]
    found = []
    for name, measure in choose(ours, params).items():
        fitted = measure.fit(captions)
        found.append(MeasureVoice(name, fitted, typed(measure, fitted, captions)))
    return found


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
        raise InputError(problem, file=index, remedy="embed this split: capgrade embed --split, or choose another --split")
    return ModelVoice(name, searcher, image, caption)


def _positions(ids: Sequence[str], among: Sequence[str]) -> np.ndarray:
    at = {key: k for k, key in enumerate(among)}
    return np.array([at.get(key, -1) for key in ids], np.int64)


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the highest scores stand, best first, int64; equal ones in order, NaN never."""
    best = np.argsort(-scores, kind="stable")[: count + int(np.isnan(scores).sum())]
    return best[~np.isnan(scores[best])][:count]
