"""Relevance of a caption by a cross-encoder, which reads it together with a reference or a picture.

A forward pass a pair is too slow for every pair, so these measures have a `Shortlist`. Nogueira and
Cho 2019 (arXiv 1901.04085) rerank passages so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from capgrade.measures.base import OVER_REFERENCES, Measure, Shortlist
from capgrade.measures.required import SOURCES, require_param
from capgrade.pretrained import fingerprint
from capgrade.schemas.block import MeasureDevice, SelfReference
from capgrade.schemas.natures import How, ModelAt, PicturesAt

if TYPE_CHECKING:
    from capgrade.measures.reranker.fitted import FittedImageReranker, FittedReranker
    from capgrade.schemas.captions import Captions

EXAMPLE = (
    "cross-encoder/stsb-roberta-base, or the folder of a CrossEncoder of sentence-transformers"
)


class RerankerParams(Shortlist):
    """A cross-encoder that reads a reference and a caption, and the measure that ranks for it."""

    model: ModelAt | None = None
    """hub id or folder of a CrossEncoder of one score; it has to be named"""
    references: Literal["max", "mean", "first"] = "max"
    self_reference: SelfReference = "included"
    prompt: str | None = None
    """the model's instruction; null: its own"""
    device: How[MeasureDevice] = "cpu"
    """of the model; a GPU's values differ in the last bits"""


class Reranker(Measure[RerankerParams]):
    """Sigmoid of a cross-encoder's score of a reference and a caption, 0..1."""

    name, parameters, low, high = "reranker", RerankerParams, 0.0, 1.0
    modules = ("sentence_transformers",)
    at_once = False

    def fit(self, captions: Captions) -> FittedReranker:
        """Pack the raw captions. InputError when the model cannot be loaded, or has several scores,
        or `left_out` leaves an image without references."""
        from capgrade.measures.reranker.fitted import fit

        return fit(captions, self.params, self.model)

    def meaning(self) -> str:
        model, over = self.params.model, OVER_REFERENCES[self.params.references]
        return (
            f"cross-encoder (`{model}`) of reference and caption, 0..1: {over}; {_scope_of(self)}"
        )

    def files(self) -> dict[str, str]:
        return {"measures.reranker.model": fingerprint(self.model)}

    @property
    def model(self) -> str:
        """InputError where it is not named."""
        return require_param(self.name, "model", self.params.model, EXAMPLE)


class ImageRerankerParams(Shortlist):
    """A cross-encoder that reads a picture and a caption, and the measure that ranks for it."""

    model: ModelAt | None = None
    """hub id or folder of a CrossEncoder of one score; it has to be named"""
    images: PicturesAt | None = None
    """where the pictures are, as --images takes it; it has to be named"""
    prompt: str | None = None
    """the model's instruction; null: its own"""
    device: How[MeasureDevice] = "cpu"
    """of the model; a GPU's values differ in the last bits"""


class ImageReranker(Measure[ImageRerankerParams]):
    """Sigmoid of a cross-encoder's score of a picture and a caption, 0..1, without references."""

    name, parameters, low, high = "image_reranker", ImageRerankerParams, 0.0, 1.0
    modules = ("sentence_transformers",)
    pictures, at_once, leaves_out = "images", False, False

    def fit(self, captions: Captions) -> FittedImageReranker:
        """Find the pictures. InputError when the model cannot be loaded, has several scores or
        takes no pictures, and for an image that has no picture."""
        from capgrade.measures.reranker.fitted import fit_pictures

        return fit_pictures(captions, self.params, self.model, self.images)

    def meaning(self) -> str:
        what = f"cross-encoder (`{self.params.model}`) of picture and caption, 0..1"
        return f"{what}, without references; {_scope_of(self)}"

    def files(self) -> dict[str, str]:
        from capgrade.measures.pictures import digest_of_pictures

        model, images = self.model, self.images
        return {
            "measures.image_reranker.model": fingerprint(model),
            "measures.image_reranker.images": digest_of_pictures(images),
        }

    @property
    def model(self) -> str:
        """InputError where it is not named."""
        return require_param(self.name, "model", self.params.model, EXAMPLE)

    @property
    def images(self) -> str:
        """InputError where they are not named."""
        return require_param(self.name, "images", self.params.images, SOURCES)


def _scope_of(measure: Reranker | ImageReranker) -> str:
    params = measure.params
    return f"of own captions and the first {params.top} by `{params.of}`, null of others"
