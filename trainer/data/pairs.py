"""Image-caption pairs: which of them are learnt from, as padded tensors, and in batches that are
made ahead."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

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


class SplitPairs:
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


def require_region_count(config: object, pairs: SplitPairs) -> None:
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


def sample_rows(
    captions: Captions, images: float = 1.0, captions_per_image: int | None = None, seed: int = 0
) -> np.ndarray:
    """The rising caption rows, int64, of a share of a split's images, and of so many captions of
    each (None: all).

    A hash of the seed and the id chooses them, so that a smaller share is part of a larger one. The
    number of images is rounded down, as in SAM: 3 % of 113,287 are 3,398.
    """
    n_images = max(1, int(images * captions.n_images + 1e-9))
    chosen = np.argsort(_hash(captions.image_ids, seed), kind="stable")[:n_images]
    rows = np.flatnonzero(np.isin(captions.owner, chosen))
    if captions_per_image is None:
        return rows
    hashes = _hash([captions.caption_ids[r] for r in rows], seed)
    order = np.lexsort((hashes, captions.owner[rows]))
    owners = captions.owner[rows][order]
    place = np.arange(len(rows)) - np.searchsorted(owners, owners)  # rank within the image
    return np.sort(rows[order[place < captions_per_image]])


def fold_of(image_ids: Sequence[str], folds: int) -> np.ndarray:
    """int64 [images]: the part 0..folds - 1 that an image belongs to, by a hash of its id alone."""
    return (_hash([f"fold {one}" for one in image_ids], 0) % np.uint64(folds)).astype(np.int64)


def _hash(ids: Sequence[str], seed: int) -> np.ndarray:
    """A uint64 of each id."""
    hashes = [hashlib.blake2b(f"{seed} {one}".encode(), digest_size=8).digest() for one in ids]
    return np.frombuffer(b"".join(hashes), np.uint64)


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def prefetch(make: Callable[[_In], _Out], items: Iterable[_In], workers: int = 1) -> Iterator[_Out]:
    """`make(item)` of each item in order, made ahead by `workers` threads (up to workers + 1
    results); with 0 workers when it is needed.

    An error is raised in its item's turn. Once the iterator is closed, no further item is begun.
    """
    if not workers:
        yield from map(make, items)
        return
    futures, pool = deque[Future[_Out]](), ThreadPoolExecutor(workers)
    try:
        for item in items:
            futures.append(pool.submit(make, item))
            if len(futures) > workers + 1:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        # It must not wait: after an error in the loop the garbage collector closes this iterator,
        # perhaps under a lock that a thread needs.
        pool.shutdown(wait=False, cancel_futures=True)
