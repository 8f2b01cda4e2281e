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
