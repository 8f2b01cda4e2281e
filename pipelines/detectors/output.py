"""What a model says of one picture."""

from __future__ import annotations

import dataclasses

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Regions:
    """What a model says of one picture's R proposals; boxes in network pixels, everything float32.

    classes has 0 = background, attributes 0 = none, as the Caffe model and MILVLG's conversion number them.
    """

    boxes: Tensor  # (R, 4) x1 y1 x2 y2, by falling objectness, not regressed
    objectness: Tensor  # (R,), as `BottomUp.propose` gives it
    features: Tensor  # (R, D), >= 0
    classes: Tensor  # (R, n_classes + 1) probabilities
    deltas: Tensor | None = None  # (R, 4 (n_classes + 1)), where a rule regresses boxes
    attributes: Tensor | None = None  # (R, n_attributes + 1) probabilities, of a model that has them
