"""Image-caption pairs as padded tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions
from capgrade.trainer.data.images import ImageStore, find_images
from capgrade.trainer.models.base import CaptionTokens, Images
from capgrade.trainer.models.encoders import AUTHORS_REGIONS


@dataclass(frozen=True)
class Batch:
    """Some pairs. Numbers and rows are of the whole batch; tensors may hold one process's part of
    it."""

    images: Images
    texts: CaptionTokens
    image_numbers: np.ndarray  # int64 [B]
    caption_rows: np.ndarray  # int64 [B]


class Pairs:
    """The pairs of a split: its captions as numbers, its images as regions or pictures read from
    their store when asked for.

    Images that the stage before left out are left out, with their captions, from `rows`. InputError
    when the store lacks another one, or is of another split.
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
        found = find_images(captions, store, rows)
        # of the store; images without, and why
        self.numbers, self.left_out = (
            found.numbers,
            found.left_out,
        )
        self.rows = rows[found.numbers[captions.owner[rows]] >= 0]  # captions that are learnt from

    def image(self, number: int) -> Regions:
        """The regions, or the picture, of an image of the captions that is not left out."""
        assert self.numbers[number] >= 0, "an image that is left out"
        return self.store[int(self.numbers[number])]

    def collate(self, rows: np.ndarray, part: slice = slice(None)) -> Batch:
        """The pairs of caption `rows`; with `part` only these as tensors, padded as the whole batch
        is."""
        numbers = self.captions.owner[rows]
        images = pad_images([self.image(i) for i in numbers])
        texts = replace(pad_texts([self.tokens[r] for r in rows]), images=torch.from_numpy(numbers))
        mine = ([x[part] for x in vars(side).values()] for side in (images, texts))
        return Batch(Images(*next(mine)), CaptionTokens(*next(mine)), numbers, rows)

    def image_batches(self, size: int) -> Iterator[Images]:
        """Every image of the split in order."""
        for at in range(0, self.captions.n_images, size):
            yield pad_images(
                [self.image(i) for i in range(at, min(at + size, self.captions.n_images))]
            )

    def caption_batches(self, size: int) -> Iterator[CaptionTokens]:
        """Every caption of the split in order."""
        for at in range(0, len(self.tokens), size):
            yield pad_texts(self.tokens[at : at + size])


def require_count(config: object, pairs: Pairs) -> None:
    """InputError where a model normalises regions by their place, as the authors' `region_norm`,
    and an image of these pairs has another number of regions."""
    if getattr(config, "region_norm", None) != "authors":
        return
    for i in np.unique(pairs.captions.owner[pairs.rows]):
        count = len(pairs.image(i))
        if count != AUTHORS_REGIONS:
            problem = (
                f"{count} regions of image '{pairs.captions.image_ids[i]}', region_norm authors"
                f" takes {AUTHORS_REGIONS}"
            )
            remedy = (
                "extract 36: capgrade regions --boxes 36, or set"
                " train.model.options.region_norm=features"
            )
            raise InputError(problem, file=pairs.store.folder, remedy=remedy)


def pad_images(regions: Sequence[Regions]) -> Images:
    """Region sets as tensors; boxes as shares of the picture, zeros where they or its size are
    unknown."""
    most = max(map(len, regions))
    features = np.zeros((len(regions), most, regions[0].features.shape[1]), np.float32)
    boxes = np.zeros((len(regions), most, 5), np.float32)
    mask = np.zeros((len(regions), most), np.bool_)
    for k, one in enumerate(regions):
        n = len(one)
        features[k, :n], mask[k, :n] = one.features, True
        if one.boxes is not None and one.width and one.height:
            box = one.boxes / np.array([one.width, one.height] * 2, np.float32)
            boxes[k, :n, :4] = box
            boxes[k, :n, 4] = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    return Images(torch.from_numpy(features), torch.from_numpy(boxes), torch.from_numpy(mask))


def pad_texts(tokens: Sequence[np.ndarray]) -> CaptionTokens:
    """Token numbers int64 [length] of each caption -> a batch [B, longest], zeros and a False mask
    behind."""
    numbers = pad_sequence([torch.from_numpy(row) for row in tokens], batch_first=True)
    return CaptionTokens(
        numbers, torch.arange(numbers.shape[1]) < torch.tensor(list(map(len, tokens))).unsqueeze(1)
    )
