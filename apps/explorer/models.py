"""A trained model as a voice of the explorer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from capgrade.apps.explorer.voices import MatrixVoice, spread_to_corpus
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.search.index import SIMILARITY, Searcher, open_search


@dataclass(frozen=True)
class ModelVoice(MatrixVoice):
    """A trained model with its index, which scores new captions and pictures too."""

    kind: str = "model"
    searcher: Searcher = field(kw_only=True)

    def score_text(self, text: str) -> np.ndarray:
        return spread_to_corpus(self.searcher.score_text(text), self.image)

    def _of_column(self, caption: int) -> np.ndarray:
        # The stored matrix may lack pairs: an index by a coarse model has only its best ones.
        return self.searcher.score_caption(caption)

    def _of_row(self, image: int) -> np.ndarray:
        return self.searcher.score_image(image)

    def score_regions(self, regions: Regions) -> np.ndarray:
        """[n_captions], for an image that is not of the corpus. InputError for regions of another
        detector."""
        return spread_to_corpus(self.searcher.score_regions(regions), self.caption)


def open_model_voice(name: str, run: Path, index: Path, captions: Captions) -> ModelVoice:
    """The model of a run with its index. InputError when the index has none of the images, as when
    it is of another split."""
    searcher = open_search(run, index)
    image = _positions(captions.image_ids, searcher.items.image_ids)
    if (image < 0).all():
        problem = f"has none of the {len(image)} images of split '{captions.split}'"
        remedy = "encode this split: capgrade embed --split, or choose another --split"
        raise InputError(problem, file=index, remedy=remedy)
    caption = _positions(captions.caption_ids, searcher.items.caption_ids)
    matrix = np.load(index / SIMILARITY, mmap_mode="r", allow_pickle=False)
    return ModelVoice(name, matrix, image, caption, searcher=searcher)


def _positions(ids: Sequence[str], among: Sequence[str]) -> np.ndarray:
    position = {key: k for k, key in enumerate(among)}
    return np.array([position.get(key, -1) for key in ids], np.int64)
