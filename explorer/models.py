"""A trained model as one that ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from capgrade.explorer.voices import MatrixVoice, of_corpus
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.search.index import SIMILARITY, Searcher, open_search


@dataclass(frozen=True)
class ModelVoice(MatrixVoice):
    """A trained model with its index, which scores new captions and pictures too."""

    kind: str = "model"
    searcher: Searcher = field(kw_only=True)

    def of_text(self, text: str) -> np.ndarray:
        return of_corpus(self.searcher.of_text(text), self.image)

    def _of_column(self, caption: int) -> np.ndarray:
        # of an index by a coarse model the matrix has not all pairs
        return self.searcher.of_caption(caption)

    def _of_row(self, image: int) -> np.ndarray:
        return self.searcher.of_image(image)

    def of_regions(self, regions: Regions) -> np.ndarray:
        """[n_captions], for an image that is not of the corpus. InputError for regions of another
        detector."""
        return of_corpus(self.searcher.of_regions(regions), self.caption)


def model_voice(name: str, run: Path, index: Path, captions: Captions) -> ModelVoice:
    """InputError when the index has none of the images, as when it is of another split."""
    searcher = open_search(run, index)
    image = _positions(captions.image_ids, searcher.items.image_ids)
    if (image < 0).all():
        problem = f"has none of the {len(image)} images of split '{captions.split}'"
        remedy = "encode this split: capgrade evaluate --run --split, or choose another --split"
        raise InputError(problem, file=index, remedy=remedy)
    caption = _positions(captions.caption_ids, searcher.items.caption_ids)
    matrix = np.load(index / SIMILARITY, mmap_mode="r", allow_pickle=False)
    return ModelVoice(name, matrix, image, caption, searcher=searcher)


def _positions(ids: Sequence[str], among: Sequence[str]) -> np.ndarray:
    at = {key: k for k, key in enumerate(among)}
    return np.array([at.get(key, -1) for key in ids], np.int64)
