"""The backbone: sizes and windows of its pool, the folded norm, res5."""

from __future__ import annotations

import torch
from torch.nn import functional

from capgrade.pipelines.detectors.resnet import ConvNorm, ResNetC4, Stem, fold_norms, make_res5, scaled


def test_the_pool_is_unpadded_and_its_last_window_partial() -> None:
    stem = Stem(8).eval()
    x = torch.randn(1, 3, 33, 31)  # conv1 gives 17 x 16
    with torch.no_grad():
        before = functional.relu(stem.conv1(x))
        after = stem(x)
    assert before.shape[2:] == (17, 16) and after.shape[2:] == (8, 8)
    assert torch.equal(after[..., 0, 0], before[..., :3, :3].amax(dim=(2, 3)))
    assert torch.equal(after[..., -1, -1], before[..., 14:17, 14:16].amax(dim=(2, 3)))


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


def test_res5_keeps_14_cells() -> None:
    assert make_res5(3, 1 / 32)(torch.randn(2, scaled(1024, 1 / 32), 14, 14)).shape == (2, scaled(2048, 1 / 32), 14, 14)


def test_random_network_keeps_its_activations_in_range() -> None:
    torch.manual_seed(0)
    net = ResNetC4(width=1 / 8).eval()
    with torch.no_grad():
        out = net(torch.rand(1, 3, 64, 64) * 255 - 115)
    assert 1e-2 < out.std().item() < 1e2, out.std().item()
