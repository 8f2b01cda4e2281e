"""The detectors by name, made from the parameters of the stage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from capgrade.devices import device_of, require_precision
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpDetector
from capgrade.pipelines.detectors.detectron import config_file, config_files
from capgrade.pipelines.detectors.patches import PatchDetector
from capgrade.pipelines.detectors.selection import AirsplayRule, Detector, RegionRule, SelectionRule
from capgrade.pipelines.detectors.weights import load_bottom_up
from capgrade.pretrained import fingerprint
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest
from capgrade.schemas.params import Precision, RegionsParams

# made by studies/train_detector.py
SCENES_DETECTOR = Path(__file__).with_name("scenes.safetensors")
_RANDOM = "random"  # in place of a weights file


def make_detector(params: RegionsParams, local: int = 0) -> Detector:
    """The detector that the parameters name, on its device; `local` numbers this process on its
    machine.

    Raises InputError for an unknown name, and when it needs weights, a package or a device that are
    not there.
    """
    if params.detector not in DETECTORS:
        raise InputError(
            f"unknown detector '{params.detector}'", remedy=f"choose from: {', '.join(DETECTORS)}"
        )
    unread = {"patches": ("weights", "config", "proposals"), "detectron2": ("model", "boxes_of")}
    others = unread.get(params.detector, ("model", "boxes_of", "config"))
    if unused := [name for name in others if getattr(params, name) is not None]:
        problem = f"detector {params.detector} does not read regions.{unused[0]}"
        raise InputError(problem, remedy="leave it out, or choose another detector")
    device = device_of(params.device, local)
    require_precision(precision_for(params, device), device)
    return DETECTORS[params.detector](params, device)


def rule_of(params: RegionsParams) -> RegionRule:
    """Which regions are kept, by name."""
    if params.selection == "airsplay":
        return AirsplayRule(params.box_range[1])
    return SelectionRule(
        *params.box_range, confidence=params.confidence, nms_threshold=params.nms_threshold
    )


def input_digests(params: RegionsParams) -> dict[str, str]:
    """SHA-256 of what the detector is read from, by name, for the manifest."""
    if params.detector == "scenes":
        return {"weights": digest(SCENES_DETECTOR)}
    files = (
        {"weights": Path(params.weights)}
        if params.weights and Path(params.weights).is_file()
        else {}
    )
    if params.config is not None:
        files["config"], *bases = config_files(config_file(params.config))
        files |= {f"config base {k}": path for k, path in enumerate(bases, start=1)}
    if params.boxes_of is not None:
        files["boxes"] = Path(params.boxes_of) / MANIFEST
    models = {} if params.model is None else {"model": fingerprint(params.model)}
    return {name: digest(path) for name, path in files.items()} | models


def _bottom_up(params: RegionsParams, device: torch.device) -> Detector:
    """The model of a checkpoint or with random weights; scenes is the small one that comes with the
    package."""
    scenes, given = params.detector == "scenes", params.weights
    if scenes and given:
        remedy = "give --detector bottom_up with these weights"
        raise InputError("detector scenes has weights of its own", file=given, remedy=remedy)
    if not scenes and given is None:
        remedy = (
            "give --weights FILE, a checkpoint of the bottom-up model (docs/regions.md says which)"
        )
        raise InputError("detector bottom_up has no weights", remedy=remedy)
    name, facts = params.detector, dict[str, Any]()
    if given == _RANDOM:
        # right for speed and limits, nothing else
        name = f"{name}, random weights, seed {params.seed}"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(params.seed)
            model = BottomUp()
    else:
        model, facts = load_bottom_up(Path(given) if given else SCENES_DETECTOR)
    return BottomUpDetector(
        model,
        rule_of(params),
        name=name,
        classes=facts.get("classes"),
        attributes=facts.get("attributes"),
        device=device,
        precision=precision_for(params, device),
        proposals=params.proposals,
    )


def precision_for(params: RegionsParams, device: torch.device) -> Precision:
    """The precision that the parameters name; without one bf16 on a GPU, else float32; detectron2's
    float32."""
    if params.precision is not None:
        return params.precision
    return "bf16" if device.type == "cuda" and params.detector != "detectron2" else "float32"


def _detectron2(params: RegionsParams, device: torch.device) -> Detector:
    if params.config is None or params.weights is None:
        remedy = (
            "give --weights FILE and --set regions.config=COCO-Detection/faster_rcnn_R_50_C4_1x, or"
            " a .yaml file"
        )
        raise InputError("detector detectron2 needs a config and a checkpoint", remedy=remedy)
    if precision_for(params, device) != "float32":
        raise InputError("detector detectron2 runs in float32", remedy="leave precision out")
    from capgrade.pipelines.detectors.detectron import DetectronDetector

    rule = rule_of(params)
    return DetectronDetector(
        params.config, params.weights, rule, device=device, proposals=params.proposals
    )


def _patches(params: RegionsParams, device: torch.device) -> Detector:
    if params.model is None:
        raise InputError(
            "detector patches has no model",
            remedy="give --model, a folder or a hub id of transformers",
        )
    low, high = params.box_range
    if params.boxes_of is None and low != high:
        raise InputError(
            f"{params.boxes} boxes are no grid", remedy="give --boxes 36 or another square number"
        )
    boxes = high if params.boxes_of is None else Path(params.boxes_of)
    precision = precision_for(params, device)
    return PatchDetector(params.model, boxes, device=device, precision=precision)


DETECTORS: dict[str, Callable[[RegionsParams, torch.device], Detector]] = {
    "scenes": _bottom_up,
    "bottom_up": _bottom_up,
    "detectron2": _detectron2,
    "patches": _patches,
}
