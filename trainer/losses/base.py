"""What a loss sees of a batch, and what losses share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from capgrade.schemas.errors import InputError

Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # an option that something is divided or scaled by


@dataclass(frozen=True)
class ScoredBatch:
    """B pairs of an image and one of its captions, scored against each other; pair i is row i and column i.

    With several processes this is the gathered batch. What nobody asked for is None. Raises InputError when shapes
    do not fit: a matrix of B images and 5 B captions is no batch of pairs.
    """

    scores: Tensor  # float [B, B], similarity of image i and caption j
    own: Tensor  # bool [B, B], caption j is one of image i's; the diagonal always is
    relevance: Tensor | None = None  # float [B, B], of caption j to image i (train.relevance_of says to what of it)
    known: Tensor | None = None  # bool [B, B], where `relevance` is known; None: everywhere
    images: Tensor | None = None  # float [B, D], one vector an image, of models that have one
    captions: Tensor | None = None  # float [B, D]
    image_logits: Tensor | None = None  # float [B, C], of models with a classifier
    caption_logits: Tensor | None = None
    labels: Tensor | None = None  # int64 [B], the class of each pair: its image
    more: Mapping[str, Tensor] = field(default_factory=dict)  # float [B, B], scores of parts of the model, by name
    own_losses: Mapping[str, Tensor] = field(default_factory=dict)  # scalars that the model makes, by name

    def __post_init__(self) -> None:
        pairs = len(self.scores)
        for names, shape in (
            (("scores", "own", "relevance", "known"), (pairs, pairs)),
            (("images", "captions"), (pairs, _width(self.images))),
            (("image_logits", "caption_logits"), (pairs, _width(self.image_logits))),
            (("labels",), (pairs,)),
        ):
            for name in names:
                value = getattr(self, name)
                if value is not None and tuple(value.shape) != shape:
                    problem = f"{name} of a batch is {list(value.shape)}, and {list(shape)} fits {pairs} pairs"
                    raise InputError(problem, remedy="give one caption an image, as many rows as columns")


def _width(vectors: Tensor | None) -> int | None:
    return None if vectors is None else vectors.shape[-1]


def required(batch: ScoredBatch, *names: str) -> list[Tensor]:
    """These tensors of a batch. InputError for one it lacks: the trainer gives what the model has."""
    found = [getattr(batch, name) for name in names]
    if any(value is None for value in found):
        missing = next(name for name, value in zip(names, found, strict=True) if value is None)
        problem = f"a loss asks for `{missing}`, which this batch lacks"
        raise InputError(problem, remedy="choose a model that gives it: single_stream gives vectors and logits")
    return found


def own_loss(batch: ScoredBatch, name: str) -> Tensor:
    """A loss that the model makes. InputError where it has none of this name."""
    if name not in batch.own_losses:
        hosts = {"captioning": "vsrn", "divergence": "cvse"}
        raise InputError(f"loss '{name}' is of a model that has it", remedy=f"choose model {hosts[name]}")
    return batch.own_losses[name]


def scores_of(batch: ScoredBatch, part: str) -> ScoredBatch:
    """The batch with the scores of a part of the model. InputError where it has none of this name."""
    if part not in batch.more:
        known = ", ".join(batch.more) or "the model has no parts"
        raise InputError(f"a loss looks at the scores of '{part}'", remedy=f"known: {known}")
    return replace(batch, scores=batch.more[part])


def asked(batch: ScoredBatch) -> tuple[Tensor, Tensor]:
    """Relevance [B, B] and where it is known, for losses that need it."""
    (relevance,) = required(batch, "relevance")
    known = torch.ones_like(batch.own) if batch.known is None else batch.known
    return relevance, known


def all_known(batch: ScoredBatch, loss: str) -> Tensor:
    """Relevance [B, B] for the authors' forms, which have no place for an unknown one; InputError for sampled ones."""
    (relevance,) = required(batch, "relevance")
    if batch.known is not None:
        problem = f"loss '{loss}', form authors, needs the relevance of every pair"
        raise InputError(problem, remedy="set train.relevance=exact, or form: paper")
    return relevance


def off_diagonal(batch: ScoredBatch) -> Tensor:
    """bool [B, B]: True but for the pairs themselves."""
    return ~torch.eye(len(batch.scores), dtype=torch.bool, device=batch.scores.device)


def both_ways(batch: ScoredBatch) -> tuple[ScoredBatch, ScoredBatch]:
    """Queries in rows: images over captions, and captions over images."""

    def turned(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.T

    other = ScoredBatch(batch.scores.T, batch.own.T, turned(batch.relevance), turned(batch.known))
    return batch, other
