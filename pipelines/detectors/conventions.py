"""Where code bases that share the bottom-up architecture compute it differently."""

from __future__ import annotations

import dataclasses

from capgrade.schemas.errors import InputError


@dataclasses.dataclass(frozen=True)
class Conventions:
    """The fields are what detectron2 changed; all False is Caffe's bottom-up-attention.

    Sources: lib/rpn and lib/fast_rcnn of bottom-up-attention; anchor_generator.py, box_regression.py,
    proposal_generator/proposal_utils.py and backbone/resnet.py (BasicStem) of detectron2/modeling.
    """

    open_boxes: bool = False  # a side is x2 - x1 and boxes end at (width, height); else x2 - x1 + 1, (width - 1, ...)
    exact_anchors: bool = False  # not rounded, about the cell's corner, size by size; else by `make_anchors`
    best_first: bool = False  # the best by logit, then without small boxes; else without them, the best by probability
    padded_pool: bool = False  # after conv1: pad 1 and the size rounded down; else no pad and rounded up


CONVENTIONS = {
    "caffe": Conventions(),
    # airsplay/py-bottom-up-attention: detectron2 of 2020 with CAFFE_MAXPOOL (configs/VG-Detection/*_caffemaxpool.yaml)
    "airsplay": Conventions(open_boxes=True, exact_anchors=True, best_first=True),
    "detectron2": Conventions(open_boxes=True, exact_anchors=True, best_first=True, padded_pool=True),
    # airsplay where the checkpoint brings Caffe's anchors, which take the place of the configured
    "airsplay_rounded": Conventions(open_boxes=True, best_first=True),
}


def conventions_of(name: str) -> Conventions:
    """The conventions of that name, or an InputError that lists the names."""
    if name not in CONVENTIONS:
        raise InputError(f"unknown conventions '{name}'", remedy=f"one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]
