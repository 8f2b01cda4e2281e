"""Whether a typed caption is like anything of the corpus: every voice ranks something first, nonsense too."""

from __future__ import annotations

import numpy as np

from capgrade.explorer.voices import Voice
from capgrade.schemas.captions import Captions

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
