"""SCAN beside its equations, a pair, a word and a region at a time; padding, tiles, bfloat16, sets of nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.trainer.models import configure, scan, squared_difference
from capgrade.trainer.models.base import Encoded
from capgrade.trainer.models.scan import Scan, ScanConfig

from .made import FEATURES, REGIONS, VOCABULARY, WORDS, close, encoded, gradients, images, same_in_bfloat16, texts

CONFIG = ScanConfig(embed=16, word=5)
NORMS = ("clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "no_norm", "softmax")
DIRECTIONS = pytest.mark.parametrize("direction", ["t2i", "i2t"])


def made(**options) -> Scan:
    torch.manual_seed(0)
    model = Scan(replace(CONFIG, **options), FEATURES, VOCABULARY).double()
    torch.nn.init.normal_(model.read.embed.weight)
    return model


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


def by_pairs(model: Scan, image: Encoded, caption: Encoded) -> Tensor:
    rows = [image.parts[i, :n] for i, n in enumerate(REGIONS)]
    columns = [caption.parts[j, :n] for j, n in enumerate(WORDS)]
    return torch.stack([torch.stack([equations(model.config, v, e) for e in columns]) for v in rows])


@DIRECTIONS
@pytest.mark.parametrize(
    "options", [{"pooling": p} for p in ("mean", "max", "sum")] + [{"first_norm": n} for n in NORMS]
)
def test_scores_and_gradients_are_those_of_the_equations(direction, options, monkeypatch) -> None:
    monkeypatch.setitem(squared_difference.TILE_NODES, "cpu", 60)  # several tiles a batch
    model = made(direction=direction, **options)
    ours = model.scores(*encoded(model))
    found = gradients(model, ours)
    expected = by_pairs(model, *encoded(model))
    close(ours, expected, 1e-7)
    for name, value in gradients(model, expected).items():
        close(found[name], value, 1e-6)


@DIRECTIONS
@pytest.mark.parametrize("pooling", ["lse", "mean", "max", "sum"])
def test_padding_changes_nothing(direction, pooling) -> None:
    model = made(direction=direction, pooling=pooling)
    plain, padded = model.scores(*encoded(model)), model.scores(*encoded(model, 9, 12, garbage=1e3))
    close(padded, plain)
    expected = gradients(model, plain)
    for name, value in gradients(model, padded).items():
        close(value, expected[name])


@DIRECTIONS
def test_scores_of_a_gallery_do_not_depend_on_tiles(direction, monkeypatch) -> None:
    model = made(direction=direction).eval()
    whole = model.scores(*encoded(model))
    monkeypatch.setattr(scan, "EVAL_IMAGES", 2)
    monkeypatch.setitem(squared_difference.TILE_NODES, "cpu", 1)
    close(model.scores(*encoded(model)), whole, 1e-9)


@DIRECTIONS
@pytest.mark.parametrize("pooling", ["lse", "mean", "max", "sum"])
def test_sets_of_nothing_are_finite(direction, pooling) -> None:
    model = made(direction=direction, pooling=pooling)
    empty = images((0, 3, 2), padded=6)
    encoded_images = model.encode_images(replace(empty, features=empty.features.double()))
    scores = model.scores(encoded_images, model.encode_captions(texts((0, 4))))
    assert scores.isfinite().all() and (scores[:, 0] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(model, scores).values())


@DIRECTIONS
def test_bfloat16_autocast(direction) -> None:
    model = made(direction=direction).float().eval()
    same_in_bfloat16(model, lambda: [model.scores(*encoded(model))], 0.05)


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(InputError, match=r"train\.model\.options\.direction is 'both'"):
        configure("scan", {"direction": "both"}, FEATURES, 0)
