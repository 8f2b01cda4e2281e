"""Pairs per second of each measure beside a common library, and the largest difference of values.

Ours scores the whole matrix, a block of images at a time. The peer scores pairs one by one
(pycocoevalcap), or computes the matrix product alone (Sentence-BERT, from the same embeddings).
Values are compared on its pairs: all own pairs and `bench.pairs` random ones. The row `all` has all
measures over all pairs beside the float32 product of as many pairs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from capgrade.measures import Fitted, choose
from capgrade.measures.bleu.fitted import FittedBleu
from capgrade.measures.sbert.fitted import FittedSbert
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.progress import progress
from research.benchmarks.harness import COCO, Asked, Rows, coco_scorer, once, product_seconds
from research.benchmarks.shards import embedded

_BLOCK = 256
REPEATS = 3
# Seconds of a pass over the matrix; a slower measure is timed on the blocks that it scores in them.
BUDGET = 20.0
_DENSE = 1e7  # pairs a second from which whole rows are scored to compare a few of their values


@dataclass(frozen=True)
class _Peer:
    """A peer's name, speed in image-caption pairs per second, and values float64 [n] on `pairs`
    int64 [n, 2]."""

    name: str
    pairs_per_s: float
    pairs: np.ndarray
    values: np.ndarray


def bench(asked: Asked) -> Rows:
    """For each measure on a device and its peer on the processor: pairs_per_s, peer,
    peer_pairs_per_s, ratio, max_abs_diff, pairs_compared; and for all measures the seconds of all
    pairs beside those of the product."""
    captions = read_captions(asked.captions, asked.bench.split)
    result, speeds = Rows(), dict[str, float]()
    for name, measure in choose(asked.measures, asked.params.measures).items():
        if name not in PEERS:
            remedy = choose_from(name, PEERS)
            raise InputError(f"measure '{name}' has no peer", remedy=remedy)
        fitted = measure.fit(captions)
        on_device = _on_device(fitted, asked.params.relevance.device)
        speed = _speed(on_device, captions)
        speeds[name] = speed
        peer = PEERS[name](captions, fitted, asked.bench.pairs)
        values = _values(on_device, peer.pairs, dense=speed > _DENSE)
        difference = np.abs(values - peer.values).max()
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
    measures = choose(asked.measures, asked.params.measures)
    with embedded(captions.texts, asked):
        all_fitted = {name: measure.fit(captions) for name, measure in measures.items()}
    device = asked.params.relevance.device
    speeds = {
        name: _speed(_on_device(fitted, device), captions) for name, fitted in all_fitted.items()
    }
    return _beside_the_product(captions, speeds)


def _beside_the_product(captions: Captions, speeds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of all pairs by measures of these speeds in pairs per second, those of the
    product, and how many times the product all measures take and each of them."""
    pairs = captions.n_images * captions.n_captions
    seconds = {name: pairs / speed for name, speed in speeds.items()}
    total, product = sum(seconds.values()), product_seconds(captions.n_captions)
    return {
        "seconds": total,
        "product_seconds": product,
        "times_the_product": total / product,
        **{f"{name}_times_the_product": alone / product for name, alone in seconds.items()},
    }


def _on_device(fitted: Fitted, device: str) -> Fitted:
    if device == "cpu":
        return fitted
    from capgrade.measures.on_device import on_device  # It imports torch.

    return on_device(fitted, device)


