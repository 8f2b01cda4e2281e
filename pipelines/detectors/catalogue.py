"""The detectors by name, and how each is made from the stage's parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from capgrade.devices import device_of, require_precision
from capgrade.pipelines.detectors.backbones import fingerprint_of_backbone
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpDetector
from capgrade.pipelines.detectors.checkpoint import load_bottom_up
from capgrade.pipelines.detectors.detectron import find_config, list_config_files
from capgrade.pipelines.detectors.layouts import CHECKPOINTS
from capgrade.pipelines.detectors.patches import PatchDetector
from capgrade.pipelines.detectors.selection import AirsplayRule, Detector, RegionRule, SelectionRule
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.block import Precision
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import MANIFEST, digest

_RANDOM = "random"  # the value of --weights for a model without trained weights


@dataclass(frozen=True)
class _DetectorKind:
    """A detector that `regions.detector` names."""

    make: Callable[[RegionsParams, torch.device], Detector]
    unread: tuple[str, ...]  # parameters that it does not read, and that are refused
    weights: Path | None = None  # its own, which come with the package
    gpu_precision: Precision = "bf16"  # on a GPU, where none is asked for; else float32


def make_detector(params: RegionsParams, local: int = 0) -> Detector:
    """The detector that the parameters name, on its device; `local` is the number of this process
    on its machine.

    Raises InputError for an unknown name, and for missing weights, a missing package or device.
    """
    if params.detector not in DETECTORS:
        remedy = choose_from(params.detector, DETECTORS)
        raise InputError(f"unknown detector '{params.detector}'", remedy=remedy)
    kind = DETECTORS[params.detector]
    for name in kind.unread:
        if getattr(params, name) is not None:
            problem = f"detector {params.detector} does not read regions.{name}"
            raise InputError(problem, remedy="leave it out, or choose another detector")
    device = device_of(params.device, local)
    require_precision(precision_for(params, device), device)
    return kind.make(params, device)


def rule_of(params: RegionsParams) -> RegionRule:
    """The rule by which regions are kept."""
    if params.selection == "airsplay":
        return AirsplayRule(params.box_range[1])
    return SelectionRule(
        *params.box_range, confidence=params.confidence, nms_threshold=params.nms_threshold
    )


def detector_digests(params: RegionsParams) -> dict[str, str]:
    """SHA-256 of the files of the detector, by name, for the manifest."""
    files: dict[str, Path] = {}
    weights = DETECTORS[params.detector].weights or params.weights
    if weights and Path(weights).is_file():
        files["weights"] = Path(weights)
    if params.config is not None:
        files["config"], *bases = list_config_files(find_config(params.config))
        files |= {f"config base {k}": path for k, path in enumerate(bases, start=1)}
    if params.boxes_of is not None:
        files["boxes"] = Path(params.boxes_of) / MANIFEST
    models = {} if params.model is None else {"model": fingerprint_of_backbone(params.model)}
    return {name: digest(path) for name, path in files.items()} | models


def _make_bottom_up(params: RegionsParams, device: torch.device) -> Detector:
    """The bottom-up model of a checkpoint or with random weights; `scenes` is the small one that
    comes with the package."""
    own, weights = DETECTORS[params.detector].weights, params.weights
    if own and weights:
        remedy = "give --detector bottom_up with these weights"
        problem = f"detector {params.detector} has weights of its own"
        raise InputError(problem, file=weights, remedy=remedy)
    if own is None and weights is None:
        remedy = f"give --weights FILE, a checkpoint such as {CHECKPOINTS}"
        raise InputError("detector bottom_up has no weights", remedy=remedy)
    name, facts = params.detector, dict[str, Any]()
    if weights == _RANDOM:
        # Random weights serve to measure speed and memory.
        name = f"{name}, random weights, seed {params.seed}"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(params.seed)
            model = BottomUp()
    else:
        model, facts = load_bottom_up(own or Path(str(weights)))
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
    """The precision that the parameters name, or what the detector has on such a device."""
    own = DETECTORS[params.detector].gpu_precision if device.type == "cuda" else "float32"
    return params.precision or own


def _make_detectron2(params: RegionsParams, device: torch.device) -> Detector:
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


def _make_patches(params: RegionsParams, device: torch.device) -> Detector:
    if params.model is None:
        remedy = "give --model, a folder or a hub id of transformers"
        raise InputError("detector patches has no model", remedy=remedy)
    low, high = params.box_range
    if params.boxes_of is None and low != high:
        remedy = "give --boxes 36 or another square number"
        raise InputError(f"{params.boxes} boxes are no grid", remedy=remedy)
    boxes = high if params.boxes_of is None else Path(params.boxes_of)
    precision = precision_for(params, device)
    return PatchDetector(params.model, boxes, device=device, precision=precision)


DETECTORS = {
    "scenes": _DetectorKind(
        _make_bottom_up,
        unread=("model", "boxes_of", "config"),
        weights=Path(__file__).with_name("scenes.safetensors"),  # by research.studies
    ),
    "bottom_up": _DetectorKind(_make_bottom_up, unread=("model", "boxes_of", "config")),
    "detectron2": _DetectorKind(
        _make_detectron2, unread=("model", "boxes_of"), gpu_precision="float32"
    ),
    "patches": _DetectorKind(_make_patches, unread=("weights", "config", "proposals")),
}
