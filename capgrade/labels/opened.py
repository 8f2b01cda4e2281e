"""What a folder of labels says, opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.labels.stored import Stored
from capgrade.schemas.captions import Captions


@dataclass(frozen=True)
class Opened:
    """Labels by number, and what is known of their images and captions. What a folder does not say
    is None."""

    file: Path | str
    stored: Stored
    image_ids: list[str]  # the id of each image row
    n_captions: int  # how many captions there are
    owners: np.ndarray | None = None  # int64 [n_captions]: the image of each caption
    captions: Captions | None = None
    made_with: dict[str, Any] | None = None  # the parameters of each measure
    inputs: Mapping[str, Any] = field(default_factory=dict)  # digests of the files they are from
    # The measure of each column that a calibration made.
    calibrated: Mapping[str, str] = field(default_factory=dict)
