"""Image-caption pairs as padded tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from capgrade.processes import Process
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.data.images import ImageStore, find_images
from capgrade.trainer.models.base import CaptionTokens, Images
from capgrade.trainer.models.encoders import AUTHORS_REGIONS


@dataclass(frozen=True)
class Batch:
    """A batch of pairs. Numbers and rows are of all pairs; tensors may be of one process's part."""

    images: Images
    texts: CaptionTokens
    image_numbers: np.ndarray  # int64 [B]
    caption_rows: np.ndarray  # int64 [B]


class Pairs:
    """The pairs of a split: its captions as numbers, and its images, which are read from their
    store.

    `rows` are the caption rows without those whose images an earlier stage left out. InputError
    where the store lacks any other image, or is of another split.
    """

    def __init__(
        self,
        captions: Captions,
        store: ImageStore,
        tokens: list[np.ndarray],
        rows: np.ndarray | None = None,
    ) -> None:
        self.captions, self.store, self.tokens = captions, store, tokens
        rows = np.arange(captions.n_captions) if rows is None else rows
        images = find_images(captions, store, rows)
        self.numbers, self.left_out = images.numbers, images.left_out
        self.rows = rows[images.numbers[captions.owner[rows]] >= 0]

    def image(self, number: int) -> Regions:
        """The regions, or the picture, of an image of the captions that is not left out."""
        assert self.numbers[number] >= 0, "an image that is left out"
        return self.store[int(self.numbers[number])]

    def collate(self, rows: np.ndarray, process: Process | None = None) -> Batch:
        """The batch of caption `rows`. Its tensors have the pairs of the process (None: all),
        padded as all pairs are."""
        numbers = self.captions.owner[rows]
        part = slice(None) if process is None else process.part(len(rows))
        images = pad_images([self.image(i) for i in numbers])
        texts = replace(pad_texts([self.tokens[r] for r in rows]), images=torch.from_numpy(numbers))
        return Batch(images[part], texts[part], numbers, rows)

    def image_batches(self, size: int) -> Iterator[Images]:
        """Every image of the split in order."""
        for start in range(0, self.captions.n_images, size):
            end = min(start + size, self.captions.n_images)
            yield pad_images([self.image(i) for i in range(start, end)])

    def caption_batches(self, size: int) -> Iterator[CaptionTokens]:
        """Every caption of the split in order."""
        for start in range(0, len(self.tokens), size):
            yield pad_texts(self.tokens[start : start + size])


def require_region_count(config: object, pairs: Pairs) -> None:
    """InputError where a model normalises regions by their place (`region_norm` "authors") and an
    image of these pairs has not 36 regions."""
    if getattr(config, "region_norm", None) != "authors":
        return
    for i in np.unique(pairs.captions.owner[pairs.rows]):
        count = len(pairs.image(i))
        if count != AUTHORS_REGIONS:
            problem = f"{count} regions of image '{pairs.captions.image_ids[i]}'"
            problem += f", region_norm authors takes {AUTHORS_REGIONS}"
            remedy = "extract 36: capgrade regions --boxes 36"
            remedy += ", or set train.model.options.region_norm=features"
            raise InputError(problem, file=pairs.store.folder, remedy=remedy)


def pad_images(regions: Sequence[Regions]) -> Images:
    """Region sets as tensors; boxes as shares of the picture, zeros where they or its size are
    unknown."""
    most = max(map(len, regions))
    features = np.zeros((len(regions), most, regions[0].features.shape[1]), np.float32)
    boxes = np.zeros((len(regions), most, 5), np.float32)
    mask = np.zeros((len(regions), most), np.bool_)
    for k, image in enumerate(regions):
        n = len(image)
        features[k, :n] = image.features
        mask[k, :n] = True
        if image.boxes is not None and image.width and image.height:
            box = image.boxes / np.array([image.width, image.height] * 2, np.float32)
            boxes[k, :n, :4] = box
            boxes[k, :n, 4] = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    return Images(torch.from_numpy(features), torch.from_numpy(boxes), torch.from_numpy(mask))


def pad_texts(tokens: Sequence[np.ndarray]) -> CaptionTokens:
    """Token numbers int64 [length] of each caption -> a batch [B, longest], padded with 0."""
    numbers = pad_sequence([torch.from_numpy(row) for row in tokens], batch_first=True)
    lengths = torch.tensor([len(row) for row in tokens])
    return CaptionTokens(numbers, torch.arange(numbers.shape[1]) < lengths.unsqueeze(1))
