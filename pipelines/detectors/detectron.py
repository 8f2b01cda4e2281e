"""detectron2's own models as a detector, where it is installed: a config of its model zoo or from a
file, with a checkpoint."""

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
from capgrade.pipelines.detectors.checkpoint import read_content
from capgrade.pipelines.detectors.selection import DescribedProposals, ProposalDetector, RegionRule
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_text

INSTALL = (
    "pip install --no-build-isolation 'git+https://github.com/facebookresearch/detectron2.git'"
)

ZOO = "name one of its model zoo"
_REMEDY = "give a checkpoint of detectron2's model zoo"


def require_detectron2() -> None:
    """InputError where detectron2 is not installed, or does not import with this torch."""
    try:
        importlib.import_module("detectron2.modeling")
    except ModuleNotFoundError as error:
        missing = error.name or "detectron2"
        is_absent = missing.startswith("detectron2")
        problem = "detectron2 is not installed" if is_absent else f"detectron2 needs {missing}"
        remedy = INSTALL if is_absent else "install that"
        raise InputError(problem, remedy=f"{remedy}, or --detector bottom_up") from error
    except (ImportError, RuntimeError, OSError) as error:
        problem = f"detectron2 does not import ({str(error).splitlines()[0]})"
        remedy = "install it and torchvision for this torch, or --detector bottom_up"
        raise InputError(problem, remedy=remedy) from error


def read_detectron_config(
    config: str, weights: str | Path, device: str, proposals: int | None
) -> Any:
    """The config of a .yaml file, or of that name in the model zoo, such as
    COCO-Detection/faster_rcnn_R_50_C4_1x."""
    from detectron2.config import get_cfg

    if not Path(weights).is_file():
        remedy = "download it from detectron2's model zoo first"
        raise InputError("no such checkpoint", file=weights, remedy=remedy)
    path = find_config(config)
    if not path.is_file():
        raise InputError("not a detectron2 config (no such file)", file=config, remedy=ZOO)
    list_config_files(path)
    cfg = get_cfg()
    try:
        cfg.merge_from_file(str(path), allow_unsafe=False)
    except Exception as error:  # detectron2 raises any type of error for a wrong value.
        raise _config_error("not a detectron2 config", path, error) from error
    if cfg.INPUT.FORMAT not in ("BGR", "RGB"):
        problem = f"pictures as {cfg.INPUT.FORMAT}"
        raise InputError(problem, file=path, remedy="give a config of BGR or RGB")
    cfg.MODEL.DEVICE = device
    if proposals is not None:
        cfg.MODEL.RPN.POST_NMS_TOPK_TEST = proposals
    return cfg


def _config_error(problem: str, file: str | Path, error: Exception) -> InputError:
    """The error for a config on which detectron2 fails. Its own text is cut, because it may hold
    all of the config."""
    text = " ".join(str(error).split())
    return InputError(f"{problem} ({text:.200})", file=file, remedy=ZOO)


def find_config(config: str) -> Path:
    """The path of a config: a file of this name, else its place in detectron2's model zoo."""
    if Path(config).is_file():
        return Path(config)
    import detectron2

    # detectron2's own function for this, `model_zoo.get_config_file`, needs a setuptools before 82.
    configs = Path(detectron2.__file__).parent / "model_zoo" / "configs"
    return configs / f"{config.removesuffix('.yaml')}.yaml"


