"""Which pairs of a split are learnt from, and in what company; and batches made ahead of the
loop."""

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


def partners(pairs: Pairs, labels: LookedUp | None) -> Neighbours:
    """The captions that shards keep as relevant to each image, of those that are learnt from.
    InputError for none."""
    if labels is None:
        raise InputError(
            "seeded batches need the sampled captions of each image", remedy="give --shards"
        )
    allowed = np.zeros(pairs.captions.n_captions, np.bool_)
    allowed[pairs.rows] = True
    neighbours = Neighbours.kept_for(labels.labels, labels.measure, allowed)
    if not np.diff(neighbours.start)[pairs.captions.owner[pairs.rows]].any():
        problem = "no caption is sampled as relevant to another image"
        raise InputError(
            problem, file=labels.labels.file, remedy="raise shards.top, or train.composition=random"
        )
    return neighbours


def rows_of_share(
    captions: Captions, images: float = 1.0, captions_per_image: int | None = None, seed: int = 0
) -> np.ndarray:
    """The caption rows, int64, rising, of a share of a split's images, and so many captions of each
    (None: all).

    Chosen by a hash of the seed and the id: a smaller share is part of every larger one, on any
    machine. The number is rounded down, as SAM has it: 3 % of 113,287 images are 3,398.
    """

    def keys(ids: Sequence[str]) -> np.ndarray:
        texts = (f"{seed} {i}".encode() for i in ids)
        return np.frombuffer(
            b"".join(hashlib.blake2b(t, digest_size=8).digest() for t in texts), np.uint64
        )

    chosen = np.argsort(keys(captions.image_ids), kind="stable")[
        : max(1, int(images * captions.n_images + 1e-9))
    ]
    rows = np.flatnonzero(np.isin(captions.owner, chosen))
    if captions_per_image is None:
        return rows
    order = np.lexsort((keys([captions.caption_ids[r] for r in rows]), captions.owner[rows]))
    owners = captions.owner[rows][order]
    place = np.arange(len(rows)) - np.searchsorted(owners, owners)  # rank within the image
    return np.sort(rows[order[place < captions_per_image]])


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def prefetched(
    make: Callable[[_In], _Out], items: Iterable[_In], workers: int = 1
) -> Iterator[_Out]:
    """`make` of each item, in order, by `workers` threads, one more made ahead than there are
    threads; without workers, when asked.

    An error comes out at its item's turn. Closing the iterator leaves what has not been begun
    undone.
    """
    if not workers:
        yield from map(make, items)
        return
    rest, waiting = iter(items), deque[Future[_Out]]()
    pool = ThreadPoolExecutor(workers)
    try:
        waiting.extend(pool.submit(make, item) for item in islice(rest, workers + 1))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(rest, 1))
            yield made
    # at once: where an error stopped the loop, the garbage collector closes this, under any lock
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
