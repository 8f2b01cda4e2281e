"""A dual encoder's embeddings of captions and pictures, as `ImageText` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.measures.base import Fill, Fitted, OfPictures, own_pairs, reference_sets
from capgrade.measures.embeddings import embed, encode
from capgrade.measures.image_text.encoder import embed_pictures, load_dual_encoder
from capgrade.measures.image_text.forms import REFCLIPSCORE, combine_cosines
from capgrade.measures.pictures import pictures_of
from capgrade.measures.sbert.fitted import FittedSbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    from capgrade.measures.image_text import ImageText


@dataclass(frozen=True)
class FittedImageText(OfPictures):
    """Unit embeddings of the images' pictures and of the captions, in one space."""

    measure = "image_text"

    pictures: np.ndarray  # float32 [n_images, d]
    embeddings: np.ndarray  # float32 [n_captions, d]
    form: str

    @property
    def of_pictures(self) -> FittedSbert:
        """Cosines with pictures: each image's picture as its only reference."""
        rows = np.arange(len(self.pictures) + 1)
        return FittedSbert(rows, rows[:-1], False, self.pictures, rows[:-1], "max")

    @property
    def of_references(self) -> FittedSbert:
        """The largest cosine with a reference caption."""
        rows = np.arange(len(self.embeddings))
        return FittedSbert(self.ref_ptr, self.refs, self.leave_out, self.embeddings, rows, "max")

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        picture_cosines = self.of_pictures.scores(images, captions, self.embeddings)
        reference_cosines = (
            self.of_references.pairs(images, captions) if self.form == REFCLIPSCORE else None
        )
        return np.asarray(combine_cosines(self.form, picture_cosines, reference_cosines))

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`: a product with the pictures, and one with references that count."""
        multiply = self.of_pictures.product(images)
        fill_references = (
            self.of_references.filler(images, start) if self.form == REFCLIPSCORE else None
        )

        def fill(first: int, last: int, out: np.ndarray) -> None:
            multiply(self.embeddings[first:last], out)
            picture_cosines, reference_cosines = out[:, : last - first], None
            if fill_references is not None:
                reference_cosines = np.empty_like(picture_cosines)
                fill_references(first, last, reference_cosines)
            picture_cosines[:] = combine_cosines(self.form, picture_cosines, reference_cosines)

        return fill

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        picture_cosines = np.empty((len(images), len(captions)), np.float32)
        reference_cosines = None
        self.of_pictures.product(images)(self.embeddings[captions], picture_cosines)
        if self.form == REFCLIPSCORE:
            reference_cosines = self.of_references.cells(images, captions)
        return np.asarray(combine_cosines(self.form, picture_cosines, reference_cosines))

    def on_device(self, device: Any) -> Fitted:
        from capgrade.measures.image_text.device import ImageTextOnDevice

        return ImageTextOnDevice(self, device)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """As `Fitted.own_left_out`; a picture stays where there is no other caption."""
        if self.form == REFCLIPSCORE:
            return super().own_left_out(images)
        rows, captions = own_pairs(self.ref_ptr, self.refs, images)
        return self.pairs(images[rows], captions)


def fit(captions: Captions, measure: ImageText) -> FittedImageText:
    """As `ImageText.fit`."""
    model, device, form = measure.model, measure.params.device, measure.params.form
    self_reference = measure.params.self_reference if form == REFCLIPSCORE else "included"
    sets = reference_sets(self_reference, captions)
    pictures = embed_pictures(pictures_of(captions, measure.images), model, device)
    texts = [measure.params.before + text for text in captions.texts]
    embeddings = embed(texts, model, device=device, load=load_dual_encoder)
    return FittedImageText(*sets, pictures, embeddings, form)


class UnseenImageText:
    """Scores of any caption; the model is loaded once."""

    def __init__(self, measure: ImageText, fitted: FittedImageText) -> None:
        self.params, self.fitted = measure.params, fitted
        self._encoder = load_dual_encoder(measure.model, measure.params.device)

    def __call__(self, text: str) -> np.ndarray:
        if not text.strip():
            raise InputError("no word in this caption", remedy="type a caption of one word or more")
        vector = encode(self._encoder, [self.params.before + text])
        images = np.arange(len(self.fitted.pictures))
        rows, reference_cosines = np.zeros_like(images), None
        picture_cosines = self.fitted.of_pictures.scores(images, rows, vector)
        if self.params.form == REFCLIPSCORE:
            reference_cosines = self.fitted.of_references.scores(images, rows, vector)
        return np.asarray(combine_cosines(self.params.form, picture_cosines, reference_cosines))
