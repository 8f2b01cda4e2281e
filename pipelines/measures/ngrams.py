"""N-grams of tokenised captions as integer ids, and their document frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.pipelines.measures.scores.words import split_at_white_space, tokens_of
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, open_arrow, with_metadata, write_arrow

MAX_ORDER = 4
ID_BITS = 31
MOST_NGRAMS = 2**ID_BITS - 1
FREQUENCIES = "document_frequencies"
FREQUENCY_SCHEMA = pa.schema([pa.field("ngram", pa.large_string()), pa.field("images", pa.int32())])


class Sentences(NamedTuple):
    """Rows of n-grams, each order's in a run of its own."""

    start: np.ndarray  # int64 [sentences, orders]: of a run, whose n-grams ascend
    stop: np.ndarray  # int64 [sentences, orders]
    gram: np.ndarray  # int32
    counts: np.ndarray  # int32: how often, beside `gram`
    words: np.ndarray  # int64 [sentences]


@dataclass(frozen=True)
class Ngrams:
    """Counts of n-grams (n = 1..4) by caption: compressed rows, ids ascending within a row.

    ptr int64 [n_captions + 1]; gram int32 and count int32 [nonzeros]; order int8 [n_grams] is n - 1;
    text: large_string array [n_grams], the words joined by a space; words int64 [n_captions], the caption lengths.
    """

    ptr: np.ndarray
    gram: np.ndarray
    count: np.ndarray
    order: np.ndarray
    text: pa.Array
    words: np.ndarray

    def runs(self, orders: int = MAX_ORDER) -> np.ndarray:
        """int64 [n_captions * orders + 1]: where the n-grams of each order of each caption start, and the last end."""
        row = np.repeat(np.arange(len(self.words)), np.diff(self.ptr))
        sizes = np.bincount(row * orders + self.order[self.gram], minlength=orders * len(self.words))
        return np.append(0, np.cumsum(sizes))


def sentences_of(runs: np.ndarray, gram: np.ndarray, count: np.ndarray, words: np.ndarray) -> Sentences:
    """From `Ngrams.runs` and the fields of `Ngrams`."""
    shape = len(words), -1
    return Sentences(runs[:-1].reshape(shape), runs[1:].reshape(shape), gram, count, words)


def count_ngrams(captions: Captions, most: int = MAX_ORDER) -> Ngrams:
    """Count the n-grams of every caption's words (`words_of`), n = 1..most, as pycocoevalcap's `precook`.

    Words are numbered in alphabetical order, and n-grams by their number of words and then by these: of two n-grams the
    same one has the lower id in any table of captions that has both, so that sums over n-grams have one order.
    """
    found = split_at_white_space(tokens_of(captions))
    words = found.sizes
    row = np.repeat(np.arange(len(words)), words)
    left = found.ptr[row + 1] - np.arange(len(row))  # words from here to the caption's end
    word_text = pa.array(found.vocabulary, pa.large_string())  # n-grams of a large corpus are more than 2 GiB of text
    word = found.word.astype(np.int64)
    order = pc.sort_indices(word_text).to_numpy()
    word_text, word = word_text.take(pa.array(order)), np.argsort(order)[word]
    prefix, texts, cells, orders, base = word.copy(), word_text, [], [], 0
    order_texts = []
    for n in range(1, most + 1):
        at = np.flatnonzero(left >= n)
        if n > 1:
            pairs, ids = np.unique(prefix[at] * len(word_text) + word[at + n - 1], return_inverse=True)
            texts = _extend(texts, word_text, pairs)
            prefix[at] = ids
        cells.append((row[at] << ID_BITS) + (prefix[at] + base))
        orders.append(np.full(len(texts), n - 1, np.int8))
        order_texts.append(texts)
        base += len(texts)
        if base > MOST_NGRAMS:
            problem = f"more than {MOST_NGRAMS:,} different n-grams, which are numbers of 32 bits"
            raise InputError(problem, remedy="divide the corpus, or leave out the measures that count n-grams")
    cell, count = _counted(np.concatenate(cells))
    ptr = np.searchsorted(cell, np.arange(len(words) + 1) << ID_BITS)
    gram = (cell & MOST_NGRAMS).astype(np.int32)
    return Ngrams(ptr, gram, count.astype(np.int32), np.concatenate(orders), pa.concat_arrays(order_texts), words)


