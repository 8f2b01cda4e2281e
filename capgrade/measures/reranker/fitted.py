"""Cross-encoders of captions, as `Reranker` and `ImageReranker` say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from capgrade.cross_encoder import load_cross_encoder, score_pairs
from capgrade.measures.base import OfPictures, OfReferences, reference_sets
from capgrade.measures.pictures import pictures_of
from capgrade.pictures.picture import Picture
from capgrade.pretrained import fingerprint
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import count_part

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from capgrade.measures.reranker import ImageRerankerParams, RerankerParams


class PackedTexts(NamedTuple):
    """Texts as arrays, which workers share."""

    ptr: np.ndarray  # int64 [n + 1]: where each begins
    letters: np.ndarray  # uint8: UTF-8

    @classmethod
    def of(cls, texts: Sequence[str]) -> PackedTexts:
        coded = [text.encode() for text in texts]
        ptr = np.append(0, np.cumsum([len(text_bytes) for text_bytes in coded]))
        return cls(ptr, np.frombuffer(b"".join(coded), np.uint8))

    def take(self, rows: np.ndarray) -> list[str]:
        """Those of some rows."""
        return [bytes(self.letters[self.ptr[k] : self.ptr[k + 1]]).decode() for k in rows]


class ChosenModel(NamedTuple):
    """Which cross-encoder scores, and how it is asked."""

    model: str
    digest: str  # what `fingerprint` says of it
    device: str
    prompt: str | None

    def load(self) -> CrossEncoder:
        """The model, which a process loads once."""
        return _load_once(self.model, self.digest, self.device)

    def score(self, pairs: Sequence[tuple[Any, str]]) -> np.ndarray:
        """As `score_pairs`."""
        return score_pairs(self.load(), pairs, self.prompt)


@lru_cache(maxsize=2)  # one model of each of the two measures
def _load_once(model: str, digest: str, device: str) -> CrossEncoder:
    return load_cross_encoder(model, device)


@dataclass(frozen=True)
class FittedReranker(OfReferences):
    """The captions' texts: a reference is the query, and a caption the document.

    What is scored together is of one image, so that a value's bits do not depend on other images.
    """

    texts: PackedTexts
    by: ChosenModel
    references: str

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return by_image(self._of_image, images, captions)

    def _of_image(self, image: int, captions: np.ndarray) -> np.ndarray:
        sets = [self._references(image, caption) for caption in captions]
        sizes = np.array([len(rows) for rows in sets])
        queries = self.texts.take(np.concatenate(sets))
        documents = self.texts.take(np.repeat(captions, sizes))
        values = self.by.score(list(zip(queries, documents, strict=True)))
        start = np.cumsum(sizes) - sizes
        if self.references == "mean":
            return (np.add.reduceat(values.astype(np.float64), start) / sizes).astype(np.float32)
        return np.maximum.reduceat(values, start)

    def _references(self, image: int, caption: int) -> np.ndarray:
        own = self.refs[self.ref_ptr[image] : self.ref_ptr[image + 1]]
        own = own[own != caption] if self.leave_out else own
        return own[:1] if self.references == "first" else own


def by_image(
    of_image: Callable[[int, np.ndarray], np.ndarray], images: np.ndarray, captions: np.ndarray
) -> np.ndarray:
    """float32 [pairs] from a function of an image and some captions, called once an image."""
    out = np.empty(len(captions), np.float32)
    for image in np.unique(images).tolist():
        asked = np.flatnonzero(images == image)
        out[asked] = of_image(image, captions[asked])
        count_part(len(asked), len(captions))
    return out


@dataclass(frozen=True)
class FittedImageReranker(OfPictures):
    """The pictures' places and the captions' texts: a picture is the query."""

    measure = "image_reranker"
    texts: PackedTexts
    by: ChosenModel
    pictures: list[list[Any]]  # the fields of each image's `Picture`

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return by_image(self._of_image, images, captions)

    def _of_image(self, image: int, captions: np.ndarray) -> np.ndarray:
        pixels = Image.fromarray(Picture(*self.pictures[image]).decode()[0])
        return self.by.score([(pixels, text) for text in self.texts.take(captions)])


def fit(captions: Captions, params: RerankerParams, model: str) -> FittedReranker:
    """As `Reranker.fit`."""
    sets = reference_sets(params.self_reference, captions)
    by = _chosen_model(model, params)
    return FittedReranker(*sets, PackedTexts.of(captions.texts), by, params.references)


def fit_pictures(
    captions: Captions, params: ImageRerankerParams, model: str, images: str
) -> FittedImageReranker:
    """As `ImageReranker.fit`."""
    by = _chosen_model(model, params)
    if not by.load().supports("image"):
        remedy = "give a model that does, or take the measure reranker"
        raise InputError("the model takes no pictures", file=by.model, remedy=remedy)
    pictures = [
        list(astuple(replace(picture, file=str(Path(picture.file).resolve()))))
        for picture in pictures_of(captions, images)
    ]
    sets = reference_sets("included", captions)
    return FittedImageReranker(*sets, PackedTexts.of(captions.texts), by, pictures)


def _chosen_model(model: str, params: RerankerParams | ImageRerankerParams) -> ChosenModel:
    """The model, loaded here so that one that cannot be is refused before anything is scored."""
    # A worker may have another current folder.
    place = str(Path(model).resolve()) if Path(model).is_dir() else model
    by = ChosenModel(place, fingerprint(model), params.device, params.prompt)
    by.load()
    return by
