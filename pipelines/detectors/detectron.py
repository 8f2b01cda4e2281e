"""detectron2's own models as a detector, where it is installed: a config of its zoo or a file, with
a checkpoint."""

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

from capgrade.devices import precision_of
from capgrade.pipelines.detectors.selection import DescribedProposals, ProposalDetector, RegionRule
from capgrade.pipelines.detectors.weights import read_content
from capgrade.schemas.errors import InputError

INSTALL = (
    "pip install --no-build-isolation 'git+https://github.com/facebookresearch/detectron2.git'"
)

ZOO = "name one of its model zoo"
_REMEDY = "give a checkpoint of detectron2's model zoo"


def need_detectron2() -> None:
    """InputError when detectron2 is not there, or does not import with this torch."""
    try:
        importlib.import_module("detectron2.modeling")
    except ModuleNotFoundError as error:
        missing = error.name or "detectron2"
        absent = missing.startswith("detectron2")
        problem = "detectron2 is not installed" if absent else f"detectron2 needs {missing}"
        remedy = INSTALL if absent else "install that"
        raise InputError(problem, remedy=f"{remedy}, or --detector bottom_up") from error
    except (ImportError, RuntimeError, OSError) as error:
        problem = f"detectron2 does not import ({str(error).splitlines()[0]})"
        raise InputError(
            problem, remedy="install it and torchvision for this torch, or --detector bottom_up"
        ) from error


def read_config(config: str, weights: str | Path, device: str, proposals: int | None) -> Any:
    """The config of a .yaml file, or of that name in the model zoo, such as
    COCO-Detection/faster_rcnn_R_50_C4_1x."""
    from detectron2.config import get_cfg

    if not Path(weights).is_file():
        raise InputError(
            "no such checkpoint",
            file=weights,
            remedy="download it from detectron2's model zoo first",
        )
    path = config_file(config)
    if not path.is_file():
        raise InputError("not a detectron2 config (no such file)", file=config, remedy=ZOO)
    config_files(path)
    cfg = get_cfg()
    try:
        cfg.merge_from_file(str(path), allow_unsafe=False)
    except Exception as error:  # of values of another type detectron2 raises anything
        raise refused("not a detectron2 config", path, error) from error
    if cfg.INPUT.FORMAT not in ("BGR", "RGB"):
        raise InputError(
            f"pictures as {cfg.INPUT.FORMAT}", file=path, remedy="give a config of BGR or RGB"
        )
    cfg.MODEL.DEVICE = device
    if proposals is not None:
        cfg.MODEL.RPN.POST_NMS_TOPK_TEST = proposals
    return cfg


def refused(problem: str, file: str | Path, error: Exception) -> InputError:
    """What to raise for a config on which detectron2 fails; its own error may be a whole config
    long."""
    text = " ".join(str(error).split())
    return InputError(f"{problem} ({text:.200})", file=file, remedy=ZOO)


def config_file(config: str) -> Path:
    """The file of a config: the one that it names, or where detectron2 has one of this name in its
    model zoo. Its own `model_zoo` needs a setuptools before 82."""
    if Path(config).is_file():
        return Path(config)
    import detectron2

    return (
        Path(detectron2.__file__).parent
        / "model_zoo"
        / "configs"
        / f"{config.removesuffix('.yaml')}.yaml"
    )


