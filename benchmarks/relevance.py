"""Speed and exactness of the relevance kernels beside the libraries people use today.

Ours scores the whole matrix, a block of images at a time into a reused block. The peer scores its pairs one by one
(pycocoevalcap), or the matrix product alone (Sentence-BERT, where both start from the same embeddings); its pairs
are all own pairs and as many random ones as asked for, and on them the values are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.measures import Fitted, choose
from pipelines.measures.sbert import FittedSbert
from schemas.captions import Captions, read_captions
from schemas.errors import InputError
from schemas.params import MeasuresParams
from schemas.progress import progress

BLOCK = 256
REPEATS = 3


@dataclass(frozen=True)
class Peer:
    """A peer's name, speed in image-caption pairs a second, and values float64 [n] on `pairs` int64 [n, 2]."""

    name: str
    pairs_per_s: float
    pairs: np.ndarray
    values: np.ndarray


def bench(
    captions_dir: Path, names: Sequence[str], measures: MeasuresParams, split: str | None, n_random: int
) -> dict[str, dict[str, Any]]:
    """Time the named measures and their peers; measure -> pairs_per_s, peer, peer_pairs_per_s, ratio, max_abs_diff,
    pairs_compared. Ours is the median of three passes over the matrix, after a block that compiles."""
    captions = read_captions(captions_dir, split)
    result = {}
    for name, measure in choose(names, measures).items():
        if name not in PEERS:
            raise InputError(f"measure '{name}' has no peer", remedy=f"choose from: {', '.join(PEERS)}")
        fitted = measure.fit(captions)
        seconds = np.median([_whole_matrix(fitted, captions) for _ in range(REPEATS)])
        speed = captions.n_images * captions.n_captions / seconds
        peer = PEERS[name](captions, fitted, n_random)
        difference = np.abs(_values(fitted, peer.pairs) - peer.values).max()
        result[name] = {
            "pairs_per_s": float(speed), "peer": peer.name, "peer_pairs_per_s": peer.pairs_per_s,
            "ratio": float(speed / peer.pairs_per_s), "max_abs_diff": float(difference),
            "pairs_compared": len(peer.pairs),
        }  # fmt: skip
    return result


def _whole_matrix(fitted: Fitted, captions: Captions) -> float:
    fitted.score(np.arange(min(BLOCK, captions.n_images)))
    start = time.perf_counter()
    for at in range(0, captions.n_images, BLOCK):
        fitted.score(np.arange(at, min(at + BLOCK, captions.n_images)))
    return time.perf_counter() - start


def _values(fitted: Fitted, pairs: np.ndarray) -> np.ndarray:
    out = np.empty(len(pairs), np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    images = pairs[order, 0]
    for at in range(0, int(images[-1]) + 1, BLOCK):
        mine = order[np.searchsorted(images, at) : np.searchsorted(images, at + BLOCK)]
        if len(mine):
            block = fitted.score(np.arange(at, int(pairs[mine, 0].max()) + 1))
            out[mine] = block[pairs[mine, 0] - at, pairs[mine, 1]]
    return out


def _pairs(captions: Captions, n_random: int) -> np.ndarray:
    """All own pairs and random ones, int64 [n, 2] as (image, caption)."""
    random = np.random.default_rng(0)
    own = np.stack([captions.owner, np.arange(captions.n_captions)], axis=1)
    drawn = np.stack(
        [random.integers(captions.n_images, size=n_random), random.integers(captions.n_captions, size=n_random)], axis=1
    )
    return np.concatenate([own, drawn])


def _sentences(captions: Captions) -> list[str]:
    return [" ".join(words) for words in captions.table["tokens"].to_pylist()]


def _references(captions: Captions, sentences: list[str]) -> list[list[str]]:
    return [
        [sentences[r] for r in captions.refs[captions.ref_ptr[i] : captions.ref_ptr[i + 1]]]
        for i in range(captions.n_images)
    ]


def cider_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """pycocoevalcap's Cider. It scores one caption an image and counts document frequencies over the images it is
    given, so pairs are grouped into rounds of all images, each with one caption."""
    from pycocoevalcap.cider.cider import Cider

    sentences = _sentences(captions)
    gts = dict(enumerate(_references(captions, sentences)))
    rounds = _rounds(captions, n_random)
    values = []
    start = time.perf_counter()
    with progress("pycocoevalcap CIDEr", len(rounds)) as advance:
        for hypotheses in rounds:
            values.append(Cider().compute_score(gts, {i: [sentences[c]] for i, c in enumerate(hypotheses)})[1])
            advance()
    seconds = time.perf_counter() - start
    pairs = np.concatenate([np.stack([np.arange(captions.n_images), h], axis=1) for h in rounds])
    return Peer("pycocoevalcap", len(pairs) / seconds, pairs, np.concatenate(values))


def _rounds(captions: Captions, n_random: int) -> list[np.ndarray]:
    """Rounds of one caption an image, int64 [n_images]: every own caption, then random ones."""
    sizes = np.diff(captions.ref_ptr)
    own = [captions.refs[captions.ref_ptr[:-1] + np.minimum(k, sizes - 1)] for k in range(int(sizes.max()))]
    random = np.random.default_rng(0)
    n_rounds = -(-n_random // captions.n_images)
    return own + [random.integers(captions.n_captions, size=captions.n_images) for _ in range(n_rounds)]


def rouge_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """pycocoevalcap's Rouge, pair by pair."""
    from pycocoevalcap.rouge.rouge import Rouge

    sentences = _sentences(captions)
    references, pairs = _references(captions, sentences), _pairs(captions, n_random)
    rouge = Rouge()
    start = time.perf_counter()
    values = [rouge.calc_score([sentences[c]], references[i]) for i, c in pairs]
    return Peer("pycocoevalcap", len(pairs) / (time.perf_counter() - start), pairs, np.array(values))


def sbert_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """numpy's float32 product of the same embeddings: references x captions, without the fold over references."""
    assert isinstance(fitted, FittedSbert)
    vectors, block = fitted.embeddings, 5 * BLOCK
    vectors[:block] @ vectors.T
    start = time.perf_counter()
    for at in range(0, len(vectors), block):
        vectors[at : at + block] @ vectors.T
    seconds = time.perf_counter() - start
    pairs = _pairs(captions, n_random)
    values = np.array([_cosine(captions, vectors, i, c) for i, c in pairs])
    return Peer("numpy float32 product", captions.n_images * captions.n_captions / seconds, pairs, values)


def _cosine(captions: Captions, vectors: np.ndarray, image: int, caption: int) -> float:
    references = vectors[captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]].astype(np.float64)
    return float((references @ vectors[caption].astype(np.float64)).max())


PEERS: dict[str, Callable[[Captions, Fitted, int], Peer]] = {
    "cider": cider_peer,
    "rouge_l": rouge_peer,
    "sbert": sbert_peer,
}
