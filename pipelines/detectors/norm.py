"""Batch norm while a detector is trained from scratch; afterwards it is folded into scale and shift."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capgrade.pipelines.detectors.resnet import ConvNorm


class TrainedConvNorm(nn.Module):
    """A `ConvNorm` whose norm still learns: conv, then BatchNorm2d with the batch's statistics (eval: running ones)."""

    def __init__(self, frozen: ConvNorm) -> None:
        super().__init__()
        self.frozen = frozen
        self.norm = nn.BatchNorm2d(len(frozen.scale))
        with torch.no_grad():
            self.norm.weight.copy_(frozen.scale.clamp(min=0.25))  # the stem's 1/64 is for pixels without statistics

    def forward(self, x: Tensor) -> Tensor:
        conv = self.frozen
        return self.norm(functional.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation))

    def fold(self) -> ConvNorm:
        """The frozen layer with the same output as this one in eval mode."""
        norm = self.norm
        mean, var = norm.running_mean, norm.running_var
        assert mean is not None and var is not None  # BatchNorm2d tracks them by default
        with torch.no_grad():
            scale = norm.weight.double() / (var.double() + norm.eps).sqrt()
            self.frozen.scale.copy_(scale)
            self.frozen.shift.copy_(norm.bias.double() - mean.double() * scale)
        return self.frozen


def unfreeze(model: nn.Module) -> None:
    """Give every `ConvNorm` of the model a norm that learns."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvNorm) and not isinstance(parent, TrainedConvNorm):
                setattr(parent, name, TrainedConvNorm(child))


def freeze(model: nn.Module) -> None:
    """Fold what `unfreeze` added: the outputs in eval mode stay the same."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, TrainedConvNorm):
                setattr(parent, name, child.fold())
