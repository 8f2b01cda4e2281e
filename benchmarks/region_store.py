"""How long one image of a large set takes to read: `python -m capgrade.benchmarks.region_store DIR --images 100000`.

Writes made regions into the folder (images x boxes x dim x 2 bytes), opens it, and reads images drawn by chance, by
their id, each value touched once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions, write_regions

READS = 2000


def made(images: int, boxes: int, dim: int) -> Iterator[Regions]:
    """Images that differ in their first value only, which is quick to make."""
    random = np.random.default_rng(0)
    features = random.random((boxes, dim), np.float32).astype(np.float16)
    corners = np.tile(np.array([10, 10, 100, 100], np.float32), (boxes, 1))
    for k in range(images):
        features[0, 0] = k % 2048
        yield Regions(f"{k:012d}", 640, 480, corners, features.copy())


def bench(folder: Path, images: int, boxes: int, dim: int) -> dict[str, float]:
    """Seconds to write and to open, and milliseconds of one read: the median, 99 of 100, and all values touched."""
    start = time.perf_counter()
    write_regions(folder, made(images, boxes, dim))
    written = time.perf_counter()
    store = RegionStore(folder)
    store.index(f"{images - 1:012d}")
    opened = time.perf_counter()
    viewed, touched = [], []
    for k in np.random.default_rng(1).integers(0, images, READS):
        begin = time.perf_counter()
        found = store[f"{k:012d}"]
        middle = time.perf_counter()
        total = float(found.features.astype(np.float32).sum())
        touched.append(time.perf_counter() - begin)
        viewed.append(middle - begin)
        if found.features[0, 0] != k % 2048 or not np.isfinite(total):
            raise RuntimeError(f"image {k} is another one")
    return {
        "write_s": written - start,
        "open_s": opened - written,
        "median_ms": float(np.median(viewed)) * 1000,
        "p99_ms": float(np.quantile(viewed, 0.99)) * 1000,
        "median_copied_ms": float(np.median(touched)) * 1000,
        "p99_copied_ms": float(np.quantile(touched, 0.99)) * 1000,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--boxes", type=int, default=36)
    parser.add_argument("--dim", type=int, default=128)
    given = parser.parse_args()
    for name, value in bench(given.folder, given.images, given.boxes, given.dim).items():
        print(f"{name:17s} {value:.4f}")
