"""Sampled shards against brute force: whole rows of every measure, every sample chosen from them by sorting, and the
values of what is kept by the kernels that look single captions up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from capgrade.benchmarks.brute_force import samples_of
from capgrade.pipelines.measures import Fitted, choose
from capgrade.pipelines.sampling.plan import id_keys
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.progress import progress
from capgrade.schemas.shards import Shards


def check(captions: Captions, shards: Shards, count: int, some: range | None = None) -> dict[str, Any]:
    """Random blocks of `count` images or more against brute force: captions, reasons and weights must be the same; by
    how much values differ from those of the kernels for single captions. InputError names the first image that differs.

    `some`: the blocks that the shards hold; None: all.
    """
    made = shards.metadata["params"]
    params = ShardsParams.model_validate(made["shards"])
    chosen = choose(params.measures, MeasuresParams.model_validate(made["measures"]))
    fitted = {name: measure.fit(captions) for name, measure in chosen.items()}
    bounds = [(measure.low, measure.high) for measure in chosen.values()]
    keys, size, largest, checked = id_keys(captions.caption_ids), made["shards"]["block_images"], 0.0, 0
    held = range(-(-captions.n_images // size)) if some is None else some
    blocks = np.random.default_rng(0).permutation(held)[: -(-count // size)]
    with progress("brute force", len(blocks)) as advance:
        for block in np.sort(blocks).tolist():
            images = np.arange(block * size, min((block + 1) * size, captions.n_images))
            stored = _stored(shards, images)
            values = np.stack([fitted[name].score(images) for name in params.measures])
            for k, image in enumerate(images.tolist()):
                row = stored[image]
                if not samples_of(captions, keys, image, values[:, k], params, bounds).same_as(row):
                    problem = f"image '{row['image_id']}' keeps other captions than brute force"
                    raise InputError(problem, file=shards.folder)
                largest = max(largest, _difference(fitted, image, row))
            checked += len(images)
            advance()
    return {"checked_rows": checked, "max_abs_diff": largest}


def _difference(fitted: Mapping[str, Fitted], image: int, row: dict[str, Any]) -> float:
    """Largest of the stored values and those that the kernels for single captions give, in any order."""
    order = np.random.default_rng(image).permutation(len(row["captions"]))
    kept = np.array(row["captions"])[order]
    found = [
        np.abs(one.score(np.array([image]), kept)[0] - np.array(row[name], np.float32)[order]).max()
        for name, one in fitted.items()
    ]
    return float(max(found))


def _stored(shards: Shards, images: np.ndarray) -> dict[int, dict[str, Any]]:
    """Rows of a block of images, by image."""
    found = {}
    for batch in shards.batches():
        if batch["image"][0].as_py() <= images[-1] and batch["image"][-1].as_py() >= images[0]:
            found.update({row["image"]: row for row in batch.to_pylist()})
    return found
