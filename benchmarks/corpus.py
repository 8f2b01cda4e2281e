"""Any number of captions with the statistics of --captions, to time stages on; not for training.

A generated image takes the caption set of a real one as its template. Each of its captions starts as one of the
template's and is a walk through the real captions: after every word it goes on in the caption it is in or, with a
probability, in another one where the last two words stand as well (a trigram model). Rare words split into variants as
the corpus grows, as real vocabularies do. Nothing is drawn anew in another run; an image depends on its number alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.benchmarks.harness import Asked, Rows
from capgrade.bits import GOLDEN, mix
from capgrade.kernels import njit
from capgrade.schemas.captions import FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, with_metadata, write_arrow, write_manifest
from capgrade.schemas.output import output_folder

PER_IMAGE = 5  # captions, as in COCO
LEAVE = 0.2  # probability of going on in another caption, after each word
NOVEL = 0.08  # probability that a word is another, drawn by frequency
RARE = 5  # words of at most so many images split into variants
GROWTH = 0.6  # variants grow with this power of the size
LONGEST = 40
SPARE = 6  # a walk is cut short at the length of some real caption and so many words more
DIM = 384  # of stand-in vectors, as of all-MiniLM-L6-v2
SPLIT, VECTORS = "train", "vectors.npy"
SEED = 0


class Model(NamedTuple):
    """Real captions as word numbers, two marks before each and one behind, and where every word pair stands."""

    flat: np.ndarray  # int32 [n]
    begin: np.ndarray  # int64 [captions]: place of the second mark
    sizes: np.ndarray  # int64 [captions]: words
    ref_ptr: np.ndarray  # int64 [images + 1]
    refs: np.ndarray
    place: np.ndarray  # int64 [n]: places sorted by (word before, word)
    first: np.ndarray  # int64 [n]: where the pair of this place starts in `place`
    occurrences: np.ndarray  # int64 [n]: how many places have it
    rare: np.ndarray  # bool [words]


def model_of(captions: Captions) -> tuple[list[str], Model]:
    """The words, and where they stand."""
    codes, start = captions.tokens()
    words, sizes = codes.dictionary.to_pylist(), np.diff(start)
    mark = len(words)
    gap = 3 * np.arange(len(sizes))
    out = np.full(len(codes) + 3 * len(sizes), mark, np.int32)
    at = np.repeat(start[:-1] + gap + 2, sizes) + np.arange(len(codes)) - np.repeat(start[:-1], sizes)
    out[at] = codes.indices.to_numpy(zero_copy_only=False)
    pair = np.concatenate([[-1], out[:-1].astype(np.int64) * (mark + 1) + out[1:]])
    place = np.argsort(pair, kind="stable")
    _, number, counts = np.unique(pair, return_inverse=True, return_counts=True)
    begin = np.concatenate([[0], np.cumsum(counts)[:-1]])
    images = np.bincount(np.unique(np.repeat(captions.owner, sizes) * np.int64(mark) + out[at]) % mark, minlength=mark)
    begins = start[:-1] + gap + 1
    return words, Model(
        out, begins, sizes, captions.ref_ptr, captions.refs, place, begin[number], counts[number], images <= RARE
    )


@njit(cache=True)
def _random(state):
    """The next of a sequence, uniform in 0..1, and its state (splitmix64)."""
    state += GOLDEN
    x = mix(state)
    return state, np.float64(x >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _template(i, n):
    """A real image for generated image i: all of them in every round of n, each round in an order of its own."""
    step = 1 + 2 * ((SEED + i // n) % 7919)
    while np.gcd(step, n) != 1:
        step += 2
    return ((i % n) * step + i // n) % n


@njit(cache=True)
def _walk(images, variants, model, out, length):
    """Words int64 [captions, LONGEST] as number + mark * variant, and how many each caption has."""
    mark = len(model.rare)
    flat, begin, sizes, refs, ref_ptr = model.flat, model.begin, model.sizes, model.refs, model.ref_ptr
    for i in range(images):
        state = np.uint64(SEED) + np.uint64(i + 1) * np.uint64(0xD1342543DE82EF95)
        template = _template(i, ref_ptr.shape[0] - 1)
        own = refs[ref_ptr[template] : ref_ptr[template + 1]]
        for k in range(PER_IMAGE):
            p, n = begin[own[k % own.shape[0]]], 0
            state, u = _random(state)
            cap = min(sizes[np.int64(u * sizes.shape[0])] + SPARE, out.shape[1])
            while n < cap:
                state, u = _random(state)
                if u < LEAVE:
                    state, u = _random(state)
                    p = model.place[model.first[p] + np.int64(u * model.occurrences[p])]
                p += 1
                word = flat[p]
                if word == mark:
                    if n:
                        break
                    p = begin[own[k % own.shape[0]]]
                    continue
                state, u = _random(state)
                if u < NOVEL:
                    state, u = _random(state)
                    drawn = flat[np.int64(u * flat.shape[0])]
                    word = word if drawn == mark else drawn
                state, u = _random(state)
                split = np.int64(u * variants) if model.rare[word] else 0
                out[i * PER_IMAGE + k, n] = word + mark * split
                n += 1
            length[i * PER_IMAGE + k] = n


def generate(source: Captions, images: int) -> tuple[pa.ListArray, list[str]]:
    """Tokens of the captions of so many images, and their texts."""
    known, model = model_of(source)
    mark = len(known)
    words = np.zeros((images * PER_IMAGE, LONGEST), np.int64)
    length = np.zeros(len(words), np.int64)
    _walk(images, max(1.0, (images / source.n_images) ** GROWTH), model, words, length)
    numbers, codes = np.unique(words[np.arange(LONGEST) < length[:, None]], return_inverse=True)
    names = [known[k % mark] + (f"x{k // mark}" if k >= mark else "") for k in numbers.tolist()]
    flat = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names).dictionary_decode()
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    tokens = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return tokens, pc.binary_join(tokens, " ").to_pylist()


def bench(asked: Asked) -> Rows:
    """Make the corpus that the parameters ask for: images, captions, and where they are."""
    wanted = asked.bench
    if wanted.images is None:
        raise InputError("how many images?", remedy="give --set bench.images=N")
    if wanted.out is None:
        raise InputError("where to?", remedy="give --set bench.out=DIR")
    real = read_captions(asked.captions, wanted.split)
    corpus(real, wanted.images, Path(wanted.out), wanted.vectors)
    return {"corpus": {"images": wanted.images, "captions": PER_IMAGE * wanted.images, "out": wanted.out}}


def corpus(source: Captions, images: int, out: Path, vectors: bool) -> None:
    """Write a captions folder of `images` generated images of split `train`, and with `vectors` stand-ins for
    embeddings, vectors.npy, which the manifest names too. InputError where either is there and is not of such a run."""
    tokens, texts = generate(source, images)
    ids = [f"image-{i:07d}" for i in range(images)]
    metadata = {"kind": "captions", "source": "generated", "tokenizer": source.tokenizer, "inputs": {}}
    columns = [
        np.repeat(ids, PER_IMAGE).tolist(), [f"{image}#{k}" for image in ids for k in range(PER_IMAGE)],
        [SPLIT] * len(texts), texts, tokens, pa.nulls(len(texts), pa.string()),
    ]  # fmt: skip
    table = pa.table(columns, schema=with_metadata(SCHEMA, metadata))
    params = {"images": images, "leave": LEAVE, "novel": NOVEL, "growth": GROWTH}
    inputs = {"source": source.digest, "split": source.split}
    stage = "bench corpus"  # never in the place of captions of another source
    with output_folder(out, stage):
        rows = {}
        if vectors:  # first: a file of somebody else is refused before the captions are touched
            with atomic(out / VECTORS) as temporary, temporary.open("wb") as file:
                np.save(file, stand_ins(Captions(table, SPLIT, source.tokenizer, "")))
            rows[VECTORS] = table.num_rows
        rows[FILE] = write_arrow(out / FILE, table.schema, table.to_batches())
        facts = {"images": images, "splits": {SPLIT: table.num_rows}, "stage": stage}
        write_manifest(out, "captions", params=params, inputs=inputs, rows=rows, **facts)


def stand_ins(captions: Captions) -> np.ndarray:
    """Unit vectors float32 [captions, 384] for timing alone: sums of random vectors of the words, the rarer the longer.
    Captions of like words are near, the same text has the same vector; they are no sentence embeddings."""
    codes, start = captions.tokens()
    word = codes.indices.to_numpy(zero_copy_only=False)
    weight = np.log(len(codes) / np.bincount(word))[:, None]
    table = (np.random.default_rng(0).standard_normal((len(weight), DIM)) * weight).astype(np.float32)
    out = np.empty((captions.n_captions, DIM), np.float32)
    for at in range(0, len(out), 8192):
        stop = min(at + 8192, len(out))
        mine = table[word[start[at] : start[stop]]]
        out[at:stop] = np.add.reduceat(mine, start[at:stop] - start[at])
        out[at:stop] /= np.linalg.norm(out[at:stop], axis=1, keepdims=True)
    return out
