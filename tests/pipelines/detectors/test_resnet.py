"""The backbone: sizes of the ceil-mode pool, strides in the 1x1, the folded norm, the dilation."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from capgrade.pipelines.detectors.resnet import Bottleneck, ConvNorm, ResNetC4, Stem, fold_norms, make_res5, scaled


def caffe_sizes(n: int) -> int:
    """Output rows for n input rows, by Caffe's formulas: conv rounds down, pool rounds up."""
    n = (n + 2 * 3 - 7) // 2 + 1  # conv1
    n = math.ceil((n - 3) / 2) + 1  # pool1
    for _ in range(2):  # res3a, res4a: 1x1, stride 2
        n = (n - 1) // 2 + 1
    return n


@pytest.mark.parametrize("height", [64, 65, 66, 67, 79, 80, 81, 97])
def test_ceil_mode_sizes(height: int) -> None:
    net = ResNetC4((1, 1, 1), width=1 / 16).eval()
    with torch.no_grad():
        out = net(torch.zeros(1, 3, height, 120))
    assert out.shape == (1, scaled(1024, 1 / 16), caffe_sizes(height), caffe_sizes(120))


def test_pool_is_unpadded_and_partial_at_the_end() -> None:
    """A floor-mode or padded pool has another size or sees other pixels in the last window."""
    stem = Stem(8).eval()
    x = torch.randn(1, 3, 33, 31)  # conv1 gives 17 x 16
    with torch.no_grad():
        before = functional.relu(stem.conv1(x))
        after = stem(x)
    assert before.shape[2:] == (17, 16) and after.shape[2:] == (8, 8)
    assert torch.equal(after[..., 7, 7], before[..., 14:17, 14:16].amax(dim=(2, 3)))
    assert torch.equal(after[..., 0, 0], before[..., :3, :3].amax(dim=(2, 3)))


def test_stride_is_in_the_first_1x1() -> None:
    block = Bottleneck(8, 8, 16, stride=2)
    assert isinstance(block.shortcut, ConvNorm)
    assert (block.conv1.stride, block.conv2.stride, block.conv3.stride, block.shortcut.stride) == (2, 1, 1, 2)
    assert block.conv1.weight.shape[2:] == (1, 1)


def test_norm_equals_batch_norm_with_its_statistics() -> None:
    layer = ConvNorm(5, 7, 3, padding=2, dilation=2)
    weight, bias, mean, variance = torch.rand(7), torch.randn(7), torch.randn(7), torch.rand(7) + 0.1
    layer.scale.copy_(weight / (variance + 1e-5).sqrt())
    layer.shift.copy_(bias - mean * layer.scale)
    x = torch.randn(2, 5, 9, 9)
    plain = functional.batch_norm(functional.conv2d(x, layer.weight, None, 1, 2, 2), mean, variance, weight, bias)
    error = (layer(x) - plain).abs().max().item()
    assert error < 1e-5, error


def test_folding_keeps_the_outputs() -> None:
    torch.manual_seed(0)
    net = ResNetC4((1, 1, 1), width=1 / 16).eval()
    for layer in net.modules():
        if isinstance(layer, ConvNorm):
            layer.scale.uniform_(0.5, 1.5)
            layer.shift.normal_(std=0.1)
    x = torch.randn(1, 3, 40, 40)
    with torch.no_grad():
        before = net(x)
        fold_norms(net)
        stem = net.stem.conv1
        stem.scale.fill_(5)  # no longer read
        after = net(x)
    error = ((after - before).abs().max() / before.abs().max()).item()
    assert error < 1e-5 and before.abs().max() > 0, error


def test_res5_keeps_14_cells_and_dilates_every_3x3() -> None:
    res5 = make_res5(3, 1 / 32)
    blocks = [block for block in res5 if isinstance(block, Bottleneck)]
    assert [(b.conv2.dilation, b.conv2.padding, b.conv1.stride) for b in blocks] == [(2, 2, 1)] * 3
    assert isinstance(blocks[0].shortcut, ConvNorm)
    x = torch.randn(2, scaled(1024, 1 / 32), 14, 14)
    assert res5(x).shape == (2, scaled(2048, 1 / 32), 14, 14)
    assert make_res5(3, 1 / 32, stride=2)(x).shape == (2, scaled(2048, 1 / 32), 7, 7)


def test_random_network_keeps_its_activations_in_range() -> None:
    torch.manual_seed(0)
    net = ResNetC4(width=1 / 8).eval()
    with torch.no_grad():
        out = net(torch.rand(1, 3, 64, 64) * 255 - 115)
    assert 1e-2 < out.std().item() < 1e2, out.std().item()
