"""Relevance of a caption to an image's picture, by a dual encoder such as CLIP or SigLIP.

CLIPScore and RefCLIPScore are those of Hessel et al. 2021 (arXiv 2104.08718):
CLIP-S(c, v) = 2.5 max(cos(c, v), 0), and RefCLIP-S(c, R, v) is the harmonic mean of CLIP-S(c, v)
and max(0, the largest cos(c, r) over references r in R). The authors' code (jmhessel/clipscore)
puts "A photo depicts " before every caption and reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from capgrade.devices import precision_of
from capgrade.measures.base import (
    Fill,
    Fitted,
    Measure,
    OfPictures,
    Scorer,
    own_pairs,
    reference_sets,
)
from capgrade.measures.embeddings import (
    EMBEDDINGS,
    cache_name,
    embed,
    encode,
    load_encoder,
    read_stored,
    require_lengths,
    store,
)
from capgrade.measures.sbert import FittedSbert
from capgrade.pictures.listing import list_pictures, match_pictures, pictures_digest
from capgrade.pictures.picture import Picture
from capgrade.pretrained import fingerprint
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import cache_folder
from capgrade.schemas.hub import hub_revision
from capgrade.schemas.natures import How, ModelAt, PicturesAt
from capgrade.schemas.params import MeasureDevice, ParamsBlock, SelfReference
from capgrade.schemas.progress import Advance, progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

COSINE, CLIPSCORE, REFCLIPSCORE = "cosine", "clipscore", "refclipscore"
WEIGHT = 2.5  # of CLIPScore
PROMPTS = {COSINE: "", CLIPSCORE: "A photo depicts", REFCLIPSCORE: "A photo depicts"}
RANGES = {
    COSINE: (-1.0, 1.0),
    CLIPSCORE: (0.0, WEIGHT),
    REFCLIPSCORE: (0.0, 2 * WEIGHT / (WEIGHT + 1)),
}
_BATCH, _GPU_BATCH = 16, 64  # pictures that are computed together
_CHUNK = 256  # pictures between two saves
SMALLEST = 1e-30  # of a sum that is divided by
SOURCES = "the folder, zip, tars or list of pictures"
EXAMPLE = "openai/clip-vit-base-patch32, google/siglip2-base-patch16-224, or a folder"


def combine_cosines(form: str, picture_cosine: Any, reference_cosine: Any = None) -> Any:
    """A form's values from float32 cosines of captions with pictures and, for RefCLIPScore, the
    largest with a reference: arrays, or tensors, of one shape."""
    if form == COSINE:
        return picture_cosine
    score = WEIGHT * picture_cosine.clip(0)
    if form == CLIPSCORE:
        return score
    reference_cosine = reference_cosine.clip(0)
    return 2 * score * reference_cosine / (score + reference_cosine).clip(SMALLEST)


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
        from capgrade.measures.on_device import ImageTextOnDevice

        return ImageTextOnDevice(self, device)

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """As `Fitted.own_left_out`; a picture stays where there is no other caption."""
        if self.form == REFCLIPSCORE:
            return super().own_left_out(images)
        rows, captions = own_pairs(self.ref_ptr, self.refs, images)
        return self.pairs(images[rows], captions)


class ImageTextParams(ParamsBlock):
    """A dual encoder of captions and pictures: CLIP, SigLIP, or another of transformers or
    sentence-transformers."""

    model: ModelAt | None = None  # hub id or folder; it has to be named
    # where the pictures are, as --images takes it; it has to be named
    images: PicturesAt | None = None
    form: Literal["cosine", "clipscore", "refclipscore"] = "cosine"
    prompt: str | None = None  # before each caption; null: "A photo depicts", of cosine nothing
    self_reference: SelfReference = "included"  # of refclipscore; the others have no references
    device: How[MeasureDevice] = "cpu"  # of the encoder; a GPU's embeddings differ in the last bits

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
        model, device, form = self.model, self.params.device, self.params.form
        self_reference = self.params.self_reference if form == REFCLIPSCORE else "included"
        sets = reference_sets(self_reference, captions)
        pictures = embed_pictures(pictures_of(captions, self.images), model, device)
        texts = [self.params.before + text for text in captions.texts]
        embeddings = embed(texts, model, device=device, load=load_dual_encoder)
        return FittedImageText(*sets, pictures, embeddings, form)

    def meaning(self) -> str:
        model = self.params.model
        return {
            COSINE: f"cosine of caption and picture (`{model}`), -1..1, without references",
            CLIPSCORE: f"CLIPScore of caption and picture (`{model}`), 0..2.5, without references",
            REFCLIPSCORE: f"RefCLIPScore (`{model}`), 0..1.43: harmonic mean of "
            "CLIPScore and the largest cosine with a reference",
        }[self.params.form]

    def files(self) -> dict[str, str]:
        return {
            "measures.image_text.model": fingerprint(self.model),
            "measures.image_text.images": digest_of_pictures(self.images),
        }

    def unseen(self, fitted: FittedImageText, captions: Captions) -> Scorer | None:
        return UnseenImageText(self, fitted)

    @property
    def model(self) -> str:
        """InputError where it is not named."""
        return require_param(self.name, "model", self.params.model, EXAMPLE)

    @property
    def images(self) -> str:
        """InputError where they are not named."""
        return require_param(self.name, "images", self.params.images, SOURCES)


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


def pictures_of(captions: Captions, source: str) -> list[Picture]:
    """The picture of each image, by `match_images`. InputError, which names the first images that
    have none."""
    listing = list_pictures(source)
    match = match_pictures(captions.image_files, listing, source)
    if match.missing:
        why = listing.reasons(
            {image_id: captions.image_files[image_id] for image_id in match.missing}
        )
        reason_of_first = "".join(
            f"; {image_id!r}: {reason}" for image_id, reason in list(why.items())[:1]
        )
        remedy = "give a picture of each image, named by its id or image_file, or drop these images"
        raise InputError(f"{match.lines()[0]}{reason_of_first}", file=source, remedy=remedy)
    return [listing[match.numbers[image_id]] for image_id in captions.image_ids]


def embed_pictures(pictures: Sequence[Picture], model: str, device: str) -> np.ndarray:
    """Unit-length embeddings of pictures, float32 [len(pictures), d].

    Each is kept by the digest of its file's bytes, beside what `embed` keeps of texts. InputError
    for a picture that cannot be read, and as `embed`.
    """
    pillow = version("pillow").partition(".")[0]
    folder = cache_folder() / EMBEDDINGS / f"{cache_name(model, device)}-pictures-pillow-{pillow}"
    with progress(f"reading {len(pictures):,} pictures", len(pictures)) as advance:
        digests = []
        for picture in pictures:
            digests.append(hashlib.sha256(picture.read()).hexdigest())
            advance()
    stored = read_stored(folder, digests)
    missing = {digest: k for k, digest in enumerate(digests) if not stored.known[k]}
    if missing:
        del stored
        encoder, names = load_dual_encoder(model, device), list(missing)
        with progress(f"encoding {len(names):,} pictures", len(names)) as advance:
            for at in range(0, len(names), _CHUNK):
                chunk = names[at : at + _CHUNK]
                pixels = (pictures[missing[digest]].decode()[0] for digest in chunk)
                shown = [Image.fromarray(picture) for picture in pixels]
                store(folder, chunk, encode_pictures(encoder, shown, advance), [0] * len(chunk))
        stored = read_stored(folder, digests)
        require_lengths(stored, model)
    return stored.vectors


def encode_pictures(
    encoder: SentenceTransformer,
    pictures: Sequence[Image.Image],
    advance: Advance | None = None,
) -> np.ndarray:
    """float32 [len(pictures), d], unit length. A batch is filled up to its full size with copies: a
    picture's bits do not depend on the others, as all products have one shape. In float32 on a GPU
    too, where PyTorch would take TF32 for the convolution over patches."""
    batch = _BATCH if encoder.device.type == "cpu" else _GPU_BATCH
    rows = np.resize(np.arange(len(pictures)), -(-len(pictures) // batch) * batch)
    options: Any = {"batch_size": batch, "normalize_embeddings": True, "show_progress_bar": False}
    vectors = []
    with precision_of("float32", encoder.device):
        for at in range(0, len(rows), batch):
            full = [pictures[row] for row in rows[at : at + batch].tolist()]
            vectors.append(np.asarray(encoder.encode(full, **options), np.float32))
            if advance is not None:
                advance(min(batch, len(pictures) - at))
    return np.concatenate(vectors)[: len(pictures)]


def load_dual_encoder(model: str, device: str = "cpu") -> SentenceTransformer:
    """Pictures are resized by Pillow, so that pixels do not depend on whether torchvision is there.
    InputError for a model that does not embed both captions and pictures."""
    encoder = load_encoder(model, device, "dual encoder", processor_kwargs={"backend": "pil"})
    network = getattr(encoder[0], "auto_model", None)
    if not (hasattr(network, "get_image_features") and hasattr(network, "get_text_features")):
        kind = getattr(getattr(network, "config", None), "model_type", type(encoder[0]).__name__)
        problem = f"model '{model}' is a '{kind}', which embeds no pictures"
        raise InputError(problem, remedy=f"give a dual encoder: {EXAMPLE}")
    return encoder


def digest_of_pictures(source: str) -> str:
    """The digest of their content; of a dataset of the hub its name and commit."""
    return pictures_digest(source) or f"{source} {hub_revision(source, 'dataset')}"


def require_param(measure: str, key: str, value: str | None, example: str) -> str:
    """The value of a measure's parameter. InputError, with an example, where there is none."""
    if value is None:
        argument = f"parameters.{measure}.{key}"
        remedy = f"give {{{argument}}}=..., {example}"
        raise InputError(
            f"{measure} needs measures.{measure}.{key}", remedy=remedy, keys=(argument,)
        )
    return value