def _speed(fitted: Fitted, captions: Captions) -> float:
    """Pairs per second: the median of passes over the matrix, after a block that compiles."""
    fitted.score(np.arange(min(4, captions.n_images)))
    speeds = []
    for _ in range(REPEATS):
        start, images, size = time.perf_counter(), 0, _BLOCK
        while images < captions.n_images and time.perf_counter() - start < BUDGET:
            block = np.arange(images, min(images + size, captions.n_images))
            block_time, _ = once(fitted.score, block)
            images += len(block)
            if block_time.seconds > BUDGET / 4:
                size = max(1, size // 4)
        speeds.append(images * captions.n_captions / (time.perf_counter() - start))
    return float(np.median(speeds))


def _values(fitted: Fitted, pairs: np.ndarray, dense: bool) -> np.ndarray:
    """Our values of the peer's pairs: with `dense` from whole rows, else pair by pair, because the
    rows of a slow measure would take minutes."""
    images, captions = pairs.T
    if not dense:
        return fitted.pairs(images, captions)
    out = np.empty(len(pairs), np.float32)
    for start in range(0, int(images.max()) + 1, _BLOCK):
        in_block = np.flatnonzero((start <= images) & (images < start + _BLOCK))
        rows, row = np.unique(images[in_block], return_inverse=True)
        out[in_block] = fitted.score(rows)[row, captions[in_block]]
    return out


def _rounds(captions: Captions, n_random: int) -> list[np.ndarray]:
    """Rounds of one caption for each image, int64 [images]: first each own caption in turn, then at
    least `n_random` random captions in all."""
    sizes, random = np.diff(captions.ref_ptr), np.random.default_rng(0)
    own = [
        captions.refs[captions.ref_ptr[:-1] + np.minimum(k, sizes - 1)]
        for k in range(int(sizes.max()))
    ]
    rounds = range(-(-n_random // captions.n_images))
    return own + [random.integers(captions.n_captions, size=captions.n_images) for _ in rounds]


def _pairs(rounds: Sequence[np.ndarray]) -> np.ndarray:
    """The pairs (image, caption) of the rounds, int64 [n, 2]."""
    return np.concatenate(
        [np.stack([np.arange(len(columns)), columns], axis=1) for columns in rounds]
    )


def _coco_peer(name: str, captions: Captions, fitted: Fitted, n_random: int) -> _Peer:
    """pycocoevalcap's scorer. Each call has one caption of every image, because the images of a
    call make CIDEr-D's document frequencies. METEOR's jar is slow, and gets one round of own and
    one of random captions."""
    sentences = [" ".join(words) for words in captions.table["tokens"].to_pylist()]
    rounds = _rounds(captions, n_random)
    rounds = [rounds[0], rounds[-1]] if name == "meteor" else rounds
    references = {
        i: [sentences[row] for row in own]
        for i, own in enumerate(np.split(captions.refs, captions.ref_ptr[1:-1]))
    }
    order = fitted.sentences.start.shape[1] - 1 if isinstance(fitted, FittedBleu) else None
    scorer, values, seconds = coco_scorer(name), [], 0.0
    with progress(f"pycocoevalcap {name}", len(rounds)) as advance:
        for columns in rounds:
            candidates = {i: [sentences[column]] for i, column in enumerate(columns)}
            call_time, (_, scores) = once(scorer, references, candidates)
            values.append(scores if order is None else scores[order])
            seconds += call_time.seconds
            advance()
    pairs = _pairs(rounds)
    return _Peer("pycocoevalcap", len(pairs) / seconds, pairs, np.concatenate(values))


def _sbert_peer(captions: Captions, fitted: Fitted, n_random: int) -> _Peer:
    """numpy's float32 product of as many vectors, references x captions, without the maximum over
    references."""
    assert isinstance(fitted, FittedSbert)
    pairs, vectors = _pairs(_rounds(captions, n_random)), fitted.embeddings
    own = np.split(captions.refs, captions.ref_ptr[1:-1])
    values = [
        (vectors[own[i]].astype(np.float64) @ vectors[c].astype(np.float64)).max() for i, c in pairs
    ]
    speed = captions.n_images * captions.n_captions / product_seconds(captions.n_captions)
    return _Peer("numpy float32 product", speed, pairs, np.array(values))


PEERS: dict[str, Callable[[Captions, Fitted, int], _Peer]] = {
    **{name: partial(_coco_peer, name) for name in COCO},
    "sbert": _sbert_peer,
}
