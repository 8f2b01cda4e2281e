"""The best captions of an image: by a measure's own search (METEOR has one), by all pairs, and by peers, in one run.

Random blocks of images are taken, and each is done every way, one after the other: other work on the machine slows
all. Processor time says what the work is, whoever else works there. Seconds are those of the images taken.

Peers rank the same captions for the same images, by other scores: bm25s by BM25 of an image's captions as one query,
faiss's flat index by the largest cosine over its captions, of stand-ins for sentence embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from capgrade.benchmarks.harness import DIM, Asked, Rows, once
from capgrade.bits import Ties
from capgrade.measures import Fitted, choose
from capgrade.measures.tops import every_pair, find_tops
from capgrade.pipelines.sampling.plan import id_keys, image_seeds
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import Advance, progress
from capgrade.schemas.say import tell

BLOCK = 64  # images
IMAGES = 512  # unless the parameters say another number
TOP = 64  # captions
Search = Callable[[np.ndarray], np.ndarray]  # rows of images -> int64 [images, TOP] of captions, best first


def bench(asked: Asked) -> Rows:
    """By measure: images, seconds, all_pairs_seconds, ratio, the ratio of processor time, pairs (of these images),
    pairs_touched, same, images_per_second_and_core; of a peer images, captions, seconds and the last. InputError where
    the tops are not those of all pairs."""
    captions = read_captions(asked.captions, asked.bench.split)
    chosen = choose(asked.measures, asked.params.measures)
    some = np.sort(np.random.default_rng(1).permutation(captions.n_images)[: asked.bench.images or IMAGES])
    blocks = [some[at : at + BLOCK] for at in range(0, len(some), BLOCK)]
    result = {}
    with progress("tops, and those of all pairs", len(chosen) * len(blocks)) as advance:
        for name, measure in chosen.items():
            result[name] = _row(measure.fit(captions), captions, blocks, advance)
    different = [name for name, row in result.items() if not row["same"]]
    if different:
        raise InputError(f"the tops of {different[0]} are not those of all pairs", remedy="report it, please")
    for module, peer in PEERS.items():
        if find_spec(module) is None:
            tell(f"{module} is not installed, and not timed")
            continue
        search = peer(captions)
        search(blocks[0][:2])
        rounds = [once(search, block)[0] for block in blocks]
        result[module] = {
            "images": len(some), "captions": captions.n_captions, "seconds": sum(took.seconds for took in rounds),
            "images_per_second_and_core": len(some) / sum(took.processor for took in rounds),
        }  # fmt: skip
    return result


def bm25s_tops(captions: Captions) -> Search:
    """By BM25 of an image's own captions as one query, with the compiled code of bm25s."""
    import bm25s

    index = bm25s.BM25(backend="numba")
    index.index(bm25s.tokenize(captions.texts, stopwords=None, show_progress=False), show_progress=False)

    def search(images: np.ndarray) -> np.ndarray:
        own = [" ".join(captions.texts[k] for k in _own(captions, i)) for i in images]
        words = bm25s.tokenize(own, stopwords=None, show_progress=False)
        return index.retrieve(words, k=min(TOP, captions.n_captions), n_threads=1, show_progress=False).documents

    return search


def faiss_tops(captions: Captions) -> Search:
    """By the largest cosine over an image's own captions: their best ones together hold those of the image."""
    import faiss

    vectors = np.random.default_rng(0).standard_normal((captions.n_captions, DIM), np.float32)
    faiss.normalize_L2(vectors)
    index = faiss.IndexFlatIP(DIM)
    index.add(vectors)
    k = min(TOP, captions.n_captions)

    def search(images: np.ndarray) -> np.ndarray:
        own = [_own(captions, i) for i in images]
        values, rows = index.search(vectors[np.concatenate(own)], k)
        ends = np.cumsum([len(one) for one in own])[:-1]
        best = []
        for of, row in zip(np.split(values, ends), np.split(rows, ends), strict=True):
            falling = row.ravel()[np.argsort(-of.ravel(), kind="stable")]
            best.append(falling[np.sort(np.unique(falling, return_index=True)[1])[:k]])
        return np.stack(best)

    return search


def _own(captions: Captions, image: int) -> np.ndarray:
    return captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]


PEERS: dict[str, Callable[[Captions], Search]] = {"bm25s": bm25s_tops, "faiss": faiss_tops}


def _row(fitted: Fitted, captions: Captions, blocks: list[np.ndarray], advance: Advance) -> dict[str, Any]:
    ties = Ties(image_seeds(0, id_keys(captions.image_ids)), id_keys(captions.caption_ids))
    ways = (find_tops, every_pair)
    for way in ways:
        way(fitted, blocks[0][:2], TOP, ties)  # kernels are compiled, indexes made
    seconds, processor, touched, same = np.zeros(2), np.zeros(2), 0, True
    for block in blocks:
        rounds, (mine, full) = zip(*(once(way, fitted, block, TOP, ties) for way in ways), strict=True)
        seconds += [took.seconds for took in rounds]
        processor += [took.processor for took in rounds]
        touched += int(mine.pairs.sum())
        same &= np.array_equal(mine.rows, full.rows) and mine.values.tobytes() == full.values.tobytes()
        advance(1)
    images = sum(map(len, blocks))
    return {
        "images": images, "captions": captions.n_captions,
        "seconds": seconds[0], "all_pairs_seconds": seconds[1], "ratio": seconds[1] / seconds[0],
        "processor_ratio": processor[1] / processor[0], "images_per_second_and_core": images / processor[0],
        "pairs": images * captions.n_captions, "pairs_touched": touched, "same": same,
    }  # fmt: skip
