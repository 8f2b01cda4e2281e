"""Who ranks, asked about a caption, an image or single pairs: each measure here, trained models in `models`.

Scores are float32, the highest first; NaN where a voice has nothing to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.measures import Fitted, choose, names_of
from capgrade.measures.base import Scorer
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.captions import Captions

DEPTH = 10  # a model's first so many images of a caption are what it retrieves


@dataclass(frozen=True)
class MeasureVoice:
    """A fitted measure; `answer` scores captions that are not of the corpus, None where the measure cannot."""

    name: str
    fitted: Fitted
    answer: Scorer | None
    kind: str = "measure"

    def of_text(self, text: str) -> np.ndarray | None:
        """Of every image for a caption in words, [n_images]; None where only captions of the corpus are answered."""
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


def measure_voices(captions: Captions, names: Sequence[str], params: MeasuresParams) -> list[MeasureVoice]:
    """Those of the named measures that can be computed here and at once, fitted; the others have their values in the
    pairs only."""
    known = names_of(params)
    chosen = choose([name for name in names if name in known], params)
    fitted = {name: measure.fit(captions) for name, measure in chosen.items() if measure.at_once}
    return [MeasureVoice(name, one, chosen[name].unseen(one, captions)) for name, one in fitted.items()]
