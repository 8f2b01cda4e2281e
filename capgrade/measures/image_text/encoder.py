"""Embeddings of pictures by a dual encoder, kept by the digest of each picture."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from capgrade.devices import precision_of
from capgrade.measures.embeddings import (
    EMBEDDINGS,
    cache_name,
    load_encoder,
    read_stored,
    require_lengths,
    store,
)
from capgrade.measures.image_text.forms import EXAMPLE
from capgrade.pictures.picture import Picture
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import cache_folder
from capgrade.schemas.progress import Advance, progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BATCH, _GPU_BATCH = 16, 64  # pictures that are computed together
_CHUNK = 256  # pictures between two saves


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
