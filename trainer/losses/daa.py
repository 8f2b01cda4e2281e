"""Losses on smooth ranks: DAA's differentiable ASP, and Smooth-AP."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from capgrade.trainer.losses.base import Above0, ScoredBatch, all_known, both_ways, graded_ways, nothing

STEEPEST = 50.0  # of an exponent: beyond it a difference gives no gradient


def soft_ranks(x: Tensor, known: Tensor, temperature: float, form: Literal["paper", "authors"] = "paper") -> Tensor:
    """1 + sum_{a != c} sigmoid((x_ba - x_bc) / temperature) over known a: [B, C] -> [B, C]; 1 is the best. `known`
    may be what each a counts.

    authors: the first x is read x_ab, as their code does (model.py of DAA, SmoothRank): a column beside a row.
    """
    first = x.T if form == "authors" else x
    difference = (first[:, :, None] - x[:, None, :]) / temperature  # a, c
    above = difference.clamp(-STEEPEST, STEEPEST).sigmoid()
    counts = known[:, :, None] * ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return 1 + (above * counts).sum(dim=1)


def daa(batch: ScoredBatch, *, temperature: Above0 = 0.001, form: Literal["paper", "authors"] = "paper") -> Tensor:
    """(1 - ASP of images) + (1 - ASP of captions), ASP = mean over pairs of min / max of the two soft ranks.

    One rank is by similarity, the other by relevance, both over candidates of known relevance, each counting its weight
    where relevance was sampled; no gradient goes into relevance. Their weight is 25 on COCO, 10 on Flickr30K.
    `authors`: InputError unless every relevance is known.
    Source: Li et al. 2022, eq. 8-10; Loss.DAA of their model.py, whose temperature is 0.001 whatever is given.
    """
    if form == "authors":
        all_known(batch, "daa")
    total = nothing(batch)
    for way, relevance, known in graded_ways(batch):
        counted = way.counted(known)
        by_score = soft_ranks(way.scores, counted, temperature, form)
        by_relevance = soft_ranks(relevance.float(), counted, temperature, form).detach()
        share = torch.minimum(by_score, by_relevance) / torch.maximum(by_score, by_relevance)
        total = total + 1 - (share * counted).sum() / counted.sum().clamp(min=1)
    return total


def smooth_ap(batch: ScoredBatch, *, temperature: Above0 = 0.01) -> Tensor:
    """(1 - mean AP) of both directions, positives the own items: AP of query b is the mean over positives c of
    rank among positives / rank among all, by soft ranks (Brown et al. 2020, eq. 6)."""
    total = nothing(batch)
    for way in both_ways(batch):
        everything = torch.ones_like(way.own)
        precision = soft_ranks(way.scores, way.own, temperature) / soft_ranks(way.scores, everything, temperature)
        total = total + 1 - ((precision * way.own).sum(dim=1) / way.own.sum(dim=1)).mean()
    return total
