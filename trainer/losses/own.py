"""Losses that a model makes of its own parts."""

from __future__ import annotations

from torch import Tensor

from capgrade.trainer.losses.base import ScoredBatch, own_loss


def captioning(batch: ScoredBatch) -> Tensor:
    """-log p of each caption given its image, the mean over captions; VSRN's. Source: Li et al. 2019."""
    return own_loss(batch, "captioning")


def divergence(batch: ScoredBatch) -> Tensor:
    """KL of the concepts of captions from those of their images, summed over pairs; CVSE's (Wang et al. 2020)."""
    return own_loss(batch, "divergence") * len(batch.at[0])
