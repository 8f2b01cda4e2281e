"""Pictures decoded and resized in other processes while the model works, in batches of one prepared
size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from capgrade.pictures.picture import Picture
from capgrade.schemas.errors import InputError

_AHEAD = 2  # batches that a process has ready before the model asks

# A uint8 (H, W, 3) RGB picture -> float32 (3, h, w) and the scale h / H.
Prepare = Callable[[np.ndarray], tuple[Tensor, float]]


@dataclass(frozen=True)
class PictureBatch:
    """Pictures of one shard, by their numbers in the list, that are prepared together."""

    shard: int
    numbers: tuple[int, ...]
    last: bool  # of its shard


@dataclass(frozen=True)
class Prepared:
    """Pictures of one prepared size: numbers, (B, 3, h, w), scales, original (width, height),
    SHA-256 of the bytes."""

    numbers: tuple[int, ...]
    images: Tensor
    scales: tuple[float, ...]
    sizes: tuple[tuple[int, int], ...]
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Decoded:
    """A batch ready for the model, and what is wrong with the pictures that are not in it."""

    batch: PictureBatch
    prepared: list[Prepared]
    problems: dict[int, str]

    def pin_memory(self) -> Decoded:
        """What a DataLoader calls in a thread of its own: the pictures in pinned memory, for a
        GPU's copy."""
        return replace(
            self, prepared=[replace(one, images=one.images.pin_memory()) for one in self.prepared]
        )


class Decoder(Dataset):
    """Batch -> Decoded; what the worker processes run."""

    def __init__(self, pictures: Sequence[Picture], prepare: Prepare) -> None:
        self.pictures, self.prepare = pictures, prepare

    def __getitem__(self, batch: PictureBatch) -> Decoded:
        # One group, but for a header that told another size than the pixels have.
        groups: dict[torch.Size, list[tuple]] = {}
        problems = {}
        for number in batch.numbers:
            try:
                rgb, digest = self.pictures[number].decode()
                image, scale = self.prepare(rgb)
            except InputError as error:
                problems[number] = error.problem
                continue
            size = rgb.shape[1], rgb.shape[0]
            groups.setdefault(image.shape, []).append((number, image, scale, size, digest))
        columns = [tuple(zip(*rows, strict=True)) for rows in groups.values()]
        prepared = [
            Prepared(numbers, torch.stack(images), *others) for numbers, images, *others in columns
        ]
        return Decoded(batch, prepared, problems)


def plan(
    pictures: Sequence[Picture], shards: Iterable[tuple[int, range]], prepare: Prepare, size: int
) -> Iterator[PictureBatch]:
    """Batches of at most `size` pictures of one prepared size, shard after shard, from the headers
    alone.

    They follow from the list and the settings, never from what other processes do or an earlier run
    did: the same picture is always seen in the same company, so that its features are the same to
    the last bit.
    """
    for shard, numbers in shards:
        groups: dict[tuple[int, int] | None, list[int]] = {}
        for number in numbers:
            groups.setdefault(_prepared_size(pictures[number], prepare), []).append(number)
        batches = [
            tuple(group[at : at + size])
            for group in groups.values()
            for at in range(0, len(group), size)
        ]
        yield from (PictureBatch(shard, batch, batch is batches[-1]) for batch in batches)


def _prepared_size(picture: Picture, prepare: Prepare) -> tuple[int, int] | None:
    """What `prepare.size` says of the picture; without such a method the original size, which
    decides it as well."""
    original = picture.size()
    predict = getattr(prepare, "size", None)
    return original if original is None or predict is None else predict(*original)


def decoded(
    pictures: Sequence[Picture],
    batches: Iterable[PictureBatch],
    prepare: Prepare,
    *,
    workers: int,
    pinned: bool = False,
) -> Iterator[Decoded]:
    """Each batch decoded, in order; by `workers` processes, or by this one when 0. `pinned`: in
    memory that a GPU copies from while the processor goes on.

    Raises InputError when the system ends a worker process, as it does when memory runs out.
    """
    processes = {"multiprocessing_context": "spawn", "prefetch_factor": _AHEAD} if workers else {}
    loader: DataLoader = DataLoader(
        Decoder(pictures, prepare),
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
