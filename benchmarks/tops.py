"""`capgrade bench tops`: exact tops (`capgrade.pipelines.measures.tops`) beside all pairs, block by block in one run.

Random blocks of images are taken, and each is done both ways, one after the other: other work on the machine slows
both. Then it is done both ways on one thread, whose processor time says what the work is, whoever else works there.
Seconds are those of the images taken. The exponent is of the seconds of all images, over corpora of an eighth, a
quarter, half and all of the images: 2 where every pair is scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import get_num_threads, set_num_threads
from threadpoolctl import threadpool_limits

from capgrade.pipelines.measures import Fitted, Measure, choose
from capgrade.pipelines.measures.mixture import FittedMixture, Mixture
from capgrade.pipelines.measures.sbert import FittedSbert, first_of_text
from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.find import finder
from capgrade.pipelines.sampling.plan import id_keys, image_seeds
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.progress import progress
from capgrade.schemas.ties import Ties

BLOCK = 64  # images
SHARES = (1 / 8, 1 / 4, 1 / 2, 1)  # of the images, for the exponent


def bench(
    captions_dir: Path, names: tuple[str, ...], params: MeasuresParams, split: str | None, top: int, images: int
) -> dict[str, Any]:
    """By measure: images, seconds, all_pairs_seconds, ratio, the same of one thread, pairs (of these images),
    pairs_touched, same, all_pairs_exponent. `exponent`: of each measure, of their time."""
    captions = read_captions(captions_dir, split)
    found: dict[str, Any] = {}
    exponents: dict[str, float] = {}
    chosen = choose(names, params)
    with progress("tops, and those of all pairs", len(chosen) * len(SHARES)) as advance:
        for name, measure in chosen.items():
            whole, sizes = measure.fit(captions), []
            for share in SHARES:
                part = part_of(captions, share)
                sizes.append(_timed(_fitted(measure, whole, captions, part), part, top, images))
                advance()
            found[name] = {**sizes[-1], "all_pairs_exponent": _exponent(sizes, "all_pairs_seconds")}
            exponents[name] = _exponent(sizes, "seconds")
    return {**found, "exponent": exponents}


def part_of(captions: Captions, share: float) -> Captions:
    """The captions of a random share of the images, which stay in their order."""
    if share == 1:
        return captions
    count = max(1, round(share * captions.n_images))
    kept = np.zeros(captions.n_images, bool)
    kept[np.random.default_rng(0).permutation(captions.n_images)[:count]] = True
    table = captions.table.filter(pa.array(kept[captions.owner]))
    return Captions(table.combine_chunks(), captions.split, captions.tokenizer, f"{share} of {captions.digest}")


def rows_of(captions: Captions, part: Captions) -> np.ndarray:
    """int64: where the captions of a part stand."""
    row = {caption: k for k, caption in enumerate(captions.caption_ids)}
    return np.array([row[caption] for caption in part.caption_ids])


def _fitted(measure: Measure, whole: Fitted, captions: Captions, part: Captions) -> Fitted:
    """The measure fitted on a part of the captions; nothing is encoded again."""
    if part is captions:
        return whole
    if isinstance(whole, FittedMixture) and isinstance(measure, Mixture):
        parts = {name: _fitted(measure.parts[name], one, captions, part) for name, one in whole.parts.items()}
        return FittedMixture(parts, whole.weights)
    if not isinstance(whole, FittedSbert):
        return measure.fit(part)
    kept = whole.embeddings[rows_of(captions, part)]
    return FittedSbert(part.ref_ptr, part.refs, kept, first_of_text(part.texts), whole.references, whole.leave_out)


def _timed(fitted: Fitted, captions: Captions, top: int, images: int) -> dict[str, Any]:
    ties = Ties(image_seeds(0, id_keys(captions.image_ids)), id_keys(captions.caption_ids))
    find = finder(fitted, ties)
    some = np.sort(np.random.default_rng(1).permutation(captions.n_images)[:images])
    warm = some[:2]
    find.tops(warm, top), every_pair(fitted, warm, top, ties)  # kernels are compiled, indexes made
    seconds, all_pairs, touched, same, on_one = 0.0, 0.0, 0, True, np.zeros(2)
    for at in range(0, len(some), BLOCK):
        block = some[at : at + BLOCK]
        start = time.perf_counter()
        mine = find.tops(block, top)
        middle = time.perf_counter()
        full = every_pair(fitted, block, top, ties)
        all_pairs += time.perf_counter() - middle
        seconds += middle - start
        on_one += on_one_thread(partial(find.tops, block, top), partial(every_pair, fitted, block, top, ties))
        touched += int(mine.pairs.sum())
        same &= np.array_equal(mine.rows, full.rows) and mine.values.tobytes() == full.values.tobytes()
    return {
        "images": len(some),
        "of_images": captions.n_images,
        "captions": captions.n_captions,
        "seconds": seconds,
        "all_pairs_seconds": all_pairs,
        "ratio": all_pairs / seconds,
        "thread_seconds": on_one[0],
        "all_pairs_thread_seconds": on_one[1],
        "thread_ratio": on_one[1] / on_one[0],
        "pairs": len(some) * captions.n_captions,
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


def _exponent(sizes: list[dict[str, Any]], key: str) -> float:
    """Of the seconds of all images."""
    images = [found["of_images"] for found in sizes]
    return exponent(images, [found[key] * found["of_images"] / found["images"] for found in sizes])


def exponent(images: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log images, by least squares; NaN for one number of images."""
    return float(np.polyfit(np.log(images), np.log(seconds), 1)[0]) if len(set(images)) > 1 else float("nan")


def show(result: dict[str, Any]) -> str:
    """A line a measure."""
    return "\n".join(
        f"{name}: {found['images']:,} images x {found['captions']:,} captions in {found['seconds']:.2f} s, all pairs "
        f"{found['all_pairs_seconds']:.2f} s ({found['ratio']:.1f} times, in processor time of one thread "
        f"{found['thread_ratio']:.1f}); {found['pairs_touched']:,} of "
        f"{found['pairs']:,} pairs touched; {'the same' if found['same'] else 'NOT THE SAME'}; grows with the power "
        f"{result['exponent'][name]:.2f}, all pairs {found['all_pairs_exponent']:.2f}"
        for name, found in result.items()
        if name != "exponent"
    )
