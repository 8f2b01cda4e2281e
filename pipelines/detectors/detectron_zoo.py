"""Models of detectron2 from a config and a checkpoint, if detectron2 is there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from capgrade.schemas.errors import InputError

INSTALL = "pip install --no-build-isolation 'git+https://github.com/facebookresearch/detectron2.git'"


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
        cfg.merge_from_file(path)
    except (RuntimeError, KeyError, ValueError, AssertionError) as error:
        raise InputError(
            f"not a detectron2 config ({error})", file=config, remedy="name one of its model zoo"
        ) from error
    cfg.MODEL.WEIGHTS, cfg.MODEL.DEVICE = str(weights), device
    if proposals is not None:
        cfg.MODEL.RPN.POST_NMS_TOPK_TEST = proposals
    return cfg


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

    class Whole(DetectionCheckpointer):
        def _log_incompatible_keys(self, incompatible: Any) -> None:
            lacking = [*incompatible.missing_keys, *(key for key, *_ in incompatible.incorrect_shapes)]
            if lacking:
                problem = f"lacks {len(lacking)} parameters of the config, such as {lacking[0]}"
                raise InputError(problem, file=cfg.MODEL.WEIGHTS, remedy="give the config it was trained with")

    Whole(model).load(cfg.MODEL.WEIGHTS)
    return model
