"""What a run reads of its images: regions of their store, or pictures prepared as the model wants them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.pictures.listing import read_pictures
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions
from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import Transform


class PictureStore:
    """Pictures of `read_pictures`, decoded and prepared when asked for: each is one region, the whole of it, whose
    feature float32 [1, 3 side side] is its prepared pixels in the order of [3, side, side].

    Raises InputError for a picture that cannot be read or decoded, naming it.
    """

    def __init__(self, folder: Path, transform: Transform) -> None:
        self.folder, self.transform = folder, transform
        self._pictures = {picture.image_id: picture for picture in read_pictures(folder)}
        self.metadata = {"dim": transform(np.zeros((8, 8, 3), np.uint8)).size}

    def require(self, captions: Captions) -> None:
        """Ids of pictures are names of files or of a list: they fit the captions they fit."""

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._pictures

    def __getitem__(self, key: str) -> Regions:
        rgb, _ = self._pictures[key].decode()
        pixels = np.asarray(self.transform(rgb), np.float32)
        return Regions(key, rgb.shape[1], rgb.shape[0], boxes=None, features=pixels.reshape(1, -1))

    def digest(self, image_ids: Iterable[str]) -> str:
        """SHA-256 over these pictures' ids and bytes, in the order of their ids; files are read whole. One in a table
        is known by the table and its row."""
        these = (self._pictures[name] for name in sorted(set(image_ids) & self._pictures.keys()))
        lines = (f"{one.image_id} {file_digest(Path(one.file))} {'' if one.row is None else one.row}" for one in these)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


ImageStore = RegionStore | PictureStore  # images by their ids, as sets of regions of `metadata["dim"]` numbers


def open_images(name: str, options: dict[str, Any], regions: Path | None, images: Path | None) -> ImageStore:
    """The store that a model reads. InputError where it is not given, for the other one, and for an unknown model."""
    model = model_of(name)
    given, other, wanted = (images, regions, "images") if model.reads == "pictures" else (regions, images, "regions")
    if given is None:
        raise InputError(f"model '{name}' reads {model.reads}, which are not given", remedy=f"give --{wanted}")
    if other is not None:
        unread = "regions" if wanted == "images" else "images"
        raise InputError(f"model '{name}' does not read --{unread}", remedy=f"give --{wanted} alone")
    if wanted == "regions":
        return RegionStore(given)
    return PictureStore(given, model.transform(configure(name, options, 0, 0)))


def image_digest(store: ImageStore, captions: Iterable[Captions]) -> dict[str, str]:
    """What a run read of its images, by name: the digest of the regions, or of the captions' pictures."""
    if isinstance(store, PictureStore):
        return {"images": store.digest(name for some in captions for name in some.image_ids)}
    return {"regions": digest(store.folder / MANIFEST)}
