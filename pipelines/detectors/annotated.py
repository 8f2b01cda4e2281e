"""Pictures whose objects are known: the scenes folder that `capgrade captions` wrote, as training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from capgrade.pipelines.detectors.targets import Truth
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, read_arrow
from capgrade.schemas.pictures import decode_image


@dataclass(frozen=True)
class Annotated:
    """Pictures of one split with their objects; `classes` and `attributes` name the numbers, from 1."""

    png: Sequence[pa.Scalar]
    boxes: list[np.ndarray]  # float32 (G, 4) each, in pixels of the picture
    kinds: list[np.ndarray]  # int64 (G,)
    colours: list[np.ndarray]
    classes: list[str]
    attributes: list[str]

    def __len__(self) -> int:
        return len(self.boxes)

    def picture(self, k: int) -> np.ndarray:
        """uint8 (H, W, 3), RGB."""
        return decode_image(self.png[k].as_py(), "images.arrow", k)

    def truth(self, k: int, scale: float) -> Truth:
        """The objects of a picture that is shown at `scale`."""
        arrays = self.boxes[k] * np.float32(scale), self.kinds[k], self.colours[k]
        return Truth(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


def read_annotated(folder: Path, split: str) -> Annotated:
    """The scenes of a split: kinds are classes, colours attributes. InputError for other captions folders."""
    paths = folder / "images.arrow", folder / "scenes.arrow"
    for path in paths:
        if not path.is_file():
            remedy = "give a folder of capgrade captions --source scenes"
            raise InputError("no pictures with known objects here", file=path, remedy=remedy)
    images, scenes = (table.filter(pc.field("split") == split) for table in map(read_arrow, paths))
    if not len(images) or images["image_id"] != scenes["image_id"]:
        raise InputError(f"no scenes of split '{split}'", file=folder, remedy="make them with capgrade captions")
    names = metadata_of(scenes.schema)["vocabulary"]
    classes, attributes = names["kinds"], names["colours"]
    rows = [row["objects"] for row in scenes.select(["objects"]).to_pylist()]
    return Annotated(
        images["png"].combine_chunks(),
        [np.array([[o["x0"], o["y0"], o["x1"] - 1, o["y1"] - 1] for o in row], np.float32) for row in rows],
        [np.array([classes.index(o["kind"]) + 1 for o in row]) for row in rows],
        [np.array([attributes.index(o["colour"]) + 1 for o in row]) for row in rows],
        classes,
        attributes,
    )
