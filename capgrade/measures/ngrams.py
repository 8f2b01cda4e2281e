"""N-grams of sentences as numbers, counted, and in how many images' reference sets they occur."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, open_arrow, with_metadata, write_arrow
from capgrade.text.words import Words, split_at_white_space, tokens_of

MAX_ORDER = 4
ID_BITS = 31
MOST_NGRAMS = 2**ID_BITS - 1
LAST = 0xFFFFFFFF  # bits of a key that are its last word
ALONE = -1  # in place of a beginning, for the first word
FREQUENCIES = "document_frequencies"
FREQUENCY_SCHEMA = pa.schema([pa.field("ngram", pa.large_string()), pa.field("images", pa.int32())])


class Sentences(NamedTuple):
    """Rows of n-grams, each order's in a run of its own."""

    start: np.ndarray  # int64 [sentences, orders]: of a run, whose n-grams ascend
    stop: np.ndarray  # int64 [sentences, orders]
    gram: np.ndarray  # int32
    counts: np.ndarray  # int32: how often, beside `gram`
    words: np.ndarray  # int64 [sentences]

    @property
    def runs(self) -> np.ndarray:
        """As `sentences_of` takes them."""
        return np.append(self.start, len(self.gram))

    @property
    def row(self) -> np.ndarray:
        """int64 [n-grams]: the sentence of each of `gram`."""
        return np.repeat(np.arange(len(self.words)), self.stop[:, -1] - self.start[:, 0])


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of sentences, counted; `keys` as of `number_ngrams`, by the numbers of `vocabulary`."""

    sentences: Sentences
    keys: np.ndarray
    vocabulary: pa.Array

    @cached_property
    def order(self) -> np.ndarray:
        """int8 [n_grams]: words of each, less one."""
        return orders_of(self.keys)

    @cached_property
    def text(self) -> pa.Array:
        """large_string [n_grams]: the words of each with spaces between."""
        return texts_of(self.keys, self.vocabulary)


def orders_of(keys: np.ndarray) -> np.ndarray:
    """int8 [n_grams]: words of each n-gram, less one."""
    before, order = keys >> 32, np.zeros(len(keys), np.int8)
    longer = before != ALONE
    for _ in range(MAX_ORDER - 1):
        order[longer] = order[before[longer]] + 1
    return order


def texts_of(keys: np.ndarray, vocabulary: pa.Array) -> pa.Array:
    """large_string [n_grams]: the words of each n-gram with spaces between."""
    order, place = orders_of(keys), np.empty(len(keys), np.int64)
    texts: list[pa.Array] = []
    numbers = []
    for n in range(MAX_ORDER):
        at = np.flatnonzero(order == n)
        place[at] = np.arange(len(at))
        own = vocabulary.take(pa.array(keys[at] & LAST))
        if n:
            beginning = texts[-1].take(pa.array(place[keys[at] >> 32]))
            own = pc.binary_join_element_wise(beginning, own, pa.scalar(" ", pa.large_string()))
        texts.append(own)
        numbers.append(at)
    return pa.concat_arrays(texts).take(pa.array(np.argsort(np.concatenate(numbers))))


def sentences_of(runs: np.ndarray, gram: np.ndarray, counts: np.ndarray, words: np.ndarray) -> Sentences:
    """From where the runs start, and the last ends: int64 [sentences * orders + 1]."""
    shape = len(words), -1
    return Sentences(runs[:-1].reshape(shape), runs[1:].reshape(shape), gram, counts, words)


def number_ngrams(ptr: np.ndarray, word: np.ndarray, most: int = MAX_ORDER) -> tuple[np.ndarray, np.ndarray]:
    """The number of the n-gram that starts at each word, int32 [most, words], -1 where there is none; and the key of
    each number, int64 [n_grams], which rise: the number of its beginning << 32 | its last word.

    Words of sentence s are `word[ptr[s]:ptr[s + 1]]`, int32. InputError for more n-grams than have numbers.
    """
    numbers, keys, n = np.full((most, len(word)), -1, np.int32), [np.empty(0, np.int64)], 0
    left = np.repeat(ptr[1:], np.diff(ptr)) - np.arange(len(word))
    for k in range(most):
        at = np.flatnonzero(left > k)
        key = (numbers[k - 1, at].astype(np.int64) if k else ALONE) << 32 | word[at + k].astype(np.int64)
        order = np.argsort(key)
        key = key[order]
        first = np.append(True, np.diff(key) != 0)[: len(key)]
        numbers[k, at[order]] = n - 1 + np.cumsum(first)
        keys.append(key[first])
        n += len(keys[-1])
        if n > MOST_NGRAMS:
            problem = f"more than {MOST_NGRAMS:,} different n-grams, which are numbers of 32 bits"
            raise InputError(problem, remedy="divide the corpus, or leave out the measures that count n-grams")
    return numbers, np.concatenate(keys)


def look_up(keys: np.ndarray, words: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The number of n-grams with these keys among the keys `known`, int32 [n_grams], -1 where it is not there; `words`
    int32 has the number there of each word, -1 where it has none."""
    out, order = np.full(len(keys), -1, np.int32), orders_of(keys)
    for k in range(MAX_ORDER if len(known) else 0):
        at = np.flatnonzero(order == k)
        last, before = words[keys[at] & LAST].astype(np.int64), out[keys[at] >> 32].astype(np.int64) if k else ALONE
        wanted = before << 32 | last
        place = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        there = (known[place] == wanted) & (last >= 0) & ((before >= 0) | (k == 0))
        out[at[there]] = place[there]
    return out


