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
from scipy.sparse import csr_matrix

from capgrade.pipelines.measures import Fitted, choose
from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.progress import progress

BLOCK = 256
REPEATS = 3
BUDGET = 20.0  # seconds of a pass over the matrix; a slower measure is timed on the blocks it gets through


@dataclass(frozen=True)
class Peer:
    """A peer's name, speed in image-caption pairs per second, and values float64 [n] on `pairs` int64 [n, 2]."""

    name: str
    pairs_per_s: float
    pairs: np.ndarray
    values: np.ndarray


def bench(
    captions_dir: Path, names: Sequence[str], measures: MeasuresParams, split: str | None, n_random: int, device: str
) -> dict[str, dict[str, Any]]:
    """Time the named measures on a device and their peers on the processor; measure -> pairs_per_s, peer,
    peer_pairs_per_s, ratio, max_abs_diff, pairs_compared."""
    captions = read_captions(captions_dir, split)
    result = {}
    for name, measure in choose(names, measures).items():
        if name not in PEERS:
            raise InputError(f"measure '{name}' has no peer", remedy=f"choose from: {', '.join(PEERS)}")
        fitted = measure.fit(captions)
        there = _on_device(fitted, device)
        speed = _speed(there, captions)
        peer = PEERS[name](captions, fitted, n_random)
        difference = np.abs(_values(there, peer.pairs, dense=speed > 1e7) - peer.values).max()
        result[name] = {
            "pairs_per_s": float(speed), "peer": peer.name, "peer_pairs_per_s": peer.pairs_per_s,
            "ratio": float(speed / peer.pairs_per_s), "max_abs_diff": float(difference),
            "pairs_compared": len(peer.pairs),
        }  # fmt: skip
    return result


def _on_device(fitted: Fitted, device: str) -> Fitted:
    if device == "cpu":
        return fitted
    from capgrade.pipelines.measures.on_device import on_device  # torch only where it is needed

    return on_device(fitted, device)


def _speed(fitted: Fitted, captions: Captions) -> float:
    """Pairs a second: the median of passes over the matrix, after a block that compiles."""
    fitted.score(np.arange(min(4, captions.n_images)))
    return float(np.median([_pass(fitted, captions) for _ in range(REPEATS)]))


def _pass(fitted: Fitted, captions: Captions) -> float:
    start, images, size = time.perf_counter(), 0, BLOCK
    while images < captions.n_images and time.perf_counter() - start < BUDGET:
        block = np.arange(images, min(images + size, captions.n_images))
        before = time.perf_counter()
        fitted.score(block)
        images += len(block)
        if time.perf_counter() - before > BUDGET / 4:
            size = max(1, size // 4)
    return images * captions.n_captions / (time.perf_counter() - start)


def _values(fitted: Fitted, pairs: np.ndarray, dense: bool) -> np.ndarray:
    """Ours on the peer's pairs, from whole rows; from the captions in question for a measure that takes minutes."""
    out = np.empty(len(pairs), np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    images = pairs[order, 0]
    for at in range(0, int(images[-1]) + 1, BLOCK):
        mine = order[np.searchsorted(images, at) : np.searchsorted(images, at + BLOCK)]
        if len(mine):
            found, row = np.unique(pairs[mine, 0], return_inverse=True)
            wanted, column = np.unique(pairs[mine, 1], return_inverse=True)
            block = fitted.score(found) if dense else fitted.score(found, wanted)
            out[mine] = block[row, pairs[mine, 1] if dense else column]
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


def bleu_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """pycocoevalcap's Bleu, all pairs in one call."""
    from pycocoevalcap.bleu.bleu import Bleu

    assert isinstance(fitted, FittedBleu)
    gts, res, pairs = _calls(captions, _pairs(captions, n_random))
    start = time.perf_counter()
    _, values = Bleu(4).compute_score(gts, res, verbose=0)
    return Peer("pycocoevalcap", len(pairs) / (time.perf_counter() - start), pairs, np.array(values[fitted.k - 1]))


def meteor_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """pycocoevalcap's Meteor, as many pairs as asked for, half of them own; its jar has started before the clock."""
    from pycocoevalcap.meteor.meteor import Meteor

    every = _pairs(captions, max(n_random // 2, 1))
    own = np.random.default_rng(1).choice(
        captions.n_captions, min(n_random - n_random // 2, captions.n_captions), False
    )
    gts, res, pairs = _calls(captions, np.concatenate([every[own], every[captions.n_captions :]]))
    meteor = Meteor()
    meteor.compute_score({0: gts[0]}, {0: res[0]})
    start = time.perf_counter()
    values = meteor.compute_score(gts, res)[1]
    return Peer("pycocoevalcap's jar", len(pairs) / (time.perf_counter() - start), pairs, np.array(values))


def _calls(captions: Captions, pairs: np.ndarray) -> tuple[dict[int, list[str]], dict[int, list[str]], np.ndarray]:
    """References and captions of pairs as pycocoevalcap takes them."""
    sentences = _sentences(captions)
    references = _references(captions, sentences)
    gts = {k: references[i] for k, (i, _) in enumerate(pairs)}
    return gts, {k: [sentences[c]] for k, (_, c) in enumerate(pairs)}, pairs


def tfidf_peer(captions: Captions, fitted: Fitted, n_random: int) -> Peer:
    """scikit-learn's vectors as DAA's code makes them, averaged by image, and their sparse product."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    vectors = TfidfTransformer().fit_transform(CountVectorizer().fit_transform(captions.texts)).tocsr()
    sizes, n = np.diff(captions.ref_ptr), captions.n_captions
    mean = csr_matrix((np.repeat(1 / sizes, sizes), captions.refs, captions.ref_ptr), (captions.n_images, n)) @ vectors
    pairs = _pairs(captions, n_random)
    start = time.perf_counter()
    for at in range(0, captions.n_images, BLOCK):
        (mean[at : at + BLOCK] @ vectors.T).toarray()
    seconds = time.perf_counter() - start
    values = np.asarray(mean[pairs[:, 0]].multiply(vectors[pairs[:, 1]]).sum(axis=1)).ravel()
    return Peer("scikit-learn", captions.n_images * n / seconds, pairs, values)


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
    "bleu": bleu_peer,
    "cider": cider_peer,
    "meteor": meteor_peer,
    "rouge_l": rouge_peer,
    "sbert": sbert_peer,
    "tfidf_cosine": tfidf_peer,
}
