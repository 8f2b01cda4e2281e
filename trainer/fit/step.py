"""A batch through the model, with every label its losses ask for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from capgrade.losses import ScoredBatch, gather
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.data.relevance import BatchRelevance
from capgrade.trainer.models.base import Encoded, RetrievalModel
from capgrade.trainer.models.single_stream import SingleStream
from capgrade.trainer.search.encode import to_device


def scored_batch(
    model: nn.Module, scorer: RetrievalModel, batch: Batch, relevance: BatchRelevance | None, needs: frozenset[str]
) -> ScoredBatch:
    """Scores of the gathered batch [B, B] and the labels in `needs`; `model` is `scorer`, wrapped or not."""
    device = next(scorer.parameters()).device
    texts = to_device(batch.texts, device)
    images, captions = model(to_device(batch.images, device), texts)
    own = scorer.own_losses(images, captions, texts) if "own_losses" in needs else {}
    images, captions = _gathered(images), _gathered(captions)
    owner = torch.from_numpy(batch.image_numbers).to(device)
    labels = {} if relevance is None else relevance.block(batch.image_numbers, batch.caption_rows)._asdict()
    return ScoredBatch(
        scorer.scores(images, captions),
        torch.from_numpy(batch.own).to(device),
        labels=owner,
        more=scorer.more_scores(images, captions),
        own_losses=own,
        in_order=True,
        **{name: torch.from_numpy(values).to(device) for name, values in labels.items() if values is not None},
        **_vectors(scorer, images, captions, needs),
    )


def _gathered(encoded: Encoded) -> Encoded:
    """The encodings of the whole batch, one process's after the other's."""
    vector, parts, mask = (None if x is None else gather(x) for x in (encoded.vector, encoded.parts, encoded.mask))
    return Encoded(vector, parts, mask)


def _vectors(scorer: RetrievalModel, images: Encoded, captions: Encoded, needs: frozenset[str]) -> dict[str, Any]:
    """What losses on vectors and classes see: the outputs of the single stream, or the unit vectors of a model."""
    found: dict[str, Any] = {}
    if isinstance(scorer, SingleStream):
        assert images.parts is not None and captions.parts is not None
        if "vectors" in needs:
            found.update(images=images.parts[:, 0], captions=captions.parts[:, 0])
        if "logits" in needs:
            found.update(image_logits=scorer.classify(images), caption_logits=scorer.classify(captions))
    elif "vectors" in needs:
        found.update(images=images.vector, captions=captions.vector)
    return found
