"""The choice of training pairs, the neighbours of seeded batches, and batches that are made
ahead."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np

from capgrade.labels.batches import Neighbours
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.data.pairs import Pairs
from capgrade.trainer.data.relevance import LookedUp


def find_neighbours(pairs: Pairs, labels: LookedUp | None) -> Neighbours:
    """The training captions that shards sampled as relevant to each image. InputError where there
    is none."""
    if labels is None:
        problem = "seeded batches need the sampled captions of each image"
        raise InputError(problem, remedy="give --shards")
    allowed = np.zeros(pairs.captions.n_captions, np.bool_)
    allowed[pairs.rows] = True
    neighbours = Neighbours.kept_for(labels.labels, labels.measure, allowed)
    if not np.diff(neighbours.start)[pairs.captions.owner[pairs.rows]].any():
        problem = "no caption is sampled as relevant to another image"
        remedy = "raise shards.top, or train.composition=random"
        raise InputError(problem, file=labels.labels.file, remedy=remedy)
    return neighbours


def sample_rows(
    captions: Captions, images: float = 1.0, captions_per_image: int | None = None, seed: int = 0
) -> np.ndarray:
    """The rising caption rows, int64, of a share of a split's images, and of so many captions of
    each (None: all).

    A hash of the seed and the id chooses them, so that a smaller share is part of a larger one. The
    number of images is rounded down, as in SAM: 3 % of 113,287 are 3,398.
    """

    def keys(ids: Sequence[str]) -> np.ndarray:
        texts = (f"{seed} {item}".encode() for item in ids)
        hashes = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
        return np.frombuffer(b"".join(hashes), np.uint64)

    n_images = max(1, int(images * captions.n_images + 1e-9))
    chosen = np.argsort(keys(captions.image_ids), kind="stable")[:n_images]
    rows = np.flatnonzero(np.isin(captions.owner, chosen))
    if captions_per_image is None:
        return rows
    order = np.lexsort((keys([captions.caption_ids[r] for r in rows]), captions.owner[rows]))
    owners = captions.owner[rows][order]
    place = np.arange(len(rows)) - np.searchsorted(owners, owners)  # rank within the image
    return np.sort(rows[order[place < captions_per_image]])


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
    remaining, futures = iter(items), deque[Future[_Out]]()
    pool = ThreadPoolExecutor(workers)
    try:
        futures.extend(pool.submit(make, item) for item in islice(remaining, workers + 1))
        while futures:
            result = futures.popleft().result()
            futures.extend(pool.submit(make, item) for item in islice(remaining, 1))
            yield result
    finally:
        # It must not wait: after an error in the loop the garbage collector closes this iterator,
        # perhaps under a lock that a thread needs.
        pool.shutdown(wait=False, cancel_futures=True)