def counted(ptr: np.ndarray, numbers: np.ndarray) -> Sentences:
    """The n-grams of sentences, counted; from `number_ngrams`."""
    most, words = len(numbers), np.diff(ptr)
    runs = np.repeat(np.arange(len(words)), words) * most + np.arange(most)[:, None]
    cells = (runs << ID_BITS | numbers)[numbers >= 0]
    cells.sort()
    first = np.flatnonzero(np.diff(cells, prepend=-1))
    cells, counts = cells[first], np.diff(first, append=len(cells))
    runs = np.searchsorted(cells, np.arange(len(words) * most + 1) << ID_BITS)
    return sentences_of(runs, (cells & MOST_NGRAMS).astype(np.int32), counts.astype(np.int32), words)


def alphabetical(words: Words, most: int = MAX_ORDER) -> Ngrams:
    """The n-grams of sentences, n = 1..most, as pycocoevalcap's `precook`.

    Words are numbered in alphabetical order, and n-grams by how many words they have and then by these: of two n-grams
    the same one has the lower number in any table that has both, so that sums over n-grams have one order.
    """
    vocabulary = pa.array(words.vocabulary, pa.large_string())  # n-grams of a large corpus are more than 2 GiB of text
    order = pc.sort_indices(vocabulary).to_numpy()
    word = np.argsort(order).astype(np.int32)[words.word]
    numbers, keys = number_ngrams(words.ptr, word, most)
    return Ngrams(counted(words.ptr, numbers), keys, vocabulary.take(pa.array(order)))


def count_ngrams(captions: Captions, most: int = MAX_ORDER) -> Ngrams:
    """`alphabetical`, of every caption's words (`words_of`)."""
    return alphabetical(split_at_white_space(tokens_of(captions)), most)


def images_with(sentences: Sentences, owner: np.ndarray, n_grams: int) -> np.ndarray:
    """int32 [n_grams]: how many images' reference sets have each n-gram, as pycocoevalcap's `compute_doc_freq`; `owner`
    int64 [sentences], -1 for one that is no reference."""
    image = owner[sentences.row]
    size = max(n_grams, 1)
    cells = image * size + sentences.gram
    cells = np.sort(cells[image >= 0])  # np.unique hashes: 100 times as long for millions
    return np.bincount(cells[np.diff(cells, prepend=-1) > 0] % size, minlength=n_grams).astype(np.int32)


class Postings(NamedTuple):
    """The captions of each term, which is an n-gram and how often a caption has it, as ranks."""

    term_ptr: np.ndarray  # int64 [n_grams + 1]
    term_count: np.ndarray  # int32 [terms]
    ptr: np.ndarray  # int64 [terms + 1]
    rank: np.ndarray  # int32 [postings], ascending within a term
    dense_row: np.ndarray  # int32 [terms]: row in `dense`, -1 for postings
    dense: np.ndarray  # [dense terms, n_captions], columns by rank


def postings(ngrams: Ngrams, rank: np.ndarray, value: np.ndarray, share: float) -> Postings:
    """With captions at these ranks, int32 [n_captions]. A term of more than this share of the captions is a dense row
    too: of `value`, which is given for each n-gram of each caption."""
    sentences = ngrams.sentences
    term, place = sentences.gram.astype(np.int64) << 32 | sentences.counts, rank[sentences.row]
    by_term = np.lexsort((place, term))
    term, place, value = term[by_term], place[by_term], value[by_term]
    start = np.flatnonzero(np.diff(term, prepend=-1))
    ptr, of_gram = np.append(start, len(term)), term[start] >> 32
    frequent = np.flatnonzero(np.diff(ptr) > share * len(rank))
    dense_row = np.full(len(start), -1, np.int32)
    dense_row[frequent] = np.arange(len(frequent))
    dense = np.zeros((len(frequent), len(rank)), value.dtype)
    for k, t in enumerate(frequent):
        some = slice(ptr[t], ptr[t + 1])
        dense[k, place[some]] = value[some]
    term_ptr = np.searchsorted(of_gram, np.arange(len(ngrams.keys) + 1))
    return Postings(term_ptr, (term[start] & LAST).astype(np.int32), ptr, place, dense_row, dense)


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


def document_frequencies(captions: Captions, ngrams: Ngrams | None = None) -> DocumentFrequencies:
    """Count document frequencies over a split's reference sets, as pycocoevalcap's `compute_doc_freq`."""
    ngrams = ngrams or count_ngrams(captions)
    images = images_with(ngrams.sentences, captions.owner, len(ngrams.keys))
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