def config_files(path: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """A config and the files that it starts from (`_BASE_`), the nearest first.

    InputError for YAML that names code, which detectron2 itself would run, and for a base that is
    no file on the disk.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise refused("not a detectron2 config", path, error) from error
    bases = content.get("_BASE_", []) if isinstance(content, dict) else []
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        raise InputError("_BASE_ is neither a file nor a list of files", file=path, remedy=ZOO)
    files, up = [path], (*above, path.resolve())
    for name in bases:
        base = path.parent / Path(name).expanduser()
        if not base.is_file():
            raise InputError(
                f"starts from {name}, which is no file", file=path, remedy="put its base beside it"
            )
        if base.resolve() in up:
            raise InputError(
                "starts from itself", file=path, remedy="take _BASE_ out of one of its files"
            )
        files += config_files(base, up)
    return files


def read_weights(path: Path) -> dict[str, Any]:
    """A checkpoint as detectron2's checkpointer hands it to a model: "model" has numpy arrays or
    tensors by name, those of Caffe2 with the mark that they are to be renamed. InputError for a
    file of anything else; none of it is run."""
    content = read_content(path)
    checkpoint = dict(content) if isinstance(content, Mapping) else {}
    if "blobs" in checkpoint:
        checkpoint = {
            "model": checkpoint["blobs"],
            "__author__": "Caffe2",
            "matching_heuristics": True,
        }
    elif "model" not in checkpoint:
        checkpoint = {"model": checkpoint}
    if not isinstance(checkpoint["model"], Mapping) or not checkpoint["model"]:
        raise InputError("no weights by name in this file", file=path, remedy=_REMEDY)
    state = {
        str(name): value
        for name, value in checkpoint["model"].items()
        if not str(name).endswith("_momentum")
    }
    for name, value in state.items():
        if not isinstance(value, np.ndarray | torch.Tensor):
            raise InputError(
                f"{name} is no array but {type(value).__name__}", file=path, remedy=_REMEDY
            )
    return {**checkpoint, "model": OrderedDict(state)}


def make_model(cfg: Any, config: str) -> tuple[Any, int]:
    """The model of a config in eval mode, and how many numbers it has of a region. InputError for a
    model that has no single vector of a region, or that proposes none."""
    from detectron2.modeling import build_model
    from detectron2.modeling.proposal_generator import RPN
    from detectron2.modeling.roi_heads import Res5ROIHeads, StandardROIHeads

    try:
        model = build_model(cfg).eval()
    except Exception as error:  # of a config that no model can have detectron2 raises anything
        raise refused("no model of this config", config, error) from error
    # By their very types: subclasses have cascades, or rotated boxes.
    heads: Any = getattr(model, "roi_heads", None)
    if type(getattr(model, "proposal_generator", None)) is RPN:
        if type(heads) is Res5ROIHeads:
            return model, heads.res5[-1].out_channels
        if type(heads) is StandardROIHeads and heads.box_head.output_shape.height is None:
            return model, heads.box_head.output_shape.channels
    problem = (
        f"{cfg.MODEL.META_ARCHITECTURE} with {cfg.MODEL.ROI_HEADS.NAME} proposes no region with a"
        " single vector"
    )
    raise InputError(problem, file=config, remedy="take a Faster or Mask R-CNN config")


def load_weights(model: Any, path: Path) -> None:
    """Take a checkpoint, which must have every parameter of the model, and all of them finite."""
    from detectron2.checkpoint import DetectionCheckpointer

    checkpoint = read_weights(path)
    if any(isinstance(value, torch.Tensor) for value in checkpoint["model"].values()):
        # Without it torch's files would count as of the first detectron2, where norms may lack
        # statistics.
        checkpoint["model"]._metadata = model.state_dict()._metadata
    incompatible = DetectionCheckpointer(model)._load_model(checkpoint)
    lacking = [*incompatible.missing_keys, *(key for key, *_ in incompatible.incorrect_shapes)]
    if lacking:
        problem = f"lacks {len(lacking)} parameters of the config, such as {lacking[0]}"
        raise InputError(problem, file=path, remedy="give the config it was trained with")
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise InputError(f"{name} is not finite", file=path, remedy=_REMEDY)


@dataclasses.dataclass(frozen=True)
class DetectronPrepare:
    """DefaultPredictor's: 8-bit pixels resized by Pillow, in the model's channel order; the model
    takes its mean."""

    short: int
    long: int
    channels: str  # RGB or BGR

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        from detectron2.data.transforms import ResizeShortestEdge

        image = np.ascontiguousarray(rgb[:, :, ::-1]) if self.channels == "BGR" else rgb
        height, width = rgb.shape[:2]
        resize = ResizeShortestEdge([self.short, self.short], self.long).get_transform(image)
        try:
            shown = resize.apply_image(image).transpose(2, 0, 1)
        except ValueError as error:  # of Pillow, for a side of no pixel
            raise InputError(
                f"{width} x {height} pixels are too narrow for the detector"
            ) from error
        # Of the longer side, where a rounded pixel weighs least.
        return torch.from_numpy(shown.astype(np.float32)), max(shown.shape[1:]) / max(height, width)


class DetectronDetector(ProposalDetector):
    """A Faster or Mask R-CNN of detectron2 with one box head: C4, DC5 or FPN; float32.

    A region is a proposal with the vector its box head predicts from: res5 averaged (C4), the last
    fully connected layer (others). There are no attributes. Raises InputError for what detectron2
    cannot build or load whole.
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
        self.model, self.n_features = make_model(self.config, config)
        load_weights(self.model, Path(weights))
        tested = self.config.DATASETS.TEST
        names = (
            MetadataCatalog.get(tested[0]).get("thing_classes") if tested and tested[0] else None
        )
        self.classes = (
            names if names and len(names) == self.config.MODEL.ROI_HEADS.NUM_CLASSES else None
        )
        sides = self.config.INPUT
        self.prepare = DetectronPrepare(sides.MIN_SIZE_TEST, sides.MAX_SIZE_TEST, sides.FORMAT)

    def regions(self, images: Tensor, scales: Sequence[float]) -> list[DescribedProposals]:
        with precision_of("float32", self.device):
            batch = self.model.preprocess_image([{"image": image} for image in images])
            features = self.model.backbone(batch.tensor)
            proposals = self.model.proposal_generator(batch, features, None)[0]
            heads, boxes = self.model.roi_heads, [each.proposal_boxes for each in proposals]
            if hasattr(heads, "res5"):
                shared = heads._shared_roi_transform(
                    [features[name] for name in heads.in_features], boxes
                )
                vectors = shared.mean(dim=(2, 3))
            else:
                vectors = heads.box_head(
                    heads.box_pooler([features[name] for name in heads.box_in_features], boxes)
                )
            return as_regions(heads.box_predictor, vectors, proposals)


def as_regions(predictor: Any, vectors: Tensor, proposals: list[Any]) -> list[DescribedProposals]:
    """detectron2's predictions as ours: background first instead of last, deltas without their
    weights."""
    logits, deltas = predictions = predictor(vectors)
    boxes = [each.proposal_boxes.tensor for each in proposals]
    counts = [len(each) for each in boxes]
    classes = torch.cat(predictor.predict_probs(predictions, proposals)).roll(1, dims=1)
    moves = deltas.unflatten(1, (-1, 4)) / deltas.new_tensor(predictor.box2box_transform.weights)
    moves = moves.expand(-1, classes.shape[1] - 1, -1).flatten(1)  # of one box for all classes too
    columns = (vectors, classes, functional.pad(moves, (4, 0)))
    rows = zip(boxes, *(column.split(counts) for column in columns), strict=True)
    return [DescribedProposals(*row) for row in rows]
