"""Any number of captions with the statistics of --captions, to time stages with; not for training.

A generated image takes the caption set of a real one as its template. Each of its captions starts
as one of the template's and is a walk through the real captions: after every word it goes on in the
same caption or, with a probability, in another one that has the last two words too (a trigram
model). Rare words split into variants as the corpus grows, because real vocabularies grow. The
same parameters make the same corpus.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import CAPTIONS_FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, write_manifest
from capgrade.schemas.output import output_folder
from research.benchmarks.harness import Asked, Rows

PER_IMAGE = 5  # captions, as in COCO
LEAVE = 0.2  # probability that a walk goes on in another caption, after each word
NOVEL = 0.06  # probability that a word is replaced by one that is drawn by frequency
RARE = 5  # a word of at most so many images splits into variants
GROWTH = 0.6  # the number of variants is the relative size to this power
_LONGEST = 40
SPARE = 6  # a walk ends at the latest with the length of a random real caption and so many more
_DIM = 384  # numbers of a stand-in vector, as in all-MiniLM-L6-v2
_SPLIT, VECTORS = "train", "vectors.npy"
_SEED = 0


class _Walks(NamedTuple):
    """Real captions as word numbers, with one mark before each and another after it, and the places
    of every word pair."""

    flat: np.ndarray  # int64 [n]: words and marks, whose numbers are above all words
    begin: np.ndarray  # int64 [captions]: the place of the mark before each caption
    place: np.ndarray  # int64 [n]: places sorted by (word before, word)
    first: np.ndarray  # int64 [n]: for each place, the start of its pair in `place`
    occurrences: np.ndarray  # int64 [n]: for each place, how many places have its pair


def _walks_of(word: np.ndarray, sizes: np.ndarray, mark: int) -> _Walks:
    """The walks of captions, from the words of all in order and the number of words of each."""
    # A caption without words is replaced by the one before it, so that every walk has words.
    caption = np.cumsum(sizes > 0) - 1
    sizes = sizes[sizes > 0]
    begin = np.cumsum(sizes) - sizes + 2 * np.arange(len(sizes))
    flat = np.full(len(word) + 2 * len(sizes), mark)
    flat[begin] = mark + 1
    flat[flat == mark] = np.insert(word, np.cumsum(sizes), mark)
    pair = np.append(mark, flat[:-1]) * (mark + 2) + flat
    _, number, counts = np.unique(pair, return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    return _Walks(
        flat, begin[caption], np.argsort(pair, kind="stable"), first[number], counts[number]
    )


def generate(source: Captions, images: int) -> tuple[pa.ListArray, list[str]]:
    """Tokens of the captions of so many images, and their texts."""
    random, (codes, start) = np.random.default_rng(_SEED), source.tokens()
    vocabulary, sizes = codes.dictionary.to_pylist(), np.diff(start)
    word = codes.indices.to_numpy().astype(np.int64)
    mark, walks = len(vocabulary), _walks_of(word, sizes, len(vocabulary))
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
        at[~going] = 1  # An ended walk stays at some place, which is not read.
        chosen = np.where(novel < NOVEL, random.choice(word, len(at)), walks.flat[at])
        split = np.where(rare[chosen], (variant * variants).astype(np.int64), 0)
        words[:, step] = np.where(going, chosen + mark * split, -1)

    numbers, place = np.unique(words[words >= 0], return_inverse=True)
    names = [
        vocabulary[k % mark] + (f"x{k // mark}" if k >= mark else "") for k in numbers.tolist()
    ]
    flat = pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), names).dictionary_decode()
    offsets = np.concatenate([[0], np.cumsum((words >= 0).sum(axis=1))]).astype(np.int32)
    tokens = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return tokens, pc.binary_join(tokens, " ").to_pylist()


def bench(asked: Asked) -> Rows:
    """Make the corpus of the parameters; returns its images, captions and folder."""
    params = asked.bench
    if params.images is None:
        raise InputError("how many images?", remedy="give --set bench.images=N")
    if params.out is None:
        raise InputError("where to?", remedy="give --set bench.out=DIR")
    source = read_captions(asked.captions, params.split)
    write_corpus(source, params.images, Path(params.out), params.vectors)
    facts = {"images": params.images, "captions": PER_IMAGE * params.images, "out": params.out}
    return {"corpus": facts}


def write_corpus(source: Captions, images: int, out: Path, vectors: bool) -> None:
    """Write a captions folder of `images` generated images of split `train`, and with `vectors`
    stand-ins for their embeddings, vectors.npy. InputError where `out` is anything but such a
    corpus."""
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
    stage = "bench corpus"  # The name keeps a corpus from replacing real captions.
    with output_folder(out, stage) as folder:
        rows = {}
        if vectors:
            with atomic(folder / VECTORS) as temporary, temporary.open("wb") as file:
                np.save(file, stand_in_vectors(Captions(table, _SPLIT, source.tokenizer, "")))
            rows[VECTORS] = table.num_rows
        rows[CAPTIONS_FILE] = write_arrow(folder / CAPTIONS_FILE, table.schema, table.to_batches())
        facts = {"images": images, "splits": {_SPLIT: table.num_rows}, "stage": stage}
        write_manifest(folder, "captions", params=params, inputs=inputs, rows=rows, **facts)


def stand_in_vectors(captions: Captions) -> np.ndarray:
    """Unit vectors float32 [captions, 384] in place of sentence embeddings, for timing alone: sums
    of the words' random vectors, which are longer for rarer words. Equal texts have equal vectors,
    and texts with words in common near ones."""
    codes, start = captions.tokens()
    word = codes.indices.to_numpy(zero_copy_only=False)
    weight = np.log(len(codes) / np.bincount(word))[:, None]
    noise = np.random.default_rng(0).standard_normal((len(weight), _DIM))
    word_vectors = (noise * weight).astype(np.float32)
    out = np.empty((captions.n_captions, _DIM), np.float32)
    for first in range(0, len(out), 8192):
        last = min(first + 8192, len(out))
        vectors = word_vectors[word[start[first] : start[last]]]
        out[first:last] = np.add.reduceat(vectors, start[first:last] - start[first])
        out[first:last] /= np.linalg.norm(out[first:last], axis=1, keepdims=True)
    return out
