"""detectron2's own models as a detector, where it is installed: a config of its zoo or a file, with a checkpoint."""

import dataclasses
import importlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.nn import functional

from capgrade.pipelines.detectors.selection import DescribedProposals, ProposalDetector, RegionRule
from capgrade.pipelines.detectors.weights import read_content
from capgrade.schemas.errors import InputError

INSTALL = "pip install --no-build-isolation 'git+https://github.com/facebookresearch/detectron2.git'"

ZOO = "name one of its model zoo"
REMEDY = "give a checkpoint of detectron2's model zoo"


def need_detectron2() -> None:
    """InputError when detectron2 is not there, or does not import with this torch."""
    try:
        importlib.import_module("detectron2.modeling")
    except ModuleNotFoundError as error:
        missing = error.name or "detectron2"
        problem = "detectron2 is not installed" if missing.startswith("detectron2") else f"detectron2 needs {missing}"
        raise InputError(problem, remedy=f"{INSTALL}, or --detector bottom_up") from error
    except (ImportError, RuntimeError, OSError) as error:
        problem = f"detectron2 does not import ({str(error).splitlines()[0]})"
        raise InputError(
            problem, remedy="install it and torchvision for this torch, or --detector bottom_up"
        ) from error


def read_config(config: str, weights: str | Path, device: str, proposals: int | None) -> Any:
    """The config of a .yaml file, or of that name in the model zoo, such as COCO-Detection/faster_rcnn_R_50_C4_1x."""
    from detectron2 import model_zoo
    from detectron2.config import get_cfg

    if not Path(weights).is_file():
        raise InputError("no such checkpoint", file=weights, remedy="download it from detectron2's model zoo first")
    cfg = get_cfg()
    try:
        path = config if Path(config).is_file() else model_zoo.get_config_file(f"{config.removesuffix('.yaml')}.yaml")
        config_files(Path(path))
        cfg.merge_from_file(path, allow_unsafe=False)
    except (RuntimeError, KeyError, ValueError, AssertionError) as error:
        raise InputError(f"not a detectron2 config ({error})", file=config, remedy=ZOO) from error
    cfg.MODEL.WEIGHTS, cfg.MODEL.DEVICE = str(weights), device
    if proposals is not None:
        cfg.MODEL.RPN.POST_NMS_TOPK_TEST = proposals
    return cfg


