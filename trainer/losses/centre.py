"""What SemanticMap's single stream learns by: classes, and features that gather round their class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from trainer.losses.base import ScoredBatch


def centre(batch: ScoredBatch) -> Tensor:
    """1/2 sum over classes c and features f of c of ||f - mean_c||^2, the mean over images and captions of the batch.

    No running centres (Nawaz et al. 2019, eq. 3 and 4). The paper gives no weight beside the softmax.
    """
    assert batch.images is not None and batch.captions is not None and batch.labels is not None
    features = torch.cat([batch.images, batch.captions]).float()
    _, number = torch.unique(torch.cat([batch.labels, batch.labels]), return_inverse=True)
    sums = features.new_zeros(int(number.max()) + 1, features.shape[1]).index_add(0, number, features)
    means = sums / number.bincount()[:, None]
    return 0.5 * (features - means[number]).square().sum()


def classify(batch: ScoredBatch) -> Tensor:
    """Mean cross-entropy of the classes of images and captions: the softmax beside `centre`."""
    assert batch.image_logits is not None and batch.caption_logits is not None and batch.labels is not None
    logits = torch.cat([batch.image_logits, batch.caption_logits]).float()
    return cross_entropy(logits, torch.cat([batch.labels, batch.labels]))