def list_config_files(path: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """A config and the files that it starts from (`_BASE_`), the nearest first; `above` are the
    configs that start from this one.

    InputError for YAML that names code, which detectron2 itself would run, and for a base that is
    not a file.
    """
    text = read_text(path)
    try:
        content = yaml.safe_load(text)
    except Exception as error:
        raise _config_error("not a detectron2 config", path, error) from error
    bases = content.get("_BASE_", []) if isinstance(content, dict) else []
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        raise InputError("_BASE_ is neither a file nor a list of files", file=path, remedy=ZOO)
    files, above = [path], (*above, path.resolve())
    for name in bases:
        base = path.parent / Path(name).expanduser()
        if not base.is_file():
            problem = f"starts from {name}, which is no file"
            raise InputError(problem, file=path, remedy="put its base beside it")
        if base.resolve() in above:
            remedy = "take _BASE_ out of one of its files"
            raise InputError("starts from itself", file=path, remedy=remedy)
        files += list_config_files(base, above)
    return files


def read_weights(path: Path) -> dict[str, Any]:
    """A checkpoint as detectron2's checkpointer passes it to a model: "model" has numpy arrays or
    tensors by name, and a checkpoint of Caffe2 is marked, so that its names are changed. InputError
    for a file of anything else. No code in the file is run."""
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
            problem = f"{name} is no array but {type(value).__name__}"
            raise InputError(problem, file=path, remedy=_REMEDY)
    return {**checkpoint, "model": OrderedDict(state)}


def _make_model(cfg: Any, config: str) -> tuple[Any, int]:
    """The model of a config in eval mode, and the length of a region's feature. InputError for a
    model that has no proposals, or not one feature for each."""
    from detectron2.modeling import build_model
    from detectron2.modeling.proposal_generator import RPN
    from detectron2.modeling.roi_heads import Res5ROIHeads, StandardROIHeads

    try:
        model = build_model(cfg).eval()
    except Exception as error:  # detectron2 raises any type of error for a config without a model.
        raise _config_error("no model of this config", config, error) from error
    # The types are compared exactly, because subclasses have cascades or rotated boxes.
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


def load_detectron_weights(model: Any, path: Path) -> None:
    """Load a checkpoint. InputError where it lacks a parameter of the model, or one is not
    finite."""
    from detectron2.checkpoint import DetectionCheckpointer

    checkpoint = read_weights(path)
    if any(isinstance(value, torch.Tensor) for value in checkpoint["model"].values()):
        # Without this version number detectron2 takes a torch file for one of its first release,
        # whose norms may lack statistics.
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
class _DetectronPrepare:
    """Prepares pictures as detectron2's DefaultPredictor does: uint8 (H, W, 3) RGB, resized by
    Pillow as 8-bit pixels -> float32 (3, h, w) in the model's channel order, and the scale. The
    model itself subtracts the mean."""

    short: int
    long: int
    channels: str  # RGB or BGR

    def __call__(self, rgb: np.ndarray) -> tuple[Tensor, float]:
        from detectron2.data.transforms import ResizeShortestEdge

        image = np.ascontiguousarray(rgb[:, :, ::-1]) if self.channels == "BGR" else rgb
        height, width = rgb.shape[:2]
        resize = ResizeShortestEdge([self.short, self.short], self.long).get_transform(image)
        try:
            resized = resize.apply_image(image).transpose(2, 0, 1)
        except ValueError as error:  # Pillow refuses a side of no pixel.
            problem = f"{width} x {height} pixels are too narrow for the detector"
            raise InputError(problem) from error
        # The scale is that of the longer side, where rounding to a pixel changes it least.
        scale = max(resized.shape[1:]) / max(height, width)
        return torch.from_numpy(resized.astype(np.float32)), scale


class DetectronDetector(ProposalDetector):
    """A Faster or Mask R-CNN of detectron2 with one box head (C4, DC5 or FPN) in float32.

    The feature of a proposal is the vector that the box head predicts from: res5 averaged (C4), or
    the last fully connected layer (others). There are no attributes. Raises InputError for what
    detectron2 cannot build or load completely.
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
        require_detectron2()
        from detectron2.data import MetadataCatalog

        self.rule, self.device = rule, torch.device(device)
        self.config = read_detectron_config(config, weights, str(self.device), proposals)
        self.model, self.n_features = _make_model(self.config, config)
        load_detectron_weights(self.model, Path(weights))
        dataset = next(iter(self.config.DATASETS.TEST), None)
        names = MetadataCatalog.get(dataset).get("thing_classes") if dataset else None
        is_complete = names and len(names) == self.config.MODEL.ROI_HEADS.NUM_CLASSES
        self.classes = names if is_complete else None
        sizes = self.config.INPUT
        self.prepare = _DetectronPrepare(sizes.MIN_SIZE_TEST, sizes.MAX_SIZE_TEST, sizes.FORMAT)

    def describe_proposals(
        self, images: Tensor, scales: Sequence[float]
    ) -> list[DescribedProposals]:
        with precision_of("float32", self.device):
            batch = self.model.preprocess_image([{"image": image} for image in images])
            features = self.model.backbone(batch.tensor)
            proposals = self.model.proposal_generator(batch, features, None)[0]
            heads, boxes = self.model.roi_heads, [picture.proposal_boxes for picture in proposals]
            if hasattr(heads, "res5"):
                levels = [features[name] for name in heads.in_features]
                vectors = heads._shared_roi_transform(levels, boxes).mean(dim=(2, 3))
            else:
                levels = [features[name] for name in heads.box_in_features]
                vectors = heads.box_head(heads.box_pooler(levels, boxes))
            return convert_predictions(heads.box_predictor, vectors, proposals)


def convert_predictions(
    predictor: Any, vectors: Tensor, proposals: list[Any]
) -> list[DescribedProposals]:
    """detectron2's predictions as `DescribedProposals`: background becomes the first class instead
    of the last, and deltas are divided by their weights."""
    logits, deltas = predictions = predictor(vectors)
    boxes = [picture.proposal_boxes.tensor for picture in proposals]
    counts = [len(part) for part in boxes]
    classes = torch.cat(predictor.predict_probs(predictions, proposals)).roll(1, dims=1)
    moves = deltas.unflatten(1, (-1, 4)) / deltas.new_tensor(predictor.box2box_transform.weights)
    # Some models predict one box for all classes, which is then that of each class.
    moves = moves.expand(-1, classes.shape[1] - 1, -1).flatten(1)
    columns = (vectors, classes, functional.pad(moves, (4, 0)))
    rows = zip(boxes, *(column.split(counts) for column in columns), strict=True)
    return [DescribedProposals(*row) for row in rows]
