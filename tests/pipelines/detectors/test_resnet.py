"""The backbone: sizes and windows of both pools, the folded norm, res5."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from capgrade.pipelines.detectors.resnet import ConvNorm, ResNetC4, Stem, fold_norms, make_res5, scaled


@pytest.mark.parametrize(
    ("padded", "size", "first", "last"),
    [(False, (8, 8), (0, 3, 3), (14, 14, 16)), (True, (9, 8), (0, 2, 2), (15, 13, 16))],
)
def test_the_pool_sees_its_first_and_last_window(
    padded: bool, size: tuple[int, int], first: tuple[int, int, int], last: tuple[int, int, int]
) -> None:
    """Caffe's is unpadded and partial at the end; detectron2's is padded."""
    stem = Stem(8, padded_pool=padded).eval()
    x = torch.randn(1, 3, 33, 31)  # conv1 gives 17 x 16
    with torch.no_grad():
        before = functional.relu(stem.conv1(x))
        after = stem(x)
    assert before.shape[2:] == (17, 16) and after.shape[2:] == size
    assert torch.equal(after[..., 0, 0], before[..., : first[1], : first[2]].amax(dim=(2, 3)))
    assert torch.equal(after[..., -1, -1], before[..., last[0] : 17, last[1] : last[2]].amax(dim=(2, 3)))


def test_norm_equals_batch_norm_with_its_statistics() -> None:
    layer = ConvNorm(5, 7, 3, padding=2, dilation=2)
    weight, bias, mean, variance = torch.rand(7), torch.randn(7), torch.randn(7), torch.rand(7) + 0.1
    layer.scale.copy_(weight / (variance + 1e-5).sqrt())
    layer.shift.copy_(bias - mean * layer.scale)
    x = torch.randn(2, 5, 9, 9)
    plain = functional.batch_norm(functional.conv2d(x, layer.weight, None, 1, 2, 2), mean, variance, weight, bias)
    torch.testing.assert_close(layer(x), plain, atol=1e-5, rtol=1e-5)
    fold_norms(layer)
    layer.scale.fill_(5)  # no longer read
    torch.testing.assert_close(layer(x), plain, atol=1e-5, rtol=1e-5)


def test_res5_keeps_14_cells_unless_it_has_a_stride() -> None:
    x = torch.randn(2, scaled(1024, 1 / 32), 14, 14)
    assert make_res5(3, 1 / 32)(x).shape == (2, scaled(2048, 1 / 32), 14, 14)
    assert make_res5(3, 1 / 32, stride=2)(x).shape == (2, scaled(2048, 1 / 32), 7, 7)


def test_random_network_keeps_its_activations_in_range() -> None:
    torch.manual_seed(0)
    net = ResNetC4(width=1 / 8).eval()
    with torch.no_grad():
        out = net(torch.rand(1, 3, 64, 64) * 255 - 115)
    assert 1e-2 < out.std().item() < 1e2, out.std().item()
