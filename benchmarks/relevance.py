"""Pairs per second of each measure beside the libraries people use today, and the largest
difference of values.

Ours scores the whole matrix, a block of images at a time into a reused block. The peer scores its
pairs one by one (pycocoevalcap), or the matrix product alone (Sentence-BERT, where both start from
the same embeddings); its pairs are all own pairs and as many random ones as asked for, and on them
the values are compared. `all` are the named measures over all pairs beside the float32 product of
as many pairs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from capgrade.benchmarks.harness import COCO, Asked, Rows, coco_scorer, once, product_seconds
from capgrade.benchmarks.shards import embedded
from capgrade.measures import Fitted, choose
from capgrade.measures.bleu import FittedBleu
from capgrade.measures.sbert import FittedSbert
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import progress

_BLOCK = 256
REPEATS = 3
# seconds of a pass over the matrix; a slower measure is timed on the blocks it gets through
BUDGET = 20.0
_DENSE = 1e7  # pairs a second from which whole rows are scored to compare a few of their values


@dataclass(frozen=True)
class Peer:
    """A peer's name, speed in image-caption pairs per second, and values float64 [n] on `pairs`
    int64 [n, 2]."""

    name: str
    pairs_per_s: float
    pairs: np.ndarray
    values: np.ndarray


def bench(asked: Asked) -> Rows:
    """Of each measure on a device and its peer on the processor: pairs_per_s, peer,
    peer_pairs_per_s, ratio, max_abs_diff, pairs_compared; and of all of them the seconds of all
    pairs beside those of the product."""
    captions = read_captions(asked.captions, asked.bench.split)
    result, speeds = Rows(), []
    for name, measure in choose(asked.measures, asked.params.measures).items():
        if name not in PEERS:
            raise InputError(
                f"measure '{name}' has no peer", remedy=f"choose from: {', '.join(PEERS)}"
            )
        fitted = measure.fit(captions)
        there = _on_device(fitted, asked.params.relevance.device)
        speed = _speed(there, captions)
        speeds.append(speed)
        peer = PEERS[name](captions, fitted, asked.bench.pairs)
        difference = np.abs(_values(there, peer.pairs, dense=speed > _DENSE) - peer.values).max()
        result[name] = {
            "pairs_per_s": speed,
            "peer": peer.name,
            "peer_pairs_per_s": peer.pairs_per_s,
            "ratio": speed / peer.pairs_per_s,
            "max_abs_diff": float(difference),
            "pairs_compared": len(peer.pairs),
        }
    return {**result, "all": _beside_the_product(captions, speeds)}


def all_pairs(asked: Asked) -> dict[str, float]:
    """The measures over all pairs beside the product, without their peers."""
    captions = read_captions(asked.captions, asked.bench.split)
    with embedded(captions.texts, asked):
        fitted = [
            measure.fit(captions)
            for measure in choose(asked.measures, asked.params.measures).values()
        ]
    return _beside_the_product(
        captions,
        [_speed(_on_device(one, asked.params.relevance.device), captions) for one in fitted],
    )


def _beside_the_product(captions: Captions, speeds: Sequence[float]) -> dict[str, float]:
    """Of measures of these speeds in pairs per second."""
    seconds = captions.n_images * captions.n_captions * sum(1 / speed for speed in speeds)
    product = product_seconds(captions.n_captions)
    return {"seconds": seconds, "product_seconds": product, "times_the_product": seconds / product}


def _on_device(fitted: Fitted, device: str) -> Fitted:
    if device == "cpu":
        return fitted
    from capgrade.measures.on_device import on_device  # torch only where it is needed

    return on_device(fitted, device)


def _speed(fitted: Fitted, captions: Captions) -> float:
    """Pairs a second: the median of passes over the matrix, after a block that compiles."""
    fitted.score(np.arange(min(4, captions.n_images)))
    speeds = []
    for _ in range(REPEATS):
        start, images, size = time.perf_counter(), 0, _BLOCK
        while images < captions.n_images and time.perf_counter() - start < BUDGET:
            block = np.arange(images, min(images + size, captions.n_images))
            took, _ = once(fitted.score, block)
            images += len(block)
            if took.seconds > BUDGET / 4:
                size = max(1, size // 4)
        speeds.append(images * captions.n_captions / (time.perf_counter() - start))
    return float(np.median(speeds))


def _values(fitted: Fitted, pairs: np.ndarray, dense: bool) -> np.ndarray:
    """Ours on the peer's pairs, from whole rows; pair by pair for a measure that takes minutes."""
    images, captions = pairs.T
    if not dense:
        return fitted.pairs(images, captions)
    out = np.empty(len(pairs), np.float32)
    for at in range(0, int(images.max()) + 1, _BLOCK):
        mine = np.flatnonzero((at <= images) & (images < at + _BLOCK))
        rows, row = np.unique(images[mine], return_inverse=True)
        out[mine] = fitted.score(rows)[row, captions[mine]]
    return out


