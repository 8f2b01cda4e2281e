"""Any number of captions with the statistics of --captions, to time stages on; not for training.

A generated image takes the caption set of a real one as its template. Each of its captions starts
as one of the template's and is a walk through the real captions: after every word it goes on in the
caption it is in or, with a probability, in another one where the last two words stand as well (a
trigram model). Rare words split into variants as the corpus grows, as real vocabularies do. Nothing
is drawn anew in another run.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.benchmarks.harness import Asked, Rows
from capgrade.schemas.captions import CAPTIONS_FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, with_metadata, write_arrow, write_manifest
from capgrade.schemas.output import output_folder

PER_IMAGE = 5  # captions, as in COCO
LEAVE = 0.2  # probability of going on in another caption, after each word
NOVEL = 0.06  # probability that a word is another, drawn by frequency
RARE = 5  # words of at most so many images split into variants
GROWTH = 0.6  # variants grow with this power of the size
_LONGEST = 40
SPARE = 6  # a walk is cut short at the length of some real caption and so many words more
_DIM = 384  # of stand-in vectors, as of all-MiniLM-L6-v2
_SPLIT, VECTORS = "train", "vectors.npy"
_SEED = 0


class Walks(NamedTuple):
    """Real captions as word numbers, a mark before each and another behind, and where every word
    pair stands."""

    flat: np.ndarray  # int64 [n]; marks are above all words
    begin: np.ndarray  # int64 [captions]: place of the mark before it
    place: np.ndarray  # int64 [n]: places sorted by (word before, word)
    first: np.ndarray  # int64 [n]: where the pair of this place starts in `place`
    occurrences: np.ndarray  # int64 [n]: how many places have it


def walks_of(word: np.ndarray, sizes: np.ndarray, mark: int) -> Walks:
    """From the words of all captions, one after the other, and how many each has."""
    # one without words is the one before it: every walk has words
    caption = np.cumsum(sizes > 0) - 1
    sizes = sizes[sizes > 0]
    begin = np.cumsum(sizes) - sizes + 2 * np.arange(len(sizes))
    flat = np.full(len(word) + 2 * len(sizes), mark)
    flat[begin] = mark + 1
    flat[flat == mark] = np.insert(word, np.cumsum(sizes), mark)
    pair = np.append(mark, flat[:-1]) * (mark + 2) + flat
    _, number, counts = np.unique(pair, return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    return Walks(
        flat, begin[caption], np.argsort(pair, kind="stable"), first[number], counts[number]
    )


def generate(source: Captions, images: int) -> tuple[pa.ListArray, list[str]]:
    """Tokens of the captions of so many images, and their texts."""
    random, (codes, start) = np.random.default_rng(_SEED), source.tokens()
    known, sizes, word = (
        codes.dictionary.to_pylist(),
        np.diff(start),
        codes.indices.to_numpy().astype(np.int64),
    )
    mark, walks = len(known), walks_of(word, sizes, len(known))
    in_images = np.unique(np.repeat(source.owner, sizes) * mark + word) % mark
    rare = np.bincount(in_images, minlength=mark) <= RARE
    variants = max(1.0, (images / source.n_images) ** GROWTH)

    rounds = -(-images // source.n_images)
    template = np.concatenate([random.permutation(source.n_images) for _ in range(rounds)])[:images]
    own = np.arange(PER_IMAGE) % np.diff(source.ref_ptr)[template][:, None]
    at = walks.begin[source.refs[source.ref_ptr[template][:, None] + own]].ravel()
    most = random.choice(sizes, len(at)) + SPARE
    words, going = np.full((len(at), _LONGEST), -1), np.ones(len(at), bool)
    for step in range(_LONGEST):
        leaves, to, novel, variant = random.random((4, len(at)))
        other = walks.place[walks.first[at] + (to * walks.occurrences[at]).astype(np.int64)]
        at = np.where(leaves < LEAVE, other, at) + 1
        going &= (walks.flat[at] != mark) & (step < most)
        at[~going] = 1  # the first word of all, which is not read
        chosen = np.where(novel < NOVEL, random.choice(word, len(at)), walks.flat[at])
        split = np.where(rare[chosen], (variant * variants).astype(np.int64), 0)
        words[:, step] = np.where(going, chosen + mark * split, -1)

    numbers, place = np.unique(words[words >= 0], return_inverse=True)
    names = [known[k % mark] + (f"x{k // mark}" if k >= mark else "") for k in numbers.tolist()]
    flat = pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), names).dictionary_decode()
    offsets = np.concatenate([[0], np.cumsum((words >= 0).sum(axis=1))]).astype(np.int32)
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
    return {
        "corpus": {
            "images": wanted.images,
            "captions": PER_IMAGE * wanted.images,
            "out": wanted.out,
        }
    }


def corpus(source: Captions, images: int, out: Path, vectors: bool) -> None:
    """Write a captions folder of `images` generated images of split `train`, and with `vectors`
    stand-ins for embeddings, vectors.npy, which the manifest names too. InputError where either is
    there and is not of such a run."""
    tokens, texts = generate(source, images)
    ids = [f"image-{i:07d}" for i in range(images)]
    metadata = {
        "kind": "captions",
        "source": "generated",
        "tokenizer": source.tokenizer,
        "inputs": {},
    }
    columns = [
        np.repeat(ids, PER_IMAGE).tolist(),
        [f"{image}#{k}" for image in ids for k in range(PER_IMAGE)],
        [_SPLIT] * len(texts),
        texts,
        tokens,
        pa.nulls(len(texts), pa.string()),
    ]
    table = pa.table(columns, schema=with_metadata(SCHEMA, metadata))
    params = {"images": images, "leave": LEAVE, "novel": NOVEL, "growth": GROWTH}
    inputs = {"source": source.digest, "split": source.split}
    stage = "bench corpus"  # never in the place of captions of another source
    with output_folder(out, stage) as folder:
        rows = {}
        if vectors:
            with atomic(folder / VECTORS) as temporary, temporary.open("wb") as file:
                np.save(file, stand_ins(Captions(table, _SPLIT, source.tokenizer, "")))
            rows[VECTORS] = table.num_rows
        rows[CAPTIONS_FILE] = write_arrow(folder / CAPTIONS_FILE, table.schema, table.to_batches())
        facts = {"images": images, "splits": {_SPLIT: table.num_rows}, "stage": stage}
        write_manifest(folder, "captions", params=params, inputs=inputs, rows=rows, **facts)


def stand_ins(captions: Captions) -> np.ndarray:
    """Unit vectors float32 [captions, 384] for timing alone: sums of random vectors of the words,
    the rarer the longer. Captions of like words are near, the same text has the same vector; they
    are no sentence embeddings."""
    codes, start = captions.tokens()
    word = codes.indices.to_numpy(zero_copy_only=False)
    weight = np.log(len(codes) / np.bincount(word))[:, None]
    table = (np.random.default_rng(0).standard_normal((len(weight), _DIM)) * weight).astype(
        np.float32
    )
    out = np.empty((captions.n_captions, _DIM), np.float32)
    for at in range(0, len(out), 8192):
        stop = min(at + 8192, len(out))
        mine = table[word[start[at] : start[stop]]]
        out[at:stop] = np.add.reduceat(mine, start[at:stop] - start[at])
        out[at:stop] /= np.linalg.norm(out[at:stop], axis=1, keepdims=True)
    return out