def config_files(path: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """A config and the files that it starts from (`_BASE_`), the nearest first.

    InputError for YAML that names code, which detectron2 itself would run, and for a base that is no file on the disk.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a detectron2 config ({' '.join(str(error).split())})", file=path, remedy=ZOO) from error
    bases = content.get("_BASE_", []) if isinstance(content, dict) else []
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        raise InputError("_BASE_ is neither a file nor a list of files", file=path, remedy=ZOO)
    files, up = [path], (*above, path.resolve())
    for name in bases:
        base = path.parent / Path(name).expanduser()
        if not base.is_file():
            raise InputError(f"starts from {name}, which is no file", file=path, remedy="put its base beside it")
        if base.resolve() in up:
            raise InputError("starts from itself", file=path, remedy="take _BASE_ out of one of its files")
        files += config_files(base, up)
    return files


def read_weights(path: Path) -> dict[str, Any]:
    """A checkpoint as detectron2's checkpointer hands it to a model: "model" has numpy arrays or tensors by name, those
    of Caffe2 with the mark that they are to be renamed. InputError for a file of anything else; none of it is run."""
    content = read_content(path)
    checkpoint = dict(content) if isinstance(content, Mapping) else {}
    if "blobs" in checkpoint:
        checkpoint = {"model": checkpoint["blobs"], "__author__": "Caffe2", "matching_heuristics": True}
    elif "model" not in checkpoint:
        checkpoint = {"model": checkpoint}
    if not isinstance(checkpoint["model"], Mapping) or not checkpoint["model"]:
        raise InputError("no weights by name in this file", file=path, remedy=REMEDY)
    state = {str(name): value for name, value in checkpoint["model"].items() if not str(name).endswith("_momentum")}
    for name, value in state.items():
        if not isinstance(value, np.ndarray | torch.Tensor):
            raise InputError(f"{name} is no array but {type(value).__name__}", file=path, remedy=REMEDY)
    return {**checkpoint, "model": OrderedDict(state)}


def load_model(cfg: Any) -> Any:
    """The model of a config in eval mode with its checkpoint, which must have every parameter of the model."""
    from detectron2.checkpoint import DetectionCheckpointer
    from detectron2.modeling import build_model
    from detectron2.modeling.roi_heads import Res5ROIHeads, StandardROIHeads

    model = build_model(cfg).eval()
    heads = getattr(model, "roi_heads", None)
    if not isinstance(heads, Res5ROIHeads | StandardROIHeads) or hasattr(heads, "num_cascade_stages"):
        problem = f"{cfg.MODEL.META_ARCHITECTURE} with {cfg.MODEL.ROI_HEADS.NAME} has no single vector of a region"
        raise InputError(problem, remedy="take a Faster or Mask R-CNN config")

    checkpoint = read_weights(Path(cfg.MODEL.WEIGHTS))
    if any(isinstance(value, torch.Tensor) for value in checkpoint["model"].values()):
        # Without it torch's files would count as of the first detectron2, where norms may lack statistics.
        checkpoint["model"]._metadata = model.state_dict()._metadata
    incompatible = DetectionCheckpointer(model)._load_model(checkpoint)
    lacking = [*incompatible.missing_keys, *(key for key, *_ in incompatible.incorrect_shapes)]
    if lacking:
        problem = f"lacks {len(lacking)} parameters of the config, such as {lacking[0]}"
        raise InputError(problem, file=cfg.MODEL.WEIGHTS, remedy="give the config it was trained with")
    return model


@dataclasses.dataclass(frozen=True)
class DetectronPrepare:
    """DefaultPredictor's: 8-bit pixels resized by Pillow, in the model's channel order; the model takes its mean."""

    short: int
    long: int
    channels: str  # RGB or BGR

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        from detectron2.data.transforms import ResizeShortestEdge

        image = np.ascontiguousarray(rgb[:, :, ::-1]) if self.channels == "BGR" else rgb
        resize = ResizeShortestEdge([self.short, self.short], self.long).get_transform(image)
        shown = resize.apply_image(image).transpose(2, 0, 1)
        return torch.from_numpy(shown.astype(np.float32)), shown.shape[1] / rgb.shape[0]


class DetectronDetector(ProposalDetector):
    """A Faster or Mask R-CNN of detectron2 with one box head: C4, DC5 or FPN; float32.

    A region is a proposal with the vector its box head predicts from: res5 averaged (C4), the last fully connected
    layer (others). There are no attributes. Raises InputError for what detectron2 cannot build or load whole.
    """

    name = "detectron2"
    attributes: Sequence[str] | None = None

    def __init__(
        self,
        config: str,
        weights: str | Path,
        rule: RegionRule,
        *,
        device: torch.device | str = "cpu",
        proposals: int | None = None,
    ) -> None:
        need_detectron2()
        from detectron2.data import MetadataCatalog

        self.rule, self.device = rule, torch.device(device)
        self.config = read_config(config, weights, str(self.device), proposals)
        self.model = load_model(self.config)
        heads, tested = self.model.roi_heads, self.config.DATASETS.TEST
        self.n_features = (
            heads.res5[-1].out_channels if hasattr(heads, "res5") else heads.box_head.output_shape.channels
        )
        names = MetadataCatalog.get(tested[0]).get("thing_classes") if tested and tested[0] else None
        self.classes = names if names and len(names) == self.config.MODEL.ROI_HEADS.NUM_CLASSES else None
        sides = self.config.INPUT
        self.prepare = DetectronPrepare(sides.MIN_SIZE_TEST, sides.MAX_SIZE_TEST, sides.FORMAT)

    def regions(self, images: Tensor, scales: Sequence[float]) -> list[DescribedProposals]:
        batch = self.model.preprocess_image([{"image": image} for image in images])
        features = self.model.backbone(batch.tensor)
        proposals = self.model.proposal_generator(batch, features, None)[0]
        heads, boxes = self.model.roi_heads, [each.proposal_boxes for each in proposals]
        if hasattr(heads, "res5"):
            shared = heads._shared_roi_transform([features[name] for name in heads.in_features], boxes)
            vectors = shared.mean(dim=(2, 3))
        else:
            vectors = heads.box_head(heads.box_pooler([features[name] for name in heads.box_in_features], boxes))
        return as_regions(heads.box_predictor, vectors, proposals)


def as_regions(predictor: Any, vectors: Tensor, proposals: list[Any]) -> list[DescribedProposals]:
    """detectron2's predictions as ours: background first instead of last, deltas without their weights."""
    logits, deltas = predictor(vectors)
    boxes = [each.proposal_boxes.tensor for each in proposals]
    counts = [len(each) for each in boxes]
    classes = logits.softmax(dim=1).roll(1, dims=1)
    moves = deltas.unflatten(1, (-1, 4)) / deltas.new_tensor(predictor.box2box_transform.weights)
    moves = moves.expand(-1, classes.shape[1] - 1, -1).flatten(1)  # of one box for all classes too
    columns = (vectors, classes, functional.pad(moves, (4, 0)))
    rows = zip(boxes, *(column.split(counts) for column in columns), strict=True)
    return [DescribedProposals(*row) for row in rows]
