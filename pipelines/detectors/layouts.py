"""How the checkpoints of the bottom-up model that others have published name its tensors, and which
of their rows differ.

Sources: models/vg/ResNet-101/faster_rcnn_end2end_final/test.prototxt of bottom-up-attention;
bua/caffe/modeling of MILVLG/bottom-up-attention.pytorch; detectron2/modeling of
airsplay/py-bottom-up-attention.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from capgrade.pipelines.detectors.bottom_up import (
    MOST_BLOCKS,
    BottomUp,
    BottomUpConfig,
    check_tensors,
    load_tensors,
)
from capgrade.pipelines.detectors.faster_rcnn import Conventions, ProposalRule
from capgrade.schemas.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]
NORM_EPSILON = 1e-5
NORM = ("running_mean", "running_var", "weight", "bias")  # tensors of torch's batch norm
FACTOR = "factor"  # a tensor of Caffe's norm, which divides mean and var
# detectron2's inference divides deltas by its MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS.
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
CELL_ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"

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
_DETECTRON_PARTS = {
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


def _add_background_deltas(deltas: Tensor) -> Tensor:
    """The rows of a layer of deltas, divided by BOX_WEIGHTS, with rows of 0 for background in front
    of them: (4 K, ...) -> (4 (K + 1), ...)."""
    weights = deltas.new_tensor(BOX_WEIGHTS).reshape(4, *[1] * (deltas.ndim - 1))
    moves = (deltas.unflatten(0, (-1, 4)) / weights).flatten(0, 1)
    return torch.cat([torch.zeros_like(moves[:4]), moves])


# By our layer: the number of the file's rows, from that of ours, and our rows from the file's.
_Rows = Mapping[str, tuple[Callable[[int], int], Callable[[Tensor], Tensor]]]
# detectron2 has background and "none" as the last class, embedding and attribute instead of the
# first. Its objectness is one logit x, whose sigmoid is the softmax of 0 and x.
BACKGROUND_LAST: _Rows = {
    "rpn.objectness_logits": (lambda n: n // 2, lambda x: torch.cat([torch.zeros_like(x), x])),
    "head.bbox_pred": (lambda n: n - 4, _add_background_deltas),
    **dict.fromkeys(
        ("head.cls_score", "head.cls_embed", "head.attr_linear2"),
        (int, lambda x: x.roll(1, dims=0)),
    ),
}
# By layer of the RPN: its rows in our order of anchors, (2 A, ...) for scores, (4 A, ...) for
# deltas.
IN_ORDER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rpn.objectness_logits": lambda x, order: x.unflatten(0, (2, -1))[:, order].flatten(0, 1),
    "rpn.anchor_deltas": lambda x, order: x.unflatten(0, (-1, 4))[order].flatten(0, 1),
}


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """How one code base names the tensors of the model, and which of their rows differ.

    `tensor` maps our names `{layer}.weight`, `{layer}.bias` and `{layer}.norm.{kind}` to its names,
    where `kind` is one of `norm`.
    """

    name: str
    config: BottomUpConfig
    tensor: Callable[[str], str]
    norm: tuple[str, ...] = NORM
    rows: _Rows = dataclasses.field(default_factory=dict)

    def sources(self, shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
        """For each of our tensors, whose shapes these are: the file's tensors that it is made of,
        with their shapes."""
        sources: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, shape in shapes.items():
            layer, kind = name.rsplit(".", 1)
            if kind in ("scale", "shift"):
                sources[name] = {
                    self.tensor(f"{layer}.norm.{part}"): (1,) if part == FACTOR else shape
                    for part in self.norm
                }
            else:
                count, _ = self.rows.get(layer, (int, None))
                sources[name] = {self.tensor(name): (count(shape[0]), *shape[1:])}
        return sources

    def translate(self, name: str, sources: Sequence[Tensor], order: Tensor | None) -> Tensor:
        """Our tensor `name` from the file's; `order` has the file's number of each of our
        anchors."""
        layer, kind = name.rsplit(".", 1)
        if kind in ("scale", "shift"):
            return fold_norm(*(tensor.double() for tensor in sources))[kind == "shift"].float()
        tensor = sources[0].float()
        if layer in self.rows:
            tensor = self.rows[layer][1](tensor)
        return tensor if order is None or layer not in IN_ORDER else IN_ORDER[layer](tensor, order)


def fold_norm(
    mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, factor: Tensor | None = None
) -> tuple[Tensor, ...]:
    """scale and shift, (C,) each, of a norm with fixed statistics. With a factor of 0 mean and var
    are 0, as in Caffe."""
    if factor is not None:
        inverse = 1 / factor if factor.item() else torch.zeros_like(factor)
        mean, var = mean * inverse, var * inverse
    scale = weight / (var + NORM_EPSILON).sqrt()
    return scale, bias - mean * scale


def _caffe_layer(name: str) -> str:
    if name in CAFFE_NAMES:
        return CAFFE_NAMES[name]
    stage, block, branch = name.split(".")[-3:]
    has_letters = stage in ("res2", "res5") or block == "0"
    suffix = chr(ord("a") + int(block)) if has_letters else f"b{block}"
    return f"{stage}{suffix}_branch{CAFFE_BRANCHES[branch]}"


def _caffe_tensor(name: str) -> str:
    layer, kind = name.rsplit(".", 1)
    caffe_layer = _caffe_layer(layer.removesuffix(".norm"))
    if layer.endswith(".norm"):
        is_stem = caffe_layer == "conv1"
        return CAFFE_NORM[kind].format("_conv1" if is_stem else caffe_layer.removeprefix("res"))
    return f"{caffe_layer}.{('weight', 'bias').index(kind)}"


def _detectron_tensor(name: str) -> str:
    part = next(part for part in _DETECTRON_PARTS if name.startswith(f"{part}."))
    return _DETECTRON_PARTS[part] + name.removeprefix(part)


def _airsplay_tensor(name: str) -> str:
    parent, layer, kind = _detectron_tensor(name).rsplit(".", 2)
    return f"{parent}.{AIRSPLAY_HEAD.get(layer, layer)}.{kind}"


PUBLISHED = BottomUpConfig()
# Its sources are configs/VG-Detection/faster_rcnn_R_101_C4_caffemaxpool.yaml and
# demo/detectron2_mscoco_proposal_maxnms.py.
AIRSPLAY = BottomUpConfig(conventions="airsplay", proposals=ProposalRule(min_side=0.0))
_LAYOUTS = {
    "caffe": WeightLayout("caffe", PUBLISHED, _caffe_tensor, tuple(CAFFE_NORM)),
    "milvlg": WeightLayout("milvlg", PUBLISHED, _detectron_tensor),
    "airsplay": WeightLayout("airsplay", AIRSPLAY, _airsplay_tensor, rows=BACKGROUND_LAST),
}


CHECKPOINTS = (
    "resnet101_faster_rcnn_final.caffemodel, bua-caffe-frcn-r101-k36.pth or"
    " faster_rcnn_from_caffe_attr.pkl"
)
REMEDY = f"give a checkpoint of the bottom-up model, such as {CHECKPOINTS}"
MILVLG_HEAD = tuple(f"roi_heads.box_predictor.{layer}" for layer in ("cls_embed.", "attr_linear"))
ATTRIBUTES = [f"head.{layer}.{kind}" for layer in AIRSPLAY_HEAD for kind in ("weight", "bias")]
_STAGES = ("backbone.res2", "backbone.res3", "backbone.res4", "head.res5")
SAME_ANCHOR = 1e-2  # pixels: the largest difference between corners of equal anchors


def layout_of(tensors: Mapping[str, Tensor], path: Path) -> WeightLayout:
    """The layout that has these names: Caffe's, or detectron2's with the attribute head of MILVLG
    or of airsplay. InputError for other names."""
    if any(name.startswith(("bn_conv1.", "scale_conv1.", "rpn_cls_score.")) for name in tensors):
        return _LAYOUTS["caffe"]
    if any(name.startswith("roi_heads.box_predictor.") for name in tensors):
        is_milvlg = any(name.startswith(MILVLG_HEAD) for name in tensors)
        return _LAYOUTS["milvlg" if is_milvlg else "airsplay"]
    first = ", ".join(sorted(tensors)[:3])
    problem = f"no layout of the bottom-up model that is known: it has {first}"
    raise InputError(problem, file=path, remedy=REMEDY)


def build_published(layout: WeightLayout, tensors: Mapping[str, Tensor], path: Path) -> BottomUp:
    """The model of a published checkpoint. InputError as in `check_tensors`, with the names in the
    file."""
    config, order = _config_of(layout, tensors), None
    if CELL_ANCHORS in tensors:
        config, order = _match_anchors(config, tensors[CELL_ANCHORS], path)
    weights = {name: tensor for name, tensor in tensors.items() if name != CELL_ANCHORS}
    with torch.device("meta"):
        model = BottomUp(config)
    ours = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    sources = layout.sources(ours)
    shapes = {name: shape for parts in sources.values() for name, shape in parts.items()}
    check_tensors(shapes, weights, path)
    state = {
        name: layout.translate(name, [weights[part] for part in parts], order)
        for name, parts in sources.items()
    }
    return load_tensors(model, state, path)


def _config_of(layout: WeightLayout, tensors: Mapping[str, Tensor]) -> BottomUpConfig:
    """The layout's configuration with the sizes of these tensors, or the default's where a tensor
    is missing."""
    config = layout.config

    def size(layer: str, axis: int, default: int) -> int:
        tensor = tensors.get(layout.tensor(f"{layer}.weight"))
        return tensor.shape[axis] if tensor is not None and tensor.ndim > axis else default

    def blocks(stage: str) -> int:
        """The number of blocks up to the last that has any kernel, at least one."""
        kernels = ("conv1", "conv2", "conv3")
        present = [
            i
            for i in range(MOST_BLOCKS)
            for k in kernels
            if layout.tensor(f"{stage}.{i}.{k}.weight") in tensors
        ]
        return max(present, default=0) + 1

    # airsplay's faster_rcnn_from_caffe.pkl has no attribute head.
    has_attributes = any(layout.tensor(name) in tensors for name in ATTRIBUTES)
    n_attributes = size("head.attr_linear2", 0, config.n_attributes + 1) - 1
    res2, res3, res4, res5 = map(blocks, _STAGES)
    return dataclasses.replace(
        config,
        width=size("head.cls_score", 1, config.n_features) / 2048,
        blocks=(res2, res3, res4, res5),
        n_classes=size("head.cls_score", 0, config.n_classes + 1) - 1,
        n_attributes=n_attributes if has_attributes else 0,
        rpn_channels=size("rpn.conv", 0, config.rpn_channels),
        embedding=size("head.cls_embed", 1, config.embedding),
        attribute_hidden=size("head.attr_linear1", 0, config.attribute_hidden),
    )


def _match_anchors(
    config: BottomUpConfig, anchors: Tensor, path: Path
) -> tuple[BottomUpConfig, Tensor]:
    """The configuration that makes a file's anchors (A, 4), and the file's row of each of its
    anchors. InputError where none does.

    detectron2 before 0.4 kept anchors among its weights, and took those of a file.
    """
    candidates: tuple[Conventions, ...] = (config.conventions,)
    if config.conventions == "airsplay":  # Its code also runs with Caffe's anchors in the file.
        candidates = "airsplay", "airsplay_rounded"
    for conventions in candidates:
        candidate = dataclasses.replace(config, conventions=conventions)
        ours = candidate.anchors().double()
        if anchors.shape == ours.shape:
            gaps = (ours[:, None] - anchors.double()).abs().amax(dim=2)
            if (gaps.amin(dim=1) < SAME_ANCHOR).all():
                return candidate, gaps.argmin(dim=1)
    problem = f"{CELL_ANCHORS} holds other anchors than {config.conventions}'s"
    raise InputError(problem, file=path, remedy=REMEDY)
