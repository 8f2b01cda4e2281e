"""Batches of image-caption pairs: which pairs, in what company, as padded tensors."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch

from schemas.captions import Captions
from schemas.errors import InputError
from schemas.region_store import RegionStore
from schemas.regions import Regions
from trainer.models.base import Images, Texts
from trainer.relevance import SampledRelevance

Composition = Literal["random", "seeded"]
PARTNERS = 2  # bits of `reasons` from this one on: top and windows of each measure
_T = TypeVar("_T")


@dataclass(frozen=True)
class Batch:
    """Some pairs. Numbers and rows are of the whole batch; tensors may hold one process's part of it."""

    images: Images
    texts: Texts
    image_numbers: np.ndarray  # int64 [B]
    caption_rows: np.ndarray  # int64 [B]


@dataclass(frozen=True)
class DataShare:
    """How much of a split is learnt from: a share of its images, and so many captions of each (None: all).

    Chosen by a hash of the seed and the id: a smaller share is part of every larger one.
    """

    images: float = 1.0
    captions_per_image: int | None = None
    seed: int = 0

    def rows(self, captions: Captions) -> np.ndarray:
        """The caption rows that stay, int64, rising."""
        n = max(1, round(self.images * captions.n_images))
        chosen = np.argsort(self._keys(captions.image_ids), kind="stable")[:n]
        rows = np.flatnonzero(np.isin(captions.owner, chosen))
        if self.captions_per_image is None:
            return rows
        keys = self._keys([captions.caption_ids[r] for r in rows])
        order = np.lexsort((keys, captions.owner[rows]))
        owners = captions.owner[rows][order]
        place = np.arange(len(rows)) - np.searchsorted(owners, owners)  # rank within the image
        return np.sort(rows[order[place < self.captions_per_image]])

    def _keys(self, ids: Sequence[str]) -> np.ndarray:
        texts = (f"{self.seed} {i}".encode() for i in ids)
        return np.frombuffer(b"".join(hashlib.blake2b(t, digest_size=8).digest() for t in texts), np.uint64)


class Pairs:
    """The pairs of a split: its captions as numbers, its images as regions read from their store when asked for.

    Raises InputError when the store lacks an image.
    """

    def __init__(
        self, captions: Captions, store: RegionStore, tokens: list[np.ndarray], rows: np.ndarray | None = None
    ) -> None:
        self.captions, self.store, self.tokens = captions, store, tokens
        self.rows = np.arange(captions.n_captions) if rows is None else rows  # captions that are learnt from
        wanted = np.unique(captions.owner[self.rows])
        missing = [captions.image_ids[i] for i in wanted if captions.image_ids[i] not in store]
        if missing:
            problem = f"no regions of image '{missing[0]}', {len(missing)} such of {len(wanted)}"
            raise InputError(problem, file=store.folder, remedy="extract them: capgrade regions")

    def collate(self, rows: np.ndarray, part: slice = slice(None)) -> Batch:
        """The pairs of caption `rows`; with `part` only these as tensors, padded as the whole batch is."""
        images = self.captions.owner[rows]
        regions = [self.store[self.captions.image_ids[i]] for i in images]
        tokens = [self.tokens[r] for r in rows]
        most, longest = max(map(len, regions)), max(map(len, tokens))
        return Batch(pad_images(regions[part], most), pad_texts(tokens[part], longest), images, rows)

    def image_batches(self, size: int) -> Iterator[Images]:
        """Every image of the split in order."""
        for at in range(0, self.captions.n_images, size):
            yield pad_images([self.store[image_id] for image_id in self.captions.image_ids[at : at + size]])

    def caption_batches(self, size: int) -> Iterator[Texts]:
        """Every caption of the split in order."""
        for at in range(0, len(self.tokens), size):
            yield pad_texts(self.tokens[at : at + size])


def pad_images(regions: Sequence[Regions], most: int | None = None) -> Images:
    """Region sets as tensors; boxes as shares of the picture, zeros where they or its size are unknown."""
    most = most or max(map(len, regions))
    features = np.zeros((len(regions), most, regions[0].features.shape[1]), np.float32)
    boxes = np.zeros((len(regions), most, 5), np.float32)
    mask = np.zeros((len(regions), most), np.bool_)
    for k, found in enumerate(regions):
        n = len(found)
        features[k, :n], mask[k, :n] = found.features, True
        if found.boxes is not None and found.width and found.height:
            box = found.boxes / np.array([found.width, found.height] * 2, np.float32)
            boxes[k, :n, :4] = box
            boxes[k, :n, 4] = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    return Images(torch.from_numpy(features), torch.from_numpy(boxes), torch.from_numpy(mask))


