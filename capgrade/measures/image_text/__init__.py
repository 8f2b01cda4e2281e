"""Relevance of a caption to an image's picture, by a dual encoder such as CLIP or SigLIP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from capgrade.measures.base import Measure, Scorer
from capgrade.measures.image_text.forms import (
    CLIPSCORE,
    COSINE,
    EXAMPLE,
    PROMPTS,
    RANGES,
    REFCLIPSCORE,
)
from capgrade.measures.required import SOURCES, require_param
from capgrade.pretrained import fingerprint
from capgrade.schemas.block import MeasureDevice, ParamsBlock, SelfReference
from capgrade.schemas.natures import How, ModelAt, PicturesAt

if TYPE_CHECKING:
    from capgrade.measures.image_text.fitted import FittedImageText
    from capgrade.schemas.captions import Captions


class ImageTextParams(ParamsBlock):
    """A dual encoder of captions and pictures: CLIP, SigLIP, or another of transformers or
    sentence-transformers."""

    model: ModelAt | None = None
    """hub id or folder; it has to be named"""
    images: PicturesAt | None = None
    """where the pictures are, as --images takes it; it has to be named"""
    form: Literal["cosine", "clipscore", "refclipscore"] = "cosine"
    prompt: str | None = None
    """before each caption; null: "A photo depicts", of cosine nothing"""
    self_reference: SelfReference = "included"
    """of refclipscore; the others have no references"""
    device: How[MeasureDevice] = "cpu"
    """of the encoder; a GPU's embeddings differ in the last bits"""

    @property
    def before(self) -> str:
        """What is put before each caption, with the space between."""
        prompt = PROMPTS[self.form] if self.prompt is None else self.prompt
        return f"{prompt} " if prompt and not prompt.endswith(" ") else prompt


class ImageText(Measure[ImageTextParams]):
    """Cosine, CLIPScore or RefCLIPScore of a caption and a picture; the last has references too."""

    name, parameters, block, pictures = "image_text", ImageTextParams, "image_text", "images"
    modules = ("sentence_transformers",)

    def __init__(self, params: ImageTextParams | None = None) -> None:
        super().__init__(params)
        self.low, self.high = RANGES[self.params.form]

    def fit(self, captions: Captions) -> FittedImageText:
        """Embed pictures and raw captions. InputError when the model cannot be loaded, an image has
        no readable picture, or `left_out` leaves an image of refclipscore without references."""
        from capgrade.measures.image_text.fitted import fit

        return fit(captions, self)

    def meaning(self) -> str:
        model = self.params.model
        return {
            COSINE: f"cosine of caption and picture (`{model}`), -1..1, without references",
            CLIPSCORE: f"CLIPScore of caption and picture (`{model}`), 0..2.5, without references",
            REFCLIPSCORE: f"RefCLIPScore (`{model}`), 0..1.43: harmonic mean of "
            "CLIPScore and the largest cosine with a reference",
        }[self.params.form]

    def files(self) -> dict[str, str]:
        from capgrade.measures.pictures import digest_of_pictures

        return {
            "measures.image_text.model": fingerprint(self.model),
            "measures.image_text.images": digest_of_pictures(self.images),
        }

    def unseen(self, fitted: FittedImageText, captions: Captions) -> Scorer | None:
        from capgrade.measures.image_text.fitted import UnseenImageText

        return UnseenImageText(self, fitted)

    @property
    def model(self) -> str:
        """InputError where it is not named."""
        return require_param(self.name, "model", self.params.model, EXAMPLE)

    @property
    def images(self) -> str:
        """InputError where they are not named."""
        return require_param(self.name, "images", self.params.images, SOURCES)
