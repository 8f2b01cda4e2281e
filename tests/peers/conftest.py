"""The packages that people use capgrade inside of: `make peers` installs them and runs these
tests."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

PACKAGES = ("capevalkit", "evaluate", "lmms_eval", "mteb", "open_clip", "torchmetrics", "trl")
MISSING = [name for name in PACKAGES if find_spec(name) is None]

if not MISSING:
    # The compiled operators of a torchvision are those of one build of torch. Beside another build
    # its import fails at these two names, and nothing here calls them.
    OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason=f"not installed: {', '.join(MISSING)} (make peers)")
    for item in items:
        if MISSING and Path(__file__).parent in item.path.parents:
            item.add_marker(skip)
