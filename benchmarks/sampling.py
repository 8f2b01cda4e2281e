"""The samplers of `shards` alone, on one core: processor time of an image-caption pair while they are empty and later.

The values of a few images are computed first and offered several times, each time as those of captions of other ids.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numba
import numpy as np

from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.sampling.plan import Plan, Samples, id_keys
from capgrade.pipelines.shards import Source
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams

IMAGES = 32


def bench(captions_dir: Path, split: str | None, times: int) -> list[dict[str, float]]:
    """After each time: captions seen, nanoseconds of a pair among them, and of a pair of this time."""
    source = Source.of(captions_dir, ShardsParams(split=split), MeasuresParams())
    images = np.arange(min(IMAGES, source.captions.n_images))
    values = np.stack([measure.fit(source.captions).score(images) for measure in source.chosen.values()])
    timed(source.plan, values, 1)  # kernels are compiled
    seconds, pairs = np.array(timed(source.plan, values, times)), values[0].size
    seen = np.arange(1, times + 1)
    return [
        {
            "captions": int(n * source.captions.n_captions),
            "ns_per_pair": float(whole),
            "ns_per_pair_of_last": float(last),
        }
        for n, whole, last in zip(seen, np.cumsum(seconds) / seen / pairs * 1e9, seconds / pairs * 1e9, strict=True)
    ]


def timed(plan: Plan, values: np.ndarray, times: int) -> list[float]:
    """Processor seconds of each time that values float32 [measures, images, captions] are offered to empty samples."""
    measures, images, n = values.shape
    samples = Samples(plan, id_keys([f"image {k}" for k in range(images)]), [np.empty(0, np.int64)] * images, measures)
    chunks = [np.ascontiguousarray(values[:, :, at : at + CHUNK]) for at in range(0, n, CHUNK)]
    seconds = []
    for k in range(times):
        keys, start = id_keys([f"caption {row}" for row in range(k * n, (k + 1) * n)]), time.process_time()
        for at, chunk in zip(range(0, n, CHUNK), chunks, strict=True):
            samples.offer(k * n + at, keys[at : at + CHUNK], chunk)
        seconds.append(time.process_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--split")
    parser.add_argument("--times", type=int, default=6, help="How often the values are offered.")
    args = parser.parse_args()
    numba.set_num_threads(1)
    try:
        found = bench(args.captions, args.split, args.times)
    except InputError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
