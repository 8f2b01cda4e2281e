"""Relevance of a caption by a cross-encoder, which reads it together with a reference or a picture.

A forward pass a pair is too slow for every pair, so these measures have a `Shortlist`. Nogueira and
Cho 2019 (arXiv 1901.04085) rerank passages so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from capgrade.cross_encoder import load_cross_encoder, score_pairs
from capgrade.measures.base import (
    OVER_REFERENCES,
    Measure,
    OfPictures,
    OfReferences,
    reference_sets,
)
from capgrade.measures.image_text import SOURCES, digest_of_pictures, pictures_of, require_param
from capgrade.measures.shortlist import Shortlist
from capgrade.pictures.picture import Picture
from capgrade.pretrained import fingerprint
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.natures import How, ModelAt, PicturesAt
from capgrade.schemas.params import MeasureDevice, SelfReference
from capgrade.schemas.progress import count_part

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

EXAMPLE = (
    "cross-encoder/stsb-roberta-base, or the folder of a CrossEncoder of sentence-transformers"
)


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


class RerankerParams(Shortlist):
    """A cross-encoder that reads a reference and a caption, and the measure that ranks for it."""

    # hub id or folder of a CrossEncoder of one score; it has to be named
    model: ModelAt | None = None
    references: Literal["max", "mean", "first"] = "max"
    self_reference: SelfReference = "included"
    prompt: str | None = None  # the model's instruction; null: its own
    device: How[MeasureDevice] = "cpu"  # of the model; a GPU's values differ in the last bits


class Reranker(Measure[RerankerParams]):
    """Sigmoid of a cross-encoder's score of a reference and a caption, 0..1."""

    name, parameters, low, high = "reranker", RerankerParams, 0.0, 1.0
    modules = ("sentence_transformers",)
    at_once = False

    def fit(self, captions: Captions) -> FittedReranker:
        """Pack the raw captions. InputError when the model cannot be loaded, or has several scores,
        or `left_out` leaves an image without references."""
        sets = reference_sets(self.params.self_reference, captions)
        by = _chosen_model(self.name, self.params)
        texts = PackedTexts.of(captions.texts)
        return FittedReranker(*sets, texts, by, self.params.references)

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        return (
            f"cross-encoder (`{model}`) of reference and caption, 0..1: {over}; {_scope_of(self)}"
        )

    def files(self) -> dict[str, str]:
        model = require_param(self.name, "model", self.params.model, EXAMPLE)
        return {"measures.reranker.model": fingerprint(model)}


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


class ImageRerankerParams(Shortlist):
    """A cross-encoder that reads a picture and a caption, and the measure that ranks for it."""

    # hub id or folder of a CrossEncoder of one score; it has to be named
    model: ModelAt | None = None
    # where the pictures are, as --images takes it; it has to be named
    images: PicturesAt | None = None
    prompt: str | None = None  # the model's instruction; null: its own
    device: How[MeasureDevice] = "cpu"  # of the model; a GPU's values differ in the last bits


class ImageReranker(Measure[ImageRerankerParams]):
    """Sigmoid of a cross-encoder's score of a picture and a caption, 0..1, without references."""

    name, parameters, low, high = "image_reranker", ImageRerankerParams, 0.0, 1.0
    modules = ("sentence_transformers",)
    pictures, at_once, leaves_out = "images", False, False

    def fit(self, captions: Captions) -> FittedImageReranker:
        """Find the pictures. InputError when the model cannot be loaded, has several scores or
        takes no pictures, and for an image that has no picture."""
        by = _chosen_model(self.name, self.params)
        if not by.load().supports("image"):
            remedy = "give a model that does, or take the measure reranker"
            raise InputError("the model takes no pictures", file=by.model, remedy=remedy)
        source = require_param(self.name, "images", self.params.images, SOURCES)
        pictures = [
            list(astuple(replace(picture, file=str(Path(picture.file).resolve()))))
            for picture in pictures_of(captions, source)
        ]
        sets = reference_sets("included", captions)
        return FittedImageReranker(*sets, PackedTexts.of(captions.texts), by, pictures)

    def meaning(self) -> str:
        what = f"cross-encoder (`{self.params.model}`) of picture and caption, 0..1"
        return f"{what}, without references; {_scope_of(self)}"

    def files(self) -> dict[str, str]:
        model = require_param(self.name, "model", self.params.model, EXAMPLE)
        images = require_param(self.name, "images", self.params.images, SOURCES)
        return {
            "measures.image_reranker.model": fingerprint(model),
            "measures.image_reranker.images": digest_of_pictures(images),
        }


def _chosen_model(name: str, params: RerankerParams | ImageRerankerParams) -> ChosenModel:
    """The model, loaded here so that one that cannot be is refused before anything is scored."""
    model = require_param(name, "model", params.model, EXAMPLE)
    # A worker may have another current folder.
    place = str(Path(model).resolve()) if Path(model).is_dir() else model
    by = ChosenModel(place, fingerprint(model), params.device, params.prompt)
    by.load()
    return by


def _scope_of(measure: Reranker | ImageReranker) -> str:
    params = measure.params
    return f"of own captions and the first {params.top} by `{params.of}`, null of others"
