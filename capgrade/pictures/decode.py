"""Pictures decoded and resized in other processes while the model works, in batches of one prepared
size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Listener

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from capgrade.pictures.picture import Picture
from capgrade.schemas.errors import InputError

_AHEAD = 2  # batches that each process decodes ahead of the model

# A uint8 (H, W, 3) RGB picture -> float32 (3, h, w) and the scale h / H.
Prepare = Callable[[np.ndarray], tuple[Tensor, float]]


@dataclass(frozen=True)
class PictureBatch:
    """Pictures of one shard that are prepared together."""

    shard: int
    pictures: tuple[Picture, ...]
    last: bool  # of its shard


@dataclass(frozen=True)
class PreparedPictures:
    """Pictures of one prepared size: their ids, (B, 3, h, w), scales, original (width, height),
    SHA-256 of the bytes."""

    image_ids: tuple[str, ...]
    images: Tensor
    scales: tuple[float, ...]
    sizes: tuple[tuple[int, int], ...]
    digests: tuple[str, ...]


@dataclass(frozen=True)
class DecodedBatch:
    """A batch ready for the model, and by image id what is wrong with the pictures that are not in
    it."""

    batch: PictureBatch
    prepared: list[PreparedPictures]
    problems: dict[str, str]

    def pin_memory(self) -> DecodedBatch:
        """The batch with its pictures in pinned memory. A DataLoader calls this in a thread of its
        own."""
        return replace(
            self,
            prepared=[
                replace(pictures, images=pictures.images.pin_memory()) for pictures in self.prepared
            ],
        )


class _Decoder(Dataset):
    """PictureBatch -> DecodedBatch, in the worker processes."""

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare

    def __getitem__(self, batch: PictureBatch) -> DecodedBatch:
        # There are several groups only where a header has another size than the pixels.
        groups: dict[torch.Size, list[tuple]] = {}
        problems = {}
        for picture in batch.pictures:
            try:
                rgb, digest = picture.decode()
                image, scale = self.prepare(rgb)
            except InputError as error:
                problems[picture.image_id] = error.problem
                continue
            size = rgb.shape[1], rgb.shape[0]
            rows = groups.setdefault(image.shape, [])
            rows.append((picture.image_id, image, scale, size, digest))
        prepared = []
        for rows in groups.values():
            image_ids, images, *others = zip(*rows, strict=True)
            prepared.append(PreparedPictures(image_ids, torch.stack(images), *others))
        return DecodedBatch(batch, prepared, problems)


def plan_batches(
    shards: Iterable[Sequence[Picture]], prepare: Prepare, size: int
) -> Iterator[PictureBatch]:
    """Batches of at most `size` pictures of one prepared size, shard after shard, from the headers
    alone. They depend on the list and the settings only, not on other processes or earlier runs: a
    picture is always in the same batch, so that its features are the same to the last bit."""
    # A `prepare` without the method is given pictures of one original size, on which the prepared
    # size depends.
    predict = getattr(prepare, "size", None)
    for shard, pictures in enumerate(shards):
        groups: dict[tuple[int, int] | None, list[Picture]] = {}
        for picture in pictures:
            sides = picture.size()
            if sides is not None and predict is not None:
                sides = predict(*sides)
            groups.setdefault(sides, []).append(picture)
        batches = []
        for group in groups.values():
            for start in range(0, len(group), size):
                batches.append(tuple(group[start : start + size]))
        for batch in batches:
            yield PictureBatch(shard, batch, batch is batches[-1])


def _require_sockets() -> None:
    """InputError where the folder of temporary files has a path too long for a socket. Processes
    hand tensors over by sockets; an error there leaves whoever waits for a tensor waiting."""
    try:
        Listener().close()
    except OSError as error:
        problem = f"processes that decode pictures cannot hand them over: {error}"
        remedy = "set TMPDIR to a folder of a shorter path, or type --set regions.workers=0"
        raise InputError(problem, file=tempfile.gettempdir(), remedy=remedy) from error


def decode_pictures(
    batches: Iterable[PictureBatch], prepare: Prepare, *, workers: int, pinned: bool = False
) -> Iterator[DecodedBatch]:
    """Each batch decoded, in order, by `workers` processes, or by this one for 0. `pinned`: in
    pinned memory, from which a GPU copies while the processor goes on. Raises InputError when the
    system ends a worker process, as it does when memory runs out, and where no process can hand
    over what it decodes."""
    if workers:
        _require_sockets()
    processes = {"multiprocessing_context": "spawn", "prefetch_factor": _AHEAD} if workers else {}
    loader: DataLoader = DataLoader(
        _Decoder(prepare),
        batch_size=None,
        sampler=batches,
        num_workers=workers,
        pin_memory=pinned,
        **processes,  # type: ignore[arg-type]
    )
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        remedy = (
            "run again to go on; if memory ran out, with a smaller regions.workers or regions.batch"
        )
        raise InputError(
            "a process that decodes pictures was ended from outside", remedy=remedy
        ) from error
