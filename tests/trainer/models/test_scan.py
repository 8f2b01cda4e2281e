"""SCAN beside its equations, a pair, a word and a region at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from capgrade.trainer.models import encoders
from capgrade.trainer.models.scan import ScanConfig

from .made import REGIONS, WORDS, encoded, made, same

NORMS = ("clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "no_norm", "softmax")
OPTIONS = [{"pooling": pooling} for pooling in ("mean", "max", "sum")] + [{"first_norm": norm} for norm in NORMS]


def equations(config: ScanConfig, regions: Tensor, words: Tensor) -> Tensor:
    """The score of one pair: regions [k, D], words [n, D]; eq. 1-6 (i2t) and 7-10 (t2i) of Lee et al. 2018."""
    asking, asked = (words, regions) if config.direction == "t2i" else (regions, words)
    cosines = []
    s = torch.stack([torch.stack([v @ e for e in asking]) for v in asked])  # [asked, asking]
    if config.first_norm.startswith("clipped"):
        s = torch.where(s > 0, s, 0.1 * s)
    if config.first_norm.endswith("l2norm"):
        s = torch.stack([row / (row.pow(2).sum().sqrt() + 1e-8) for row in s])
    if config.first_norm.endswith("l1norm"):
        s = torch.stack([row / (row.abs().sum() + 1e-8) for row in s])
    if config.first_norm == "softmax":
        s = torch.stack([row.exp() / row.exp().sum() for row in s])
    for j, e in enumerate(asking):
        weights = (config.temperature * s[:, j]).exp()
        attended = sum(w / weights.sum() * v for w, v in zip(weights, asked, strict=True))
        cosines.append(attended @ e / (attended.norm() * e.norm()))
    r = torch.stack(cosines)
    lse = (config.sharpness * r).exp().sum().log() / config.sharpness
    return {"lse": lse, "mean": r.sum() / len(r), "max": r.max(), "sum": r.sum()}[config.pooling]


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("options", OPTIONS)
def test_scores_and_gradients_are_those_of_the_equations(direction, options, monkeypatch) -> None:
    monkeypatch.setitem(encoders.TILE_NODES, "cpu", 60)  # several tiles a batch
    model = made("scan", embed=16, word=5, direction=direction, **options)
    torch.nn.init.normal_(model.read.embed.weight)
    image, caption = encoded(model)
    rows = [image.parts[i, :n] for i, n in enumerate(REGIONS)]
    columns = [caption.parts[j, :n] for j, n in enumerate(WORDS)]
    expected = torch.stack([torch.stack([equations(model.config, v, e) for e in columns]) for v in rows])
    same(model, [model.scores(*encoded(model))], [expected], 1e-7, 1e-6)
