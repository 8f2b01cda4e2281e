"""Caffe-style ResNet: the C4 backbone (conv1 to res4) and the res5 stage that works on each roi."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def scale_channels(channels: int, width: float) -> int:
    """Channels of a narrower network: a multiple of 8, at least 8."""
    return max(8, round(channels * width / 8) * 8)


class ConvNorm(nn.Module):
    """Convolution without bias, then a frozen batch norm: conv(x) * scale + shift, per output
    channel.

    The buffers `scale` and `shift` of a trained norm are weight / sqrt(var + 1e-5) and bias - mean
    * scale (Caffe's BatchNorm + Scale with global statistics). `forward` multiplies the kernel by
    the scale, which saves a pass over the activations; `fold_norms` does so once for all calls.
    """

    folded = False
    weight: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight if self.folded else self.weight * self.scale[:, None, None, None]
        return functional.conv2d(x, kernel, self.shift, self.stride, self.padding, self.dilation)


@torch.no_grad()
def fold_norms(model: nn.Module) -> None:
    """Multiply every kernel by its scale, for the same outputs without a product in each call."""
    for layer in model.modules():
        if isinstance(layer, ConvNorm):
            layer.weight.mul_(layer.scale[:, None, None, None])
            layer.scale.fill_(1)
            layer.folded = True


class Stem(nn.Module):
    """conv1 7x7/2 pad 3, ReLU, max pool 3x3/2: (B, 3, H, W) -> (B, C, ~H/4, ~W/4).

    Caffe's pool has no padding and rounds its size up.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = ConvNorm(3, outputs, 7, stride=2, padding=3)
        # A model without trained statistics needs pixels of -120..150 scaled to about 1.
        self.conv1.scale.fill_(1 / 64)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x), inplace=True)
        return functional.max_pool2d(x, 3, stride=2, ceil_mode=True)


class Bottleneck(nn.Module):
    """1x1 (with the stride), 3x3 (with the dilation), 1x1, added to the shortcut: branch2a, 2b, 2c
    of Caffe."""

    def __init__(
        self, inputs: int, middle: int, outputs: int, *, stride: int = 1, dilation: int = 1
    ) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = ConvNorm(inputs, outputs, 1, stride=stride)
        self.conv1 = ConvNorm(inputs, middle, 1, stride=stride)
        self.conv2 = ConvNorm(middle, middle, 3, padding=dilation, dilation=dilation)
        self.conv3 = ConvNorm(middle, outputs, 1)
        # In a model without trained statistics each block would else double the variance.
        self.conv3.scale.fill_(0.25)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.conv1(x), inplace=True)
        y = functional.relu(self.conv2(y), inplace=True)
        return functional.relu(self.conv3(y).add_(self.shortcut(x)), inplace=True)


def make_stage(
    blocks: int, inputs: int, middle: int, outputs: int, *, stride: int, dilation: int = 1
) -> nn.Sequential:
    """Bottlenecks in a row, the stride in the first: res2a, res2b, ... of Caffe."""
    first = Bottleneck(inputs, middle, outputs, stride=stride, dilation=dilation)
    rest = [Bottleneck(outputs, middle, outputs, dilation=dilation) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)


class ResNetC4(nn.Module):
    """conv1 to res4: (B, 3, H, W) BGR less its mean -> (B, 1024 width, ~H/16, ~W/16) at stride 16.

    blocks (3, 4, 23) is ResNet-101. Convolutions of stride 2 give ceil(n / 2) rows, the ceil-mode
    pool ceil((n - 3) / 2) + 1: 600 -> 300 -> 150 -> 75 -> 38. Source:
    models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt, bottom-up-attention (res4b22).
    """

    def __init__(self, blocks: tuple[int, int, int] = (3, 4, 23), width: float = 1.0) -> None:
        super().__init__()
        stem, *outputs = (scale_channels(c, width) for c in (64, 256, 512, 1024))
        middles = [scale_channels(c, width) for c in (64, 128, 256)]
        self.stem = Stem(stem)
        self.res2 = make_stage(blocks[0], stem, middles[0], outputs[0], stride=1)
        self.res3 = make_stage(blocks[1], outputs[0], middles[1], outputs[1], stride=2)
        self.res4 = make_stage(blocks[2], outputs[1], middles[2], outputs[2], stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.res4(self.res3(self.res2(self.stem(x))))
