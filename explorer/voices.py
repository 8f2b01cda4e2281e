"""Who ranks, asked about a caption, an image or single pairs: each measure here, trained models in `models`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from capgrade.pipelines.measures import MEASURES, Fitted, choose
from capgrade.pipelines.measures.unseen import Scorer, scorer_of_unseen
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams

SLOW = ("spice",)  # a Java process scores their pairs one by one


class Voice(Protocol):
    """One that ranks. Scores are float32, the highest first; NaN where it has nothing to say."""

    @property
    def name(self) -> str:
        """As the page shows it: the name of a measure, or of a run."""

    @property
    def kind(self) -> str:
        """measure or model"""

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
    """A fitted measure; `answer` scores captions that are not of the corpus, None where the measure cannot."""

    name: str
    fitted: Fitted
    answer: Scorer | None
    kind: str = "measure"

    def of_text(self, text: str) -> np.ndarray | None:
        return self.answer(text) if self.answer else None

    def of_caption(self, caption: int) -> np.ndarray:
        images = len(self.fitted.ref_ptr) - 1  # type: ignore[attr-defined]
        return self.fitted.score(np.arange(images), np.array([caption]))[:, 0]

    def of_image(self, image: int) -> np.ndarray:
        return self.fitted.score(np.array([image]))[0]

    def of_pairs(self, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        return self.fitted.pairs(image, caption)


def measure_voices(captions: Captions, names: Sequence[str], params: MeasuresParams) -> list[MeasureVoice]:
    """Those of the named measures that can be computed here and at once, fitted; the others have their values in the
    pairs only."""
    found = []
    for name, measure in choose([name for name in names if _at_once(name, params)], params).items():
        fitted = measure.fit(captions)
        found.append(MeasureVoice(name, fitted, scorer_of_unseen(measure, fitted, captions)))
    return found


def _at_once(name: str, params: MeasuresParams) -> bool:
    """Not an imported matrix, nor one of SLOW, nor a mixture of such."""
    if name in params.mixtures:
        return all(_at_once(part, params) for part in params.mixtures[name])
    return name in MEASURES and name not in SLOW


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the highest scores stand, best first, int64; equal ones in order, NaN never."""
    best = np.argsort(-scores, kind="stable")[: count + int(np.isnan(scores).sum())]
    return best[~np.isnan(scores[best])][:count]


IMAGES, ASKED = 2000, 50  # at most so many images and captions of the corpus say what is usual
SHORTER = 0.8  # a caption of two words scores lower than the corpus's do, though it fits
NOTHING = "nothing like it: captions of this corpus score higher with images of others"


def usual(voice: Voice, captions: Captions) -> float:
    """The lowest best score of some captions of the corpus with images that are not their own, and SHORTER of it where
    it is above 0: what scores less is like nothing here. -inf where there is no other image, or the voice knows none of
    them."""
    images = _spread(captions.n_images, IMAGES)
    asked = _spread(captions.n_captions, ASKED)
    grid = np.repeat(images, len(asked)), np.tile(asked, len(images))
    scores = np.array(voice.of_pairs(*grid), np.float64).reshape(len(images), len(asked))
    scores[(images[:, None] == captions.owner[asked]) | np.isnan(scores)] = -np.inf
    best = scores.max(axis=0)
    lowest = float(best[np.isfinite(best)].min()) if np.isfinite(best).any() else -np.inf
    return SHORTER * lowest if lowest > 0 else lowest


def _spread(size: int, count: int) -> np.ndarray:
    """int64: `count` numbers below `size` at equal distances, or all of them."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).astype(np.int64))