def _rounds(captions: Captions, n_random: int) -> list[np.ndarray]:
    """A caption of each image, int64 [images]: every own one in turn, then in all as many random
    ones as asked for."""
    sizes, random = np.diff(captions.ref_ptr), np.random.default_rng(0)
    own = [
        captions.refs[captions.ref_ptr[:-1] + np.minimum(k, sizes - 1)]
        for k in range(int(sizes.max()))
    ]
    rounds = range(-(-n_random // captions.n_images))
    return own + [random.integers(captions.n_captions, size=captions.n_images) for _ in rounds]


def _pairs(rounds: Sequence[np.ndarray]) -> np.ndarray:
    """int64 [n, 2] as (image, caption)."""
    return np.concatenate(
        [np.stack([np.arange(len(columns)), columns], axis=1) for columns in rounds]
    )


def coco_peer(name: str, captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """pycocoevalcap's scorer. It scores one caption an image, and CIDEr-D's document frequencies
    are of the images of a call, so each call has all images. METEOR's jar is slow: it gets the
    first own captions, and random ones once."""
    sentences, rounds = (
        [" ".join(words) for words in captions.table["tokens"].to_pylist()],
        _rounds(captions, n_random),
    )
    rounds = [rounds[0], rounds[-1]] if name == "meteor" else rounds
    gts = {
        i: [sentences[r] for r in own]
        for i, own in enumerate(np.split(captions.refs, captions.ref_ptr[1:-1]))
    }
    scorer, values, seconds = coco_scorer(name), [], 0.0
    with progress(f"pycocoevalcap {name}", len(rounds)) as advance:
        for columns in rounds:
            took, (_, each) = once(scorer, gts, {i: [sentences[c]] for i, c in enumerate(columns)})
            order = fitted.sentences.start.shape[1] - 1 if isinstance(fitted, FittedBleu) else None
            values.append(each if order is None else each[order])
            seconds += took.seconds
            advance()
    pairs = _pairs(rounds)
    return Peer("pycocoevalcap", len(pairs) / seconds, pairs, np.concatenate(values))


def sbert_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """numpy's float32 product of as many vectors: references x captions, without the fold over
    references."""
    assert isinstance(fitted, FittedSbert)
    pairs, vectors = _pairs(_rounds(captions, n_random)), fitted.embeddings
    own = np.split(captions.refs, captions.ref_ptr[1:-1])
    values = [
        (vectors[own[i]].astype(np.float64) @ vectors[c].astype(np.float64)).max() for i, c in pairs
    ]
    speed = captions.n_images * captions.n_captions / product_seconds(captions.n_captions)
    return Peer("numpy float32 product", speed, pairs, np.array(values))


PEERS: dict[str, Callable[[Captions, Fitted, int], Peer]] = {
    **{name: partial(coco_peer, name) for name in COCO},
    "sbert": sbert_peer,
}
