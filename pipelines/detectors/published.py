"""Files that others have published, as our model: which kind of file, whose names, which sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.caffemodel import read_caffemodel
from capgrade.pipelines.detectors.checkpoint import MOST_BLOCKS, built, check_tensors, read_safetensors, shapes_of
from capgrade.pipelines.detectors.conventions import CONVENTIONS
from capgrade.pipelines.detectors.layouts import BESIDE, CELL_ANCHORS, LAYOUTS, Layout
from capgrade.pipelines.detectors.rpn import make_anchors, make_exact_anchors
from capgrade.schemas.errors import InputError
from capgrade.schemas.pickles import read_pickle, read_torch

REMEDY = "give a checkpoint of the bottom-up model (docs/regions.md says which)"
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the number that torch.save wrote first before 1.6
MILVLG_HEAD = tuple(f"roi_heads.box_predictor.{layer}" for layer in ("cls_embed.", "attr_linear"))
ATTRIBUTE_LAYERS = ("head.cls_embed", "head.attr_linear1", "head.attr_linear2")
STAGES = ("backbone.res2", "backbone.res3", "backbone.res4", "head.res5")
ROUNDED = {"airsplay": "airsplay_rounded"}  # the same code with Caffe's anchors in the file
SAME_ANCHOR = 1e-2  # pixels


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in a file by name, by its content, not its ending; and its metadata, if it is a safetensors."""
    with path.open("rb") as file:
        start = file.read(9)
    return read_safetensors(path) if start[8:] == b"{" else (_state(read_content(path), path), {})


def read_content(path: Path) -> Any:
    """What a torch, pickle or Caffe file holds, by its content, not its ending. No code in it is run."""
    with path.open("rb") as file:
        start = file.read(len(OLD_TORCH))
    if start.startswith(b"PK") or start == OLD_TORCH:
        return read_torch(path)
    if start.startswith(b"\x80"):
        return read_pickle(path)
    if start.startswith(b"\n"):
        return read_caffemodel(path)
    raise InputError("neither a safetensors, torch, pickle nor Caffe file", file=path, remedy=REMEDY)


def _state(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint: under "model", or the file itself; Caffe's blobs may be lists, layer by layer."""
    state = content.get("model", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not state:
        raise InputError("no tensors by name in this file", file=path, remedy=REMEDY)
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        many = isinstance(value, list | tuple)
        found |= {f"{name}.{i}": _tensor(x, name, path) for i, x in enumerate(value)} if many else {}
        found |= {} if many else {str(name): _tensor(value, name, path)}
    return {name: tensor for name, tensor in found.items() if not BESIDE.fullmatch(name)}


def _tensor(value: Any, name: str, path: Path) -> Tensor:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiu":
        return torch.from_numpy(np.array(value, value.dtype.newbyteorder("=")))
    if not isinstance(value, Tensor):
        raise InputError(f"{name} is no tensor but {type(value).__name__}", file=path, remedy=REMEDY)
    return value


def layout_of(tensors: Mapping[str, Tensor], path: Path) -> Layout:
    """Whose names these are: Caffe's, or detectron2's with the attribute head of MILVLG or of airsplay."""
    if any(name.startswith(("bn_conv1.", "scale_conv1.", "rpn_cls_score.")) for name in tensors):
        return LAYOUTS["caffe"]
    if any(name.startswith("roi_heads.box_predictor.") for name in tensors):
        return LAYOUTS["milvlg" if any(name.startswith(MILVLG_HEAD) for name in tensors) else "airsplay"]
    some = ", ".join(sorted(tensors)[:3])
    raise InputError(f"no layout of the bottom-up model that is known: it has {some}", file=path, remedy=REMEDY)


def published(layout: Layout, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """A model of somebody else's tensors. InputError as in `check_tensors`, with the names in the file."""
    config = config_of(layout, tensors)
    weights = {name: tensor for name, tensor in tensors.items() if name != CELL_ANCHORS}
    shapes = shapes_of(config)
    check_tensors(layout.shapes(shapes), weights, path)
    order = None
    if CELL_ANCHORS in tensors:
        config, order = with_anchors(config, tensors[CELL_ANCHORS], path)
    return built(config, layout.translated(weights, shapes, order), path)


def config_of(layout: Layout, tensors: Mapping[str, Tensor]) -> BottomUpConfig:
    """The layout's configuration with the sizes of these tensors; the default's size for one that is missing."""
    config = layout.config

    def size(layer: str, axis: int, default: int) -> int:
        tensor = tensors.get(layout.tensor(f"{layer}.weight"))
        return tensor.shape[axis] if tensor is not None and tensor.ndim > axis else default

    res2, res3, res4, res5 = (_blocks(layout, tensors, stage) for stage in STAGES)
    return dataclasses.replace(
        config,
        width=size("head.cls_score", 1, config.n_features) / 2048,
        blocks=(res2, res3, res4, res5),
        n_classes=size("head.cls_score", 0, config.n_classes + 1) - 1,
        n_attributes=size("head.attr_linear2", 0, config.n_attributes + 1) - 1 if _named(layout, tensors) else 0,
        rpn_channels=size("rpn.conv", 0, config.rpn_channels),
        embedding=size("head.cls_embed", 1, config.embedding),
        attribute_hidden=size("head.attr_linear1", 0, config.attribute_hidden),
    )


def _named(layout: Layout, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the file has any tensor of an attribute head; airsplay's faster_rcnn_from_caffe.pkl has none."""
    names = [layout.tensor(f"{layer}.weight") for layer in ATTRIBUTE_LAYERS]
    names += [layout.tensor(f"{layer}.bias") for layer in ATTRIBUTE_LAYERS]
    return any(name in tensors for name in names)


def _blocks(layout: Layout, tensors: Mapping[str, Tensor], stage: str) -> int:
    """Blocks of a stage: up to the last that has any of its kernels; at least one."""
    kernels = ("conv1", "conv2", "conv3")
    there = [i for i in range(MOST_BLOCKS) for k in kernels if layout.tensor(f"{stage}.{i}.{k}.weight") in tensors]
    return max(there, default=0) + 1


def with_anchors(config: BottomUpConfig, theirs: Tensor, path: Path) -> tuple[BottomUpConfig, Tensor]:
    """The configuration with the anchors of this file, (A, 4), and the file's row of each of our anchors.

    detectron2 before 0.4 kept anchors among its weights, and those in a file took the place of the configured.
    """
    for conventions in (config.conventions, ROUNDED.get(config.conventions)):
        if conventions is None:
            continue
        make = make_exact_anchors if CONVENTIONS[conventions].exact_anchors else make_anchors
        ours = torch.from_numpy(make(config.anchor_base, config.anchor_scales, config.anchor_ratios)).double()
        if theirs.shape == ours.shape:
            gaps = (ours[:, None] - theirs.double()).abs().amax(dim=2)
            if (gaps.amin(dim=1) < SAME_ANCHOR).all():
                return dataclasses.replace(config, conventions=conventions), gaps.argmin(dim=1)
    raise InputError(f"{CELL_ANCHORS} holds other anchors than {config.conventions}'s", file=path, remedy=REMEDY)
