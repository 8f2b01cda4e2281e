"""SAF and SGR beside the loop over captions, in training too; padding, tiles, bfloat16, gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from capgrade.benchmarks.caption_loop import saf_loop, sgr_loop
from capgrade.trainer.models import sgraf, squared_difference
from capgrade.trainer.models.sgraf import Saf, Sgr, Sgraf, SgrafConfig
from capgrade.trainer.models.squared_difference import SquaredDifference, attention, by_length, through_norm

from .made import FEATURES, VOCABULARY, close, encoded, gradients, images, same_in_bfloat16, texts

CONFIG = SgrafConfig(embed=16, word=5, similarity=8, dropout=0.0)
BOTH = pytest.mark.parametrize(("kind", "loop"), [(Saf, saf_loop), (Sgr, sgr_loop)])


def made(kind: type[Sgraf], config: SgrafConfig = CONFIG) -> Sgraf:
    torch.manual_seed(0)
    model = kind(config, FEATURES, VOCABULARY).double()
    for parameter in model.parameters():  # nothing is 0, so nothing is left unseen
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_equals_a_loop_over_captions(kind, loop, training, monkeypatch) -> None:
    monkeypatch.setitem(squared_difference.STEP_NUMBERS, "cpu", 150)  # several steps and tiles a batch
    monkeypatch.setitem(squared_difference.TILE_NODES, "cpu", 60)
    model, peer = made(kind).train(training), made(kind).train(training)
    ours, expected = model.scores(*encoded(model)), loop(peer, *encoded(peer))
    close(ours, expected, 1e-7)
    gradient, expected_gradient = gradients(model, ours), gradients(peer, expected)
    assert gradient.keys() == expected_gradient.keys() == dict(model.named_parameters()).keys()
    for name, value in expected_gradient.items():
        close(gradient[name], value, 1e-7)
    for name, running in peer.named_buffers():
        close(model.get_buffer(name), running, 1e-9)


@BOTH
def test_padding_changes_nothing(kind, loop) -> None:
    model, padded = made(kind), made(kind)
    ours, expected = padded.scores(*encoded(padded, 9, 12, garbage=1e3)), model.scores(*encoded(model))
    close(ours, expected)
    gradient = gradients(padded, ours)
    for name, value in gradients(model, expected).items():
        close(gradient[name], value)


@BOTH
def test_scores_of_a_gallery_do_not_depend_on_tiles(kind, loop, monkeypatch) -> None:
    model = made(kind).eval()
    whole = model.scores(*encoded(model))
    monkeypatch.setattr(sgraf, "EVAL_IMAGES", 2)
    monkeypatch.setitem(squared_difference.TILE_NODES, "cpu", 1)
    close(model.scores(*encoded(model)), whole, 1e-9)
    assert whole.shape == (5, 6) and (whole > 0).all() and (whole < 1).all()


@BOTH
def test_sets_of_nothing_are_finite(kind, loop) -> None:
    model = made(kind)
    empty = images((0, 3, 2), padded=6)
    encoded_images = model.encode_images(replace(empty, features=empty.features.double()))
    scores = model.scores(encoded_images, model.encode_captions(texts((0, 4))))
    assert scores.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(model, scores).values())


@BOTH
def test_bfloat16_autocast(kind, loop) -> None:
    model = made(kind).float().eval()
    same_in_bfloat16(model, lambda: [model.scores(*encoded(model))], 0.05)


def test_checkpointing_changes_no_gradient() -> None:
    plain, saving = made(Sgr), made(Sgr, replace(CONFIG, checkpoint=True))
    expected = gradients(plain, plain.scores(*encoded(plain)))
    for name, gradient in gradients(saving, saving.scores(*encoded(saving))).items():
        close(gradient, expected[name], 1e-9)


def test_the_authors_region_norm_takes_36_regions() -> None:
    model = made(Saf, replace(CONFIG, region_norm="authors"))
    with pytest.raises(RuntimeError):
        encoded(model)
    features = torch.randn(2, 36, FEATURES, dtype=torch.float64)
    batch = replace(images((36, 36), padded=36), features=features)
    assert model.encode_images(batch).vector is not None


def test_attended_regions_have_unit_length() -> None:
    torch.manual_seed(0)
    v, words, mask = torch.randn(2, 5, 4), torch.randn(3, 6, 4), torch.ones(2, 5, dtype=torch.bool)
    products = torch.einsum("nrd,cld->nrcl", v, words)
    a = attention(products, mask, v @ v.mT, 9.0)
    close((a.mT @ v).norm(dim=-1), torch.ones(2, 18), 1e-5)


def test_gradients_of_the_squared_difference(monkeypatch) -> None:
    monkeypatch.setitem(squared_difference.STEP_NUMBERS, "cpu", 40)
    torch.manual_seed(0)
    sizes = ((3, 2, 5), (3, 2, 4), (5, 4), (3, 4), (3,))
    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    assert torch.autograd.gradcheck(SquaredDifference.apply, inputs)


def test_the_gradient_of_a_norm_is_that_of_normalize() -> None:
    torch.manual_seed(0)
    grad, y = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    y[0, 0], y[0, 1] = 0, 1e-14  # too short to be scaled to unit length
    y.requires_grad_()
    unit = torch.nn.functional.normalize(y, dim=-1)
    scale = 1 / y.detach().norm(dim=-1, keepdim=True).clamp(min=1e-12)
    expected = torch.autograd.grad(unit, y, grad)[0] / scale
    close(through_norm(grad, unit.detach(), scale) / scale, expected, 1e-12)


def test_captions_of_one_length_share_a_tile() -> None:
    lengths = [3, 1, 3, 2, 3, 3, 1]
    assert [sorted(tile) for tile in by_length(lengths, 1, "cpu")] == [[1, 6], [3], [0, 2, 4, 5]]
    tiles = list(by_length(lengths, squared_difference.TILE_NODES["cpu"] // 8, "cpu"))  # two of three words fit
    assert sorted(i for tile in tiles for i in tile) == list(range(7)) and max(map(len, tiles)) == 2
