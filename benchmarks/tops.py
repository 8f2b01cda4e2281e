"""`capgrade bench tops`: a measure's search for the best captions beside all pairs, block by block in one run.

Random blocks of images are taken, and each is done both ways, one after the other: other work on the machine slows
both. Then it is done both ways on one thread, whose processor time says what the work is, whoever else works there.
Seconds are those of the images taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numba import get_num_threads, set_num_threads
from threadpoolctl import threadpool_limits

from capgrade.pipelines.measures import Fitted, choose
from capgrade.pipelines.measures.tops import every_pair, find_tops
from capgrade.pipelines.sampling.plan import id_keys, image_seeds
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.progress import progress
from capgrade.schemas.ties import Ties

BLOCK = 64  # images


def bench(
    captions_dir: Path, names: tuple[str, ...], params: MeasuresParams, split: str | None, top: int, images: int
) -> dict[str, Any]:
    """By measure: images, seconds, all_pairs_seconds, ratio, the same of one thread, pairs (of these images),
    pairs_touched, same."""
    captions = read_captions(captions_dir, split)
    chosen = choose(names, params)
    some = np.sort(np.random.default_rng(1).permutation(captions.n_images)[:images])
    blocks = [some[at : at + BLOCK] for at in range(0, len(some), BLOCK)]
    found: dict[str, Any] = {}
    with progress("tops, and those of all pairs", len(chosen) * len(blocks)) as advance:
        for name, measure in chosen.items():
            found[name] = _timed(measure.fit(captions), captions, top, blocks, advance)
    return found


def _timed(
    fitted: Fitted, captions: Captions, top: int, blocks: list[np.ndarray], advance: Callable[[int], None]
) -> dict[str, Any]:
    ties = Ties(image_seeds(0, id_keys(captions.image_ids)), id_keys(captions.caption_ids))
    warm = blocks[0][:2]
    find_tops(fitted, warm, top, ties), every_pair(fitted, warm, top, ties)  # kernels are compiled, indexes made
    seconds, all_pairs, touched, same, on_one = 0.0, 0.0, 0, True, np.zeros(2)
    for block in blocks:
        start = time.perf_counter()
        mine = find_tops(fitted, block, top, ties)
        middle = time.perf_counter()
        full = every_pair(fitted, block, top, ties)
        all_pairs += time.perf_counter() - middle
        seconds += middle - start
        on_one += on_one_thread(*(partial(way, fitted, block, top, ties) for way in (find_tops, every_pair)))
        touched += int(mine.pairs.sum())
        same &= np.array_equal(mine.rows, full.rows) and mine.values.tobytes() == full.values.tobytes()
        advance(1)
    images = sum(map(len, blocks))
    return {
        "images": images,
        "captions": captions.n_captions,
        "seconds": seconds,
        "all_pairs_seconds": all_pairs,
        "ratio": all_pairs / seconds,
        "thread_seconds": on_one[0],
        "all_pairs_thread_seconds": on_one[1],
        "thread_ratio": on_one[1] / on_one[0],
        "pairs": images * captions.n_captions,
        "pairs_touched": touched,
        "same": same,
    }


def on_one_thread(*ways: Callable[[], Any]) -> np.ndarray:
    """Processor seconds of each, float64 [ways]."""
    threads, seconds = get_num_threads(), np.empty(len(ways))
    set_num_threads(1)
    try:
        with threadpool_limits(1):
            for k, way in enumerate(ways):
                start = time.process_time()  # a product runs on a pool's thread, however many there are
                way()
                seconds[k] = time.process_time() - start
    finally:
        set_num_threads(threads)
    return seconds


def show(result: dict[str, Any]) -> str:
    """A line a measure."""
    return "\n".join(
        f"{name}: {found['images']:,} images x {found['captions']:,} captions in {found['seconds']:.2f} s, all pairs "
        f"{found['all_pairs_seconds']:.2f} s ({found['ratio']:.1f} times, in processor time of one thread "
        f"{found['thread_ratio']:.1f}); {found['pairs_touched']:,} of "
        f"{found['pairs']:,} pairs touched; {'the same' if found['same'] else 'NOT THE SAME'}"
        for name, found in result.items()
    )