def _counted(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As np.unique with counts, but sorted in place and never hashed."""
    cells.sort()
    new = np.ones(len(cells), bool)
    new[1:] = cells[1:] != cells[:-1]
    return cells[new], np.diff(np.flatnonzero(new), append=len(cells))


def _extend(texts: pa.Array, words: pa.Array, pairs: np.ndarray) -> pa.Array:
    """Texts of (prefix id, word id) pairs, each pair coded as prefix * len(words) + word."""
    size = max(len(words), 1)
    space = pa.scalar(" ", pa.large_string())
    return pc.binary_join_element_wise(texts.take(pairs // size), words.take(pairs % size), space)


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many images' reference sets each n-gram occurs: ngram large_string [n], images int32 [n]."""

    ngram: pa.Array
    images: np.ndarray
    n_images: int
    corpus: str  # what it was counted on, for metadata

    def of(self, ngram: pa.Array) -> np.ndarray:
        """int64 [len(ngram)]: the document frequency of each n-gram, 0 when unseen."""
        at = pc.index_in(ngram, value_set=self.ngram)
        found = np.append(self.images, 0)
        return found[pc.fill_null(at, len(self.images)).to_numpy()].astype(np.int64)

    def save(self, path: Path) -> None:
        """Write an Arrow file that `read_document_frequencies` reads."""
        metadata = {"kind": FREQUENCIES, "n_images": self.n_images, "corpus": self.corpus}
        schema = with_metadata(FREQUENCY_SCHEMA, metadata)
        write_arrow(path, schema, [pa.record_batch([self.ngram, pa.array(self.images, pa.int32())], schema=schema)])


@dataclass(frozen=True)
class CountedCaptions(Captions):
    """Captions of a split whose document frequencies are counted already, a part of the images at a time."""

    frequencies: DocumentFrequencies


def document_frequencies(captions: Captions, ngrams: Ngrams | None = None) -> DocumentFrequencies:
    """Count document frequencies over a split's reference sets, as pycocoevalcap's `compute_doc_freq`."""
    if isinstance(captions, CountedCaptions):
        return captions.frequencies
    ngrams = ngrams or count_ngrams(captions)
    row = np.repeat(np.arange(captions.n_captions), np.diff(ngrams.ptr))
    size = max(len(ngrams.text), 1)
    cells = np.sort(captions.owner[row] * size + ngrams.gram)  # np.unique hashes: 100 times as long for millions
    each = cells[np.diff(cells, prepend=-1) > 0]
    images = np.bincount(each % size, minlength=len(ngrams.text)).astype(np.int32)
    corpus = f"captions {captions.digest} split {captions.split} tokenizer {captions.tokenizer}"
    return DocumentFrequencies(ngrams.text, images, captions.n_images, corpus)


def read_document_frequencies(source: str, tokenizer: str) -> DocumentFrequencies:
    """Document frequencies from FOLDER, FOLDER#split (captions) or a file that `capgrade captions --frequencies` wrote.

    Raises InputError when they were counted with another tokenizer, or words with no-break spaces inside.
    """
    folder, _, split = source.partition("#")
    if Path(folder).is_dir():
        captions = read_captions(Path(folder), split or None)
        if captions.tokenizer != tokenizer:
            raise InputError(
                f"document frequencies with tokenizer {captions.tokenizer}, captions with {tokenizer}",
                file=folder, remedy="tokenise both alike",
            )  # fmt: skip
        return document_frequencies(captions)
    reader = open_arrow(Path(source))
    metadata = metadata_of(reader.schema)
    if metadata.get("kind") != FREQUENCIES:
        raise InputError(
            "not a file of document frequencies", file=source, remedy="write one: capgrade captions --frequencies"
        )
    if f"tokenizer {tokenizer}" not in metadata["corpus"]:
        raise InputError(f"counted on {metadata['corpus']}; captions have tokenizer {tokenizer}", file=source)
    table = reader.read_all().combine_chunks()
    if pc.any(pc.match_substring(table["ngram"], "\xa0")).as_py():
        problem = "an earlier version counted words with no-break spaces inside, which are several words now"
        raise InputError(problem, file=source, remedy="count them again: capgrade captions --frequencies")
    images = table["images"].to_numpy()
    return DocumentFrequencies(
        table["ngram"].combine_chunks().cast(pa.large_string()), images, metadata["n_images"], metadata["corpus"]
    )
