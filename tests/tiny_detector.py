"""A seeded detector of a few ms a picture, registered as `scenes`. As a program: IMAGES OUT
KEY=VALUE..."""

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from capgrade.pipelines.detectors import catalogue
from capgrade.pipelines.detectors.bottom_up import BottomUp, BottomUpConfig, BottomUpDetector
from capgrade.pipelines.detectors.faster_rcnn import ProposalRule
from capgrade.pipelines.detectors.selection import (
    AirsplayRule,
    RegionRule,
    SelectionRule,
    select_regions,
)
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.regions import Regions

TINY = BottomUpConfig(
    n_classes=12, n_attributes=5, width=1 / 32, blocks=(1, 1, 2, 1), rpn_channels=16, embedding=8,
    attribute_hidden=16, pooled=7, proposals=ProposalRule(500, 40), short_side=64, long_side=128,
)  # fmt: skip
SELECTIONS: dict[str, RegionRule] = {
    "adaptive": SelectionRule(10, 100),
    "fixed36": SelectionRule(36, 36),
    "airsplay": AirsplayRule(),
}
CLASSES = [f"thing{k}" for k in range(TINY.n_classes)]


def tiny_model(config: BottomUpConfig = TINY) -> BottomUp:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = BottomUp(config).eval()
        for layer in (model.head.cls_score, model.head.attr_linear2, model.rpn.objectness_logits):
            torch.nn.init.normal_(layer.weight, std=1)  # scores that differ
    return model


@torch.inference_mode()
def detect(model: BottomUp, rgb: np.ndarray, rule: RegionRule) -> Regions:
    """One uint8 (H, W, 3) RGB picture -> its regions."""
    image, scale = model.config.prepare(rgb)
    return select_regions(
        model(image[None], [scale]), [scale], [(rgb.shape[1], rgb.shape[0])], ["x"], rule
    )[0]


def make(params: RegionsParams, device: torch.device) -> BottomUpDetector:
    rule = catalogue.rule_of(params)
    return BottomUpDetector(
        tiny_model(), rule, name="tiny", classes=CLASSES, device=device, precision=params.precision,
        proposals=params.proposals,
    )  # fmt: skip


def register(put: Callable[[object, str, object], None] = setattr) -> None:
    """Under the name of the default detector; `put` is a monkeypatch's setattr, so that a test
    takes it back."""
    tiny = replace(catalogue.DETECTORS["scenes"], make=make, weights=Path(__file__))
    put(catalogue, "DETECTORS", {**catalogue.DETECTORS, "scenes": tiny})


if __name__ == "__main__":
    from capgrade.params import load_params
    from capgrade.pipelines.regions import regions

    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    register()
    settings = ["regions.detector=scenes", *(f"regions.{item}" for item in sys.argv[3:])]
    regions(Path(sys.argv[1]), Path(sys.argv[2]), load_params(None, settings).regions)
    print("done")
