"""The generalised pooling operator (Chen et al. 2021, eq. 3-6): a learned weight for each place of sorted values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capgrade.trainer.models.encoders import upcast

SHARPNESS = 10.0  # the authors divide by 0.1 before the softmax


class GeneralPooling(nn.Module):
    """Sets [B, L, D] as vectors [B, D]: sum_k theta_k (k-th largest value of each feature), 0 of an empty set.

    theta [L] follows from the size of the set alone: a GRU of both directions reads sines and cosines of the places, a
    linear layer and a softmax make weights. So it runs once a size, not once a set. Source: gpo.py of vse_infty.
    """

    def __init__(self, position: int = 32, hidden: int = 32) -> None:
        super().__init__()
        self.position = position
        self.gru = nn.GRU(position, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)

    def forward(self, parts: Tensor, mask: Tensor) -> Tensor:
        parts, lengths = upcast(parts), mask.sum(1)
        sizes, which = lengths.unique(return_inverse=True)
        low = torch.finfo(parts.dtype).min
        values = parts.masked_fill(~mask.unsqueeze(2), low).mT.contiguous().sort(2, descending=True)[0]  # (B, D, L)
        there = torch.arange(mask.shape[1], device=mask.device) < lengths.unsqueeze(1)
        values = values.masked_fill(~there.unsqueeze(1), 0)
        weights = self.weights(sizes, mask.shape[1]).to(parts.dtype)[which]
        return (values @ weights.unsqueeze(2)).squeeze(2)

    def weights(self, sizes: Tensor, longest: int) -> Tensor:
        """theta [U, longest] of sets of these sizes [U]; 0 beyond a size."""
        read = places(longest, self.position).to(self.linear.weight).expand(len(sizes), -1, -1)
        lengths = sizes.clamp(min=1)
        packed = pack_padded_sequence(read, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=longest)
        logits = upcast(self.linear(states.unflatten(2, (2, -1)).mean(2)).squeeze(2))
        beyond = torch.arange(longest, device=sizes.device) >= lengths.unsqueeze(1)
        return (SHARPNESS * logits).masked_fill(beyond, torch.finfo(logits.dtype).min).softmax(1)


def places(length: int, size: int) -> Tensor:
    """Sines and cosines of the places 0.. of a set in turn, [length, size]; eq. 4."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
