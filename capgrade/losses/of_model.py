"""Losses of what a model gives beside scores: vectors and classes of SemanticMap's single stream,
losses of its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from capgrade.losses.base import ScoredBatch, require_tensors
from capgrade.losses.declared import declared
from capgrade.schemas.errors import InputError


@declared("vectors")
def centre(batch: ScoredBatch) -> Tensor:
    """1/2 sum over classes c and features f of c of ||f - mean_c||^2, the mean over images and
    captions of the batch.

    No running centres (Nawaz et al. 2019, eq. 3 and 4). The paper gives no weight beside the
    softmax. Wen et al. (2016, eq. 5), whom it follows, have L = L_S + lambda/2 sum_i ||x_i -
    c_yi||^2, both sums over the batch, and lambda 0.003.
    """
    images, captions, labels = require_tensors(batch, "images", "captions", "labels")
    features = torch.cat([images, captions]).float()
    _, number = torch.unique(torch.cat([labels, labels]), return_inverse=True)
    sums = features.new_zeros(int(number.max()) + 1, features.shape[1]).index_add(
        0, number, features
    )
    means = sums / number.bincount()[:, None]
    return 0.5 * (features - means[number]).square().sum()


@declared("logits")
def classify(batch: ScoredBatch) -> Tensor:
    """Cross-entropy of the classes of images and captions, summed as `centre` is (Wen et al. 2016,
    eq. 1 and 5)."""
    images, captions, labels = require_tensors(batch, "image_logits", "caption_logits", "labels")
    return cross_entropy(
        torch.cat([images, captions]).float(), torch.cat([labels, labels]), reduction="sum"
    )


@declared("own_losses")
def captioning(batch: ScoredBatch) -> Tensor:
    """-log p of each caption given its image, the mean over captions; VSRN's. Source: Li et al.
    2019."""
    return _own_loss(batch, "captioning", "vsrn")


@declared("own_losses")
def divergence(batch: ScoredBatch) -> Tensor:
    """KL of the concepts of captions from those of their images, summed over pairs; CVSE's (Wang et
    al. 2020)."""
    return _own_loss(batch, "divergence", "cvse") * len(batch.at[0])


def _own_loss(batch: ScoredBatch, name: str, host: str) -> Tensor:
    """A loss that the model makes. InputError where it has none of this name."""
    if name not in batch.own_losses:
        problem = f"loss '{name}' is of a model that has it"
        raise InputError(problem, remedy=f"choose model {host}")
    return batch.own_losses[name]
