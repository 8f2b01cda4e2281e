"""Losses that a model makes of its own parts."""

from __future__ import annotations

from torch import Tensor

from capgrade.losses.base import ScoredBatch
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError


@declared("own_losses")
def captioning(batch: ScoredBatch) -> Tensor:
    """-log p of each caption given its image, the mean over captions; VSRN's. Source: Li et al. 2019."""
    return _own_loss(batch, "captioning")


@declared("own_losses")
def divergence(batch: ScoredBatch) -> Tensor:
    """KL of the concepts of captions from those of their images, summed over pairs; CVSE's (Wang et al. 2020)."""
    return _own_loss(batch, "divergence") * len(batch.at[0])


def _own_loss(batch: ScoredBatch, name: str) -> Tensor:
    """A loss that the model makes. InputError where it has none of this name."""
    if name not in batch.own_losses:
        hosts = {"captioning": "vsrn", "divergence": "cvse"}
        raise InputError(f"loss '{name}' is of a model that has it", remedy=f"choose model {hosts[name]}")
    return batch.own_losses[name]
