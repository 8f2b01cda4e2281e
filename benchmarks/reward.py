"""How long `CiderReward` takes for a batch of self-critical training."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from capgrade.pipelines.measures.scores.frequencies import Frequencies
from capgrade.reward import CiderReward
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError

IMAGES, CANDIDATES, BATCHES = 50, 10, 20


def bench(captions: Captions) -> dict[str, Any]:
    """Milliseconds per batch, median and best of BATCHES after one that warms up. Document frequencies are of all
    references. A candidate is a random caption without its last word; each batch has new ones. InputError for fewer
    images than a batch has."""
    if captions.n_images < IMAGES:
        raise InputError(f"{captions.n_images} images, a batch has {IMAGES}", remedy="give more captions")
    reward, rng = (
        CiderReward(Frequencies.of(references_of(captions, range(captions.n_images)))),
        np.random.default_rng(0),
    )
    seconds = []
    for _ in range(BATCHES + 1):
        images = rng.choice(captions.n_images, IMAGES, replace=False)
        batch = [[_sampled(captions, rng) for _ in range(CANDIDATES)] for _ in images]
        references = references_of(captions, images)
        start = time.perf_counter()
        reward(batch, references)
        seconds.append(1000 * (time.perf_counter() - start))
    found = {"ms": statistics.median(seconds[1:]), "best_ms": min(seconds[1:])}
    sizes = {"images": IMAGES, "candidates": CANDIDATES, "references": captions.n_captions / captions.n_images}
    return {**found, **sizes}


def references_of(captions: Captions, images: Any) -> list[list[str]]:
    """The captions of each of these images."""
    return [
        [captions.texts[row] for row in captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]]] for i in images
    ]


def _sampled(captions: Captions, rng: np.random.Generator) -> str:
    words = captions.texts[rng.integers(captions.n_captions)].split()
    return " ".join(words[:-1] if len(words) > 1 else words)


def show(found: dict[str, Any]) -> str:
    return (
        f"{found['ms']:.2f} ms per batch (best {found['best_ms']:.2f}): {found['candidates']} candidates for each of "
        f"{found['images']} images with {found['references']:.1f} references"
    )