def pad_texts(tokens: Sequence[np.ndarray], longest: int | None = None) -> Texts:
    longest = longest or max(map(len, tokens))
    numbers = np.zeros((len(tokens), longest), np.int64)
    mask = np.zeros((len(tokens), longest), np.bool_)
    for k, row in enumerate(tokens):
        numbers[k, : len(row)], mask[k, : len(row)] = row, True
    return Texts(torch.from_numpy(numbers), torch.from_numpy(mask))


class BatchPlan:
    """The batches of every epoch: the same for the same seed, whatever ran before.

    random: every pair once an epoch, in random order; the rest that fills no batch is left out, another each epoch.
    seeded: half of a batch is drawn so; each of these pairs then brings a pair whose caption the shards keep as
    relevant to its image (top or a window of a measure, not its own), so that graded positives meet. A partner is
    seen as often as it is drawn, and an epoch has as many batches as a random one.
    Raises InputError when there are fewer pairs than a batch takes, or for "seeded" without shards.
    """

    def __init__(
        self, pairs: Pairs, batch_size: int, composition: Composition = "random", seed: int = 0,
        partners: SampledRelevance | None = None,
    ) -> None:  # fmt: skip
        if len(pairs.rows) < batch_size:
            problem = f"a batch of {batch_size} from {len(pairs.rows)} pairs"
            raise InputError(problem, remedy="lower train.batch_size, or take more of the data")
        if composition == "seeded" and partners is None:
            raise InputError("seeded batches need the sampled captions of each image", remedy="give --shards")
        self.pairs, self.size, self.seed = pairs, batch_size, seed
        self.partners = partners if composition == "seeded" else None

    @property
    def batches_an_epoch(self) -> int:
        return len(self.pairs.rows) // self.size

    def epoch(self, number: int) -> list[np.ndarray]:
        """Caption rows [batch_size] of each batch of an epoch."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(self.pairs.rows)
        if self.partners is None:
            return list(order[: self.batches_an_epoch * self.size].reshape(-1, self.size))
        allowed = np.zeros(self.pairs.captions.n_captions, np.bool_)
        allowed[self.pairs.rows] = True
        return [self._seeded(np.roll(order, -k * self.size), allowed, rng) for k in range(self.batches_an_epoch)]

    def _seeded(self, order: np.ndarray, allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Seeds from the front of `order`, each with a partner where one is left."""
        batch: list[int] = []
        taken: set[int] = set()
        for row in order:
            if len(batch) == self.size:
                break
            if row in taken:
                continue
            batch.append(int(row))
            taken.add(int(row))
            partner = self._partner(int(row), taken, allowed, rng)
            if partner is not None and len(batch) < self.size:
                batch.append(partner)
                taken.add(partner)
        return np.array(batch)

    def _partner(self, row: int, taken: set[int], allowed: np.ndarray, rng: np.random.Generator) -> int | None:
        assert self.partners is not None
        image = int(self.pairs.captions.owner[row])
        captions, _, reasons = self.partners.of_image(image)
        fits = (reasons >> PARTNERS > 0) & allowed[captions] & (self.pairs.captions.owner[captions] != image)
        free = [c for c in captions[fits].tolist() if c not in taken]
        return free[rng.integers(len(free))] if free else None


def ahead(make: Callable[[_T], Batch], items: Iterable[_T], depth: int = 2) -> Iterator[Batch]:
    """`make` of each item in order, `depth` of them made ahead by a thread; its errors come out here."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(depth)
    stopped = threading.Event()

    def put(value: Batch | BaseException | None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(value, timeout=0.1)
                return

    def work() -> None:
        try:
            for item in items:
                if stopped.is_set():
                    return
                put(make(item))
            put(None)
        except BaseException as error:  # handed to the loop, which raises it
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (batch := ready.get()) is not None:
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        stopped.set()
        thread.join()
