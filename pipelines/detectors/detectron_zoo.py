"""Models of detectron2 from a config and a checkpoint, if detectron2 is there."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from capgrade.pipelines.detectors.published import read_content
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
    named = content.get("_BASE_", []) if isinstance(content, dict) else []
    found = [path]
    for name in [named] if isinstance(named, str) else _names(named, path):
        base = path.parent / Path(name).expanduser()
        if not base.is_file():
            raise InputError(f"starts from {name}, which is no file", file=path, remedy="put its base beside it")
        if base.resolve() in (up := (*above, path.resolve())):
            raise InputError("starts from itself", file=path, remedy="take _BASE_ out of one of its files")
        found += config_files(base, up)
    return found


def _names(named: Any, path: Path) -> list[str]:
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise InputError("_BASE_ is neither a file nor a list of files", file=path, remedy=ZOO)
    return named


def read_weights(path: Path) -> dict[str, Any]:
    """A checkpoint as detectron2's checkpointer hands it to a model: "model" has numpy arrays or tensors by name, those
    of Caffe2 with the mark that they are to be renamed. InputError for a file of anything else; none of it is run."""
    content = read_content(path)
    found = dict(content) if isinstance(content, Mapping) else {}
    if "blobs" in found:
        found = {"model": found["blobs"], "__author__": "Caffe2", "matching_heuristics": True}
    elif "model" not in found:
        found = {"model": found}
    if not isinstance(found["model"], Mapping) or not found["model"]:
        raise InputError("no weights by name in this file", file=path, remedy=REMEDY)
    state = {str(name): value for name, value in found["model"].items() if not str(name).endswith("_momentum")}
    for name, value in state.items():
        if not isinstance(value, np.ndarray | torch.Tensor):
            raise InputError(f"{name} is no array but {type(value).__name__}", file=path, remedy=REMEDY)
    return {**found, "model": OrderedDict(state)}


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
