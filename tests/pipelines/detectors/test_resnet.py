"""The folded norm, and activations without trained weights; test_weights.py has the network as a whole."""

from __future__ import annotations

import torch
from torch.nn import functional

from capgrade.pipelines.detectors.resnet import ConvNorm, ResNetC4, fold_norms


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


def test_random_network_keeps_its_activations_in_range() -> None:
    torch.manual_seed(0)
    net = ResNetC4(width=1 / 8).eval()
    with torch.no_grad():
        out = net(torch.rand(1, 3, 64, 64) * 255 - 115)
    assert 1e-2 < out.std().item() < 1e2, out.std().item()
