"""A batch through the model, with every label its losses ask for; and what is kept of one whose loss is no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from capgrade.losses import ScoredBatch, gather
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.data.relevance import BatchRelevance
from capgrade.trainer.fit import UNFIT
from capgrade.trainer.fit.history import History
from capgrade.trainer.models.base import Encoded, RetrievalModel
from capgrade.trainer.models.single_stream import SingleStream
from capgrade.trainer.search.encode import to_device


def scored_batch(
    model: RetrievalModel, batch: Batch, relevance: BatchRelevance | None, needs: frozenset[str]
) -> ScoredBatch:
    """Scores of the gathered batch [B, B] and the labels in `needs`."""
    device = next(model.parameters()).device
    texts = to_device(batch.texts, device)
    images, captions = model(to_device(batch.images, device), texts)
    own = model.own_losses(images, captions, texts) if "own_losses" in needs else {}
    images, captions = images.map(gather), captions.map(gather)
    owner = torch.from_numpy(batch.image_numbers).to(device)
    labels = {} if relevance is None else relevance.block(batch.image_numbers, batch.caption_rows)._asdict()
    return ScoredBatch(
        model.scores(images, captions),
        torch.from_numpy(batch.own).to(device),
        labels=owner,
        more=model.more_scores(images, captions),
        own_losses=own,
        in_order=True,
        **{name: torch.from_numpy(values).to(device) for name, values in labels.items() if values is not None},
        **_vectors(model, images, captions, needs),
    )


def _vectors(model: RetrievalModel, images: Encoded, captions: Encoded, needs: frozenset[str]) -> dict[str, Any]:
    """What losses on vectors and classes see: the outputs of the single stream, or the unit vectors of a model."""
    seen: dict[str, Any] = {}
    if "vectors" in needs:
        seen |= {"images": images.vector, "captions": captions.vector}
        if isinstance(model, SingleStream):
            seen = {"images": images.sets[0][:, 0], "captions": captions.sets[0][:, 0]}
    if isinstance(model, SingleStream) and "logits" in needs:
        seen |= {"image_logits": model.classify(images), "caption_logits": model.classify(captions)}
    return seen


def stop_at_nan(loss: Tensor, batch: Batch, captions: Captions, history: History, out: Path) -> None:
    """InputError when the loss is NaN or infinite; the batch's image and caption ids go to unfit_batch.json."""
    if loss.isfinite():
        return
    rows = batch.caption_rows.tolist()
    ids = {"captions": [captions.caption_ids[r] for r in rows]}
    ids["images"] = [captions.image_ids[i] for i in batch.image_numbers.tolist()]
    told = {"step": len(history.steps), "epoch": history.epoch + 1, "loss": str(loss.item()), **ids}
    write_text(out / UNFIT, json.dumps(told, indent=2) + "\n")
    problem = f"the loss is {loss.item()} at step {told['step']}, epoch {told['epoch']}"
    remedy = "lower train.lr or the weight of a loss; the batch is in this file"
    raise InputError(problem, file=out / UNFIT, remedy=remedy)
