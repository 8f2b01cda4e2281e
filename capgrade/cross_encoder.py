"""Cross-encoders of sentence-transformers: models that read a query and a document together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.devices import device_of, precision_of
from capgrade.pretrained import model_source, quiet_loading, revision_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

BATCH = 32  # pairs that are computed together


@needs("encoder")
def load_cross_encoder(model: str, device: str) -> CrossEncoder:
    """A model of one score: a folder, or one of the hub, on `device` as `device_of` takes it.

    It runs no code of its own. InputError where it cannot be loaded, or has several scores.
    """
    source = model_source(model)
    from sentence_transformers import CrossEncoder

    place = device_of(device)
    try:
        with quiet_loading():
            encoder = CrossEncoder(source, device=str(place), revision=revision_of(source))
    except Exception as error:  # the libraries raise a dozen kinds for a missing or broken model
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        remedy = "give the folder of a sentence-transformers CrossEncoder, or a hub id when online"
        raise InputError(
            f"cannot load the CrossEncoder '{model}': {reason}", remedy=remedy
        ) from error
    kinds = getattr(encoder.config, "architectures", None) or [""]
    if len(encoder) == 1 and "For" not in kinds[0]:  # the library would put random weights there
        remedy = "give a model that was trained as a CrossEncoder"
        raise InputError(
            f"{kinds[0] or 'the model'} has no layer that scores", file=model, remedy=remedy
        )
    if encoder.num_labels != 1:
        remedy = "give a model of one score, such as a reranker"
        raise InputError(f"the model has {encoder.num_labels} labels", file=model, remedy=remedy)
    return encoder


def score_pairs(
    model: CrossEncoder, pairs: Sequence[tuple[Any, Any]], prompt: str | None = None
) -> np.ndarray:
    """float32 [len(pairs)], 0..1: the sigmoid of the model's score, whatever it has as activation.

    A side of a pair is a text or a picture; `prompt` is the model's instruction (None: its own).
    """
    import torch

    # PyTorch would take TF32 for a vision model's convolution over patches on a GPU.
    with precision_of("float32", model.device):
        scores = model.predict(
            list(pairs),
            batch_size=BATCH,
            activation_fn=torch.nn.Sigmoid(),
            prompt=prompt,
            show_progress_bar=False,
        )
    return np.asarray(scores, np.float32)
