"""Checkpoints of the bottom-up model by what is in them: ours, and the layouts that others have
published.

Sources: models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt of bottom-up-attention;
bua/caffe/modeling of MILVLG/bottom-up-attention.pytorch; detectron2/modeling of
airsplay/py-bottom-up-attention.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.pickles import read_pickle, read_torch
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig
from capgrade.pipelines.detectors.caffemodel import read_caffemodel
from capgrade.pipelines.detectors.checkpoint import (
    CHECKPOINT_LAYOUT,
    MOST_BLOCKS,
    built,
    check_tensors,
    read_checkpoint,
    read_safetensors,
    refuse_weights,
    save_bottom_up,
    shapes_of,
)
from capgrade.pipelines.detectors.rpn import Conventions, ProposalRule
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from capgrade.schemas.lines import read_lines

Shapes = Mapping[str, tuple[int, ...]]
NORM_EPSILON = 1e-5
NORM = ("running_mean", "running_var", "weight", "bias")  # of torch's
FACTOR = "factor"  # of Caffe's, which divides mean and var
# MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS: inference divides deltas by them
BOX_WEIGHTS = (
    10.0,
    10.0,
    5.0,
    5.0,
)
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"
# In checkpoints of detectron2, but no weights.
_BESIDE = re.compile(r"(.*\.num_batches_tracked|pixel_(mean|std))")

CAFFE_NAMES = {
    "backbone.stem.conv1": "conv1",
    "rpn.conv": "rpn_conv/3x3",
    "rpn.objectness_logits": "rpn_cls_score",
    "rpn.anchor_deltas": "rpn_bbox_pred",
    "head.cls_score": "cls_score",
    "head.bbox_pred": "bbox_pred",
    "head.cls_embed": "cls_embedding",
    "head.attr_linear1": "fc_attr",
    "head.attr_linear2": "attr_score",
}
CAFFE_NORM = dict(
    zip((*NORM, FACTOR), ("bn{}.0", "bn{}.1", "scale{}.0", "scale{}.1", "bn{}.2"), strict=True)
)
CAFFE_BRANCHES = {"shortcut": "1", "conv1": "2a", "conv2": "2b", "conv3": "2c"}
_PARTS = {
    "backbone": "backbone",
    "rpn": "proposal_generator.rpn_head",
    "head.res5": "roi_heads.res5",
    "head": "roi_heads.box_predictor",
}
AIRSPLAY_HEAD = {
    "cls_embed": "cls_embedding",
    "attr_linear1": "fc_attr",
    "attr_linear2": "attr_score",
}


def moved_from_zero(theirs: Tensor) -> Tensor:
    """Deltas with background's, which are to be divided by BOX_WEIGHTS: (4 K, ...) -> (4 (K + 1),
    ...)."""
    weights = theirs.new_tensor(BOX_WEIGHTS).reshape(4, *[1] * (theirs.ndim - 1))
    moves = (theirs.unflatten(0, (-1, 4)) / weights).flatten(0, 1)
    return torch.cat([torch.zeros_like(moves[:4]), moves])


_Rows = Mapping[str, tuple[Callable[[int], int], Callable[[Tensor], Tensor]]]
# By our layer: how many of our n rows detectron2 has, and ours of its. Classes, their embeddings
# and attributes count background and none last instead of first. A logit x through a sigmoid is the
# softmax of 0 and x.
BACKGROUND_LAST: _Rows = {
    "rpn.objectness_logits": (lambda n: n // 2, lambda x: torch.cat([torch.zeros_like(x), x])),
    "head.bbox_pred": (lambda n: n - 4, moved_from_zero),
    **dict.fromkeys(
        ("head.cls_score", "head.cls_embed", "head.attr_linear2"),
        (int, lambda x: x.roll(1, dims=0)),
    ),
}
# Of the RPN: its outputs with their anchors in our order, from (2 A, ...) scores and (4 A, ...)
# deltas.
IN_ORDER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rpn.objectness_logits": lambda x, order: x.unflatten(0, (2, -1))[:, order].flatten(0, 1),
    "rpn.anchor_deltas": lambda x, order: x.unflatten(0, (-1, 4))[order].flatten(0, 1),
}


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """How one code base names tensors, and which rows of them it has otherwise.

    tensor: its name of our `{layer}.weight`, `{layer}.bias` and `{layer}.norm.{kind}` with a kind
    of `norm`.
    """

    name: str
    config: BottomUpConfig
    tensor: Callable[[str], str]
    norm: tuple[str, ...] = NORM
    rows: _Rows = dataclasses.field(default_factory=dict)

    def sources(self, shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
        """The tensors of a file that each of ours is made of, with their shapes, for a model of
        these shapes."""
        sources: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, shape in shapes.items():
            layer, kind = name.rsplit(".", 1)
            if kind in ("scale", "shift"):
                kinds = {
                    f"{layer}.norm.{kind}": (1,) if kind == FACTOR else shape for kind in self.norm
                }
                sources[name] = {self.tensor(ours): shape for ours, shape in kinds.items()}
            else:
                count, _ = self.rows.get(layer, (int, None))
                sources[name] = {self.tensor(name): (count(shape[0]), *shape[1:])}
        return sources

    def translated(self, ours: str, theirs: Sequence[Tensor], order: Tensor | None) -> Tensor:
        """One of our tensors from its checked sources; `order` has their number of each of our
        anchors."""
        layer, kind = ours.rsplit(".", 1)
        if kind in ("scale", "shift"):
            return folded(*(tensor.double() for tensor in theirs))[kind == "shift"].float()
        tensor = theirs[0].float()
        if layer in self.rows:
            tensor = self.rows[layer][1](tensor)
        return tensor if order is None or layer not in IN_ORDER else IN_ORDER[layer](tensor, order)


def folded(
    mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, factor: Tensor | None = None
) -> tuple[Tensor, ...]:
    """scale and shift of a norm with fixed statistics, (C,) each; a factor of 0 leaves no
    statistics (Caffe's rule)."""
    if factor is not None:
        inverse = 1 / factor if factor.item() else torch.zeros_like(factor)
        mean, var = mean * inverse, var * inverse
    scale = weight / (var + NORM_EPSILON).sqrt()
    return scale, bias - mean * scale


def _caffe_layer(ours: str) -> str:
    if ours in CAFFE_NAMES:
        return CAFFE_NAMES[ours]
    stage, block, branch = ours.split(".")[-3:]
    letter = (
        chr(ord("a") + int(block)) if stage in ("res2", "res5") or block == "0" else f"b{block}"
    )
    return f"{stage}{letter}_branch{CAFFE_BRANCHES[branch]}"


def _caffe_tensor(ours: str) -> str:
    layer, kind = ours.rsplit(".", 1)
    theirs = _caffe_layer(layer.removesuffix(".norm"))
    if layer.endswith(".norm"):
        return CAFFE_NORM[kind].format(
            f"_{theirs}" if theirs == "conv1" else theirs.removeprefix("res")
        )
    return f"{theirs}.{('weight', 'bias').index(kind)}"


def _detectron_tensor(ours: str) -> str:
    part = next(part for part in _PARTS if ours.startswith(f"{part}."))
    return _PARTS[part] + ours.removeprefix(part)


def _airsplay_tensor(ours: str) -> str:
    above, layer, kind = _detectron_tensor(ours).rsplit(".", 2)
    return f"{above}.{AIRSPLAY_HEAD.get(layer, layer)}.{kind}"


PUBLISHED = BottomUpConfig()
# configs/VG-Detection/faster_rcnn_R_101_C4_caffemaxpool.yaml and
# demo/detectron2_mscoco_proposal_maxnms.py
AIRSPLAY = BottomUpConfig(conventions="airsplay", proposals=ProposalRule(min_side=0.0))
_LAYOUTS = {
    "caffe": WeightLayout("caffe", PUBLISHED, _caffe_tensor, tuple(CAFFE_NORM)),
    "milvlg": WeightLayout("milvlg", PUBLISHED, _detectron_tensor),
    "airsplay": WeightLayout("airsplay", AIRSPLAY, _airsplay_tensor, rows=BACKGROUND_LAST),
}


_REMEDY = "give a checkpoint of the bottom-up model (docs/regions.md says which)"
# the number that torch.save wrote first before 1.6
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
MILVLG_HEAD = tuple(f"roi_heads.box_predictor.{layer}" for layer in ("cls_embed.", "attr_linear"))
ATTRIBUTES = [f"head.{layer}.{kind}" for layer in AIRSPLAY_HEAD for kind in ("weight", "bias")]
_STAGES = ("backbone.res2", "backbone.res3", "backbone.res4", "head.res5")
SAME_ANCHOR = 1e-2  # pixels


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in a file by name, by its content, not its ending; and its metadata, if it is a
    safetensors."""
    with path.open("rb") as file:
        start = file.read(9)
    return read_safetensors(path) if start[8:] == b"{" else (_state(read_content(path), path), {})


def read_content(path: Path) -> Any:
    """What a torch, pickle or Caffe file holds, by its content, not its ending. No code in it is
    run."""
    with path.open("rb") as file:
        start = file.read(len(OLD_TORCH))
    if start.startswith(b"PK") or start == OLD_TORCH:
        return read_torch(path)
    if start.startswith(b"\x80"):
        return read_pickle(path)
    if start.startswith(b"\n"):
        return read_caffemodel(path)
    remedy = "give a checkpoint that docs/regions.md names"
    raise InputError(
        "neither a safetensors, torch, pickle nor Caffe file", file=path, remedy=remedy
    )


def _state(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint: under "model", or the file itself; Caffe's blobs may be lists,
    layer by layer."""
    state = content.get("model", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not state:
        raise InputError("no tensors by name in this file", file=path, remedy=_REMEDY)
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        many = isinstance(value, list | tuple)
        named = (
            {f"{name}.{i}": blob for i, blob in enumerate(value)} if many else {str(name): value}
        )
        for key, one in named.items():
            if isinstance(one, np.ndarray | np.generic) and one.dtype.kind in "fiu":
                one = torch.from_numpy(np.array(one, one.dtype.newbyteorder("=")))
            if not isinstance(one, Tensor):
                raise InputError(
                    f"{name} is no tensor but {type(one).__name__}", file=path, remedy=_REMEDY
                )
            if not _BESIDE.fullmatch(key):
                tensors[key] = one
    return tensors


def layout_of(tensors: Mapping[str, Tensor], path: Path) -> WeightLayout:
    """Whose names these are: Caffe's, or detectron2's with the attribute head of MILVLG or of
    airsplay."""
    if any(name.startswith(("bn_conv1.", "scale_conv1.", "rpn_cls_score.")) for name in tensors):
        return _LAYOUTS["caffe"]
    if any(name.startswith("roi_heads.box_predictor.") for name in tensors):
        return _LAYOUTS[
            "milvlg" if any(name.startswith(MILVLG_HEAD) for name in tensors) else "airsplay"
        ]
    some = ", ".join(sorted(tensors)[:3])
    raise InputError(
        f"no layout of the bottom-up model that is known: it has {some}", file=path, remedy=_REMEDY
    )


def published(layout: WeightLayout, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """A model of somebody else's tensors. InputError as in `check_tensors`, with the names in the
    file."""
    config = config_of(layout, tensors)
    weights = {name: tensor for name, tensor in tensors.items() if name != CELL_ANCHORS}
    sources = layout.sources(shapes_of(config))
    check_tensors(
        {name: shape for each in sources.values() for name, shape in each.items()}, weights, path
    )
    order = None
    if CELL_ANCHORS in tensors:
        config, order = with_anchors(config, tensors[CELL_ANCHORS], path)
    state = {
        ours: layout.translated(ours, [weights[name] for name in each], order)
        for ours, each in sources.items()
    }
    return built(config, state, path)


def config_of(layout: WeightLayout, tensors: Mapping[str, Tensor]) -> BottomUpConfig:
    """The layout's configuration with the sizes of these tensors; the default's size for one that
    is missing."""
    config = layout.config

    def size(layer: str, axis: int, default: int) -> int:
        tensor = tensors.get(layout.tensor(f"{layer}.weight"))
        return tensor.shape[axis] if tensor is not None and tensor.ndim > axis else default

    def blocks(stage: str) -> int:
        """Up to the last that has any of its kernels; at least one."""
        kernels = ("conv1", "conv2", "conv3")
        there = [
            i
            for i in range(MOST_BLOCKS)
            for k in kernels
            if layout.tensor(f"{stage}.{i}.{k}.weight") in tensors
        ]
        return max(there, default=0) + 1

    # airsplay's faster_rcnn_from_caffe.pkl has no tensor of an attribute head
    named = any(layout.tensor(name) in tensors for name in ATTRIBUTES)
    res2, res3, res4, res5 = map(blocks, _STAGES)
    return dataclasses.replace(
        config,
        width=size("head.cls_score", 1, config.n_features) / 2048,
        blocks=(res2, res3, res4, res5),
        n_classes=size("head.cls_score", 0, config.n_classes + 1) - 1,
        n_attributes=size("head.attr_linear2", 0, config.n_attributes + 1) - 1 if named else 0,
        rpn_channels=size("rpn.conv", 0, config.rpn_channels),
        embedding=size("head.cls_embed", 1, config.embedding),
        attribute_hidden=size("head.attr_linear1", 0, config.attribute_hidden),
    )


def with_anchors(
    config: BottomUpConfig, theirs: Tensor, path: Path
) -> tuple[BottomUpConfig, Tensor]:
    """The configuration with the anchors of this file, (A, 4), and the file's row of each of our
    anchors.

    detectron2 before 0.4 kept anchors among its weights, and those in a file took the place of the
    configured.
    """
    same: tuple[Conventions, ...] = (config.conventions,)
    if config.conventions == "airsplay":
        same = "airsplay", "airsplay_rounded"  # the same code with Caffe's anchors in the file
    for conventions in same:
        config_of_these = dataclasses.replace(config, conventions=conventions)
        ours = config_of_these.anchors().double()
        if theirs.shape == ours.shape:
            gaps = (ours[:, None] - theirs.double()).abs().amax(dim=2)
            if (gaps.amin(dim=1) < SAME_ANCHOR).all():
                return config_of_these, gaps.argmin(dim=1)
    raise InputError(
        f"{CELL_ANCHORS} holds other anchors than {config.conventions}'s", file=path, remedy=_REMEDY
    )


def load_bottom_up(path: Path) -> tuple[BottomUp, dict[str, Any]]:
    """A model in eval mode, and what is known of it: layout, digest, n_classes, n_attributes,
    classes, attributes.

    InputError for a file of no known layout, and for tensors that are missing, misshapen or not
    finite.
    """
    if not path.is_file():
        raise InputError(
            "no such file", file=path, remedy="give --weights a checkpoint of the bottom-up model"
        )
    tensors, metadata = read_tensors(path)
    if metadata.get("format") == CHECKPOINT_LAYOUT:
        model, facts = read_checkpoint(tensors, metadata, path)
    else:
        layout = layout_of(tensors, path)
        model, facts = published(layout, tensors, path), {"layout": layout.name}
    config = model.config
    counts = {"n_classes": config.n_classes, "n_attributes": config.n_attributes}
    return model, {"classes": None, "attributes": None, **facts, **counts, "digest": digest(path)}


def convert(
    source: Path,
    out: Path,
    *,
    classes_file: Path | None = None,
    attributes_file: Path | None = None,
) -> dict[str, Any]:
    """Any checkpoint that `load_bottom_up` reads as one of ours, with names: layout, n_classes,
    n_attributes.

    The names are those of Visual Genome's objects_vocab.txt and attributes_vocab.txt, in the
    model's order. InputError also for a file at `out` that is something else.
    """
    refuse_weights(out)
    model, facts = load_bottom_up(source)
    classes = read_names(classes_file, facts["n_classes"]) if classes_file else facts["classes"]
    attributes = (
        read_names(attributes_file, facts["n_attributes"])
        if attributes_file
        else facts["attributes"]
    )
    origin = {
        "source": source.name,
        "source_layout": facts["layout"],
        "source_sha256": facts["digest"],
    }
    save_bottom_up(model, out, classes=classes, attributes=attributes, metadata=origin)
    return {key: facts[key] for key in ("layout", "n_classes", "n_attributes")}


def read_names(path: Path, count: int) -> list[str]:
    """One name per line, the first of its synonyms (`shirt,tee shirt`). InputError unless there are
    `count` of them."""
    names = [line.split(",")[0].strip() for _, line in read_lines(path)]
    if "" in names:
        raise InputError("a line without a name", file=path, row=names.index("") + 1)
    if len(names) != count:
        raise InputError(
            f"{len(names)} names where the model has {count}",
            file=path,
            remedy="give one name per line",
        )
    return names
