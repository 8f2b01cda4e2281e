"""Encoders as their authors write them, with the weights of our models: peers of `capgrade bench train`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.base import Images, Texts
from capgrade.trainer.models.pooling import GeneralPooling, places
from capgrade.trainer.models.vse_infinity import VseInfinity


def vse_infinity_plain(model: VseInfinity, images: Images, words: Texts) -> Tensor:
    """Scores [images, captions]; the weights of the pooling are made for every set, values sorted as they lie."""
    regions = pooled(model.pool_regions, model.regions(images.features, images.mask), images.mask)
    captions = pooled(model.pool_words, model.states(words), words.mask)
    return normalize(regions, dim=1) @ normalize(captions, dim=1).T


def pooled(layer: GeneralPooling, parts: Tensor, mask: Tensor) -> Tensor:
    lengths = mask.sum(1)
    read = places(mask.shape[1], layer.position).to(parts).repeat(len(parts), 1, 1)
    packed = pack_padded_sequence(read, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(layer.gru(packed)[0], batch_first=True, total_length=mask.shape[1])
    half = layer.gru.hidden_size
    logits = layer.linear((states[:, :, :half] + states[:, :, half:]) / 2).masked_fill(~mask.unsqueeze(2), -10000)
    ordered = parts.masked_fill(~mask.unsqueeze(2), -10000).sort(dim=1, descending=True)[0]
    return (ordered.masked_fill(~mask.unsqueeze(2), 0) * torch.softmax(logits / 0.1, 1)).sum(1)
