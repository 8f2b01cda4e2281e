"""In how many images' reference sets n-grams occur: counted once, kept in a file, used again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.measures.corpus import CaptionSets, are_ids, pair_candidates, token_ids
from capgrade.measures.ngrams import (
    LAST,
    MAX_ORDER,
    Ngrams,
    count_ngrams,
    images_with,
    look_up,
    ngrams_of,
    number_ngrams,
    orders_of,
)
from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.captions import Captions, read_corpus
from capgrade.schemas.errors import InputError
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.say import warn
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import (
    NO_TOKENIZER,
    split_at_spaces,
    split_at_white_space,
    tokenize_as_words,
)

_KIND = "document_frequencies"
_SCHEMA = pa.schema([pa.field("ngram", pa.large_string()), pa.field("images", pa.int32())])


@dataclass(frozen=True)
class Frequencies:
    """In how many of `n_images` reference sets each n-gram of 1 to 4 words occurs, for CIDEr-D.

    `Frequencies.of(references)` counts them, `Frequencies.read(path)` reads what `capgrade
    frequencies` wrote. An n-gram that no set has counts as one that one set has, as in
    pycocoevalcap.
    """

    vocabulary: list[str]
    keys: np.ndarray  # int64 [n_grams], as of `number_ngrams`, of words by their places there
    images: np.ndarray  # int32 [n_grams]
    n_images: int
    tokenizer: str
    corpus: str  # what they were counted on, for metadata

    @classmethod
    def of(
        cls, references: CaptionSets, tokenizer: str = "ptb_py", *, end: int | None = None
    ) -> Frequencies:
        """Count in reference sets, a dict (id -> captions) or a list of sets.

        `tokenizer` "none" takes words between spaces, or token ids, which end with the id `end`
        where it is given. Raises InputError for a set without captions, or an unknown tokenizer.

        >>> Frequencies.of([["a dog runs"], ["a cat", "cats"]]).n_images
        2
        """
        sets = list(references.values()) if isinstance(references, Mapping) else references
        if are_ids(sets):
            if tokenizer != NO_TOKENIZER:
                raise InputError(
                    f"token ids with tokenizer {tokenizer}", remedy='give tokenizer="none"'
                )
            words, sizes = token_ids(end, references=sets)
        else:
            paired = pair_candidates(references, references)
            texts, sizes = paired.texts[len(paired.ids) :], np.diff(paired.pairs.ref_ptr)
            warn_of_scripts(texts, tokenizer)
            words = split_at_white_space(tokenize_as_words(texts, tokenizer, lists=(0,)))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        return cls.count(
            ngrams_of(words), owner, len(sizes), tokenizer, f"{len(sizes)} reference sets"
        )

    @classmethod
    def of_captions(cls, captions: Captions, ngrams: Ngrams | None = None) -> Frequencies:
        """Count in a split's reference sets, as pycocoevalcap's `compute_doc_freq`.

        `ngrams` are those of the captions.
        """
        ngrams = ngrams or count_ngrams(captions)
        corpus = f"captions {captions.digest} split {captions.split}"
        return cls.count(ngrams, captions.owner, captions.n_images, captions.tokenizer, corpus)

    @classmethod
    def count(
        cls, ngrams: Ngrams, owner: np.ndarray, n_images: int, tokenizer: str, corpus: str
    ) -> Frequencies:
        """Count n-grams of sentences.

        `owner`, int64 [sentences], is the image of each, -1 for one that is no reference.
        """
        corpus = f"{corpus} tokenizer {tokenizer}"
        images = images_with(ngrams.sentences, owner, len(ngrams.keys))
        return cls(ngrams.vocabulary, ngrams.keys, images, n_images, tokenizer, corpus)

    def write(self, path: str | Path, force: bool = False) -> None:
        """Write the file of `capgrade frequencies`.

        InputError where a file is, but with `force`.
        """
        refuse_file(Path(path), force)
        schema = with_metadata(
            _SCHEMA, {"kind": _KIND, "n_images": self.n_images, "corpus": self.corpus}
        )
        texts = texts_of(self.keys, self.vocabulary)
        write_arrow(
            Path(path),
            schema,
            [pa.record_batch([texts, pa.array(self.images, pa.int32())], schema=schema)],
        )

    @classmethod
    def read(cls, path: str | Path, tokenizer: str = "ptb_py") -> Frequencies:
        """Read a file that `write` wrote, or count in a captions folder (FOLDER or FOLDER#split).

        Raises InputError when it is neither, was counted with another tokenizer, or has words with
        no-break spaces inside.
        """
        if (captions := read_corpus(str(path))) is not None:
            if captions.tokenizer != tokenizer:
                problem = f"document frequencies with tokenizer {captions.tokenizer}, "
                problem += f"captions with {tokenizer}"
                raise InputError(problem, file=path, remedy="tokenise both alike")
            return cls.of_captions(captions)
        reader = ArrowFile(Path(path))
        metadata = metadata_of(reader.schema)
        if metadata.get("kind") != _KIND:
            remedy = "write one: capgrade frequencies"
            raise InputError("not a file of document frequencies", file=path, remedy=remedy)
        reader.need(pa.schema([]), ("corpus", "n_images"))
        corpus = metadata["corpus"]
        if not corpus.endswith(f" tokenizer {tokenizer}"):
            raise InputError(f"counted on {corpus}; captions have tokenizer {tokenizer}", file=path)
        table = reader.read_all().combine_chunks()
        if pc.any(pc.match_substring(table["ngram"], "\xa0")).as_py():
            problem = "an earlier version counted words with no-break spaces inside, "
            problem += "which are several words now"
            remedy = "count them again: capgrade frequencies"
            raise InputError(problem, file=path, remedy=remedy)
        words = split_at_spaces(table["ngram"].combine_chunks().cast(pa.large_string()))
        # A file has the beginning of each of its n-grams too, so these are all that there are.
        numbers, keys = number_ngrams(words.ptr, words.word)
        images = np.zeros(len(keys), np.int32)
        images[numbers[words.sizes - 1, words.ptr[:-1]]] = table["images"].to_numpy()
        return cls(words.vocabulary, keys, images, metadata["n_images"], tokenizer, corpus)

    @cached_property
    def _number(self) -> dict[str, int]:
        """Of each word, its place in the vocabulary."""
        return {word: k for k, word in enumerate(self.vocabulary)}

    @cached_property
    def _idf(self) -> np.ndarray:
        """ln N - ln max(1, df) of each n-gram, float64 [n_grams + 1]; the last is of any other."""
        return np.log(float(self.n_images)) - np.log(np.maximum(np.append(self.images, 1), 1))

    def idf(self, ngrams: Ngrams) -> np.ndarray:
        """The inverse document frequency of n-grams by their numbers, float64 [n_grams]."""
        if ngrams.keys is self.keys:
            return self._idf[:-1]
        words = np.array([self._number.get(word, -1) for word in ngrams.vocabulary], np.int32)
        return self._idf[look_up(ngrams.keys, words, self.keys)]


def warn_of_one_image(n_images: int) -> None:
    """Say that document frequencies of one image weigh nothing."""
    if n_images == 1:
        warn(
            "document frequencies of one image make every CIDEr-D 0 -> "
            "give frequencies counted on a corpus, as capgrade.Frequencies.of(references), "
            "or --frequencies FILE of `capgrade score`"
        )


def texts_of(keys: np.ndarray, vocabulary: Sequence[str]) -> pa.Array:
    """large_string [n_grams]: the words of each n-gram with spaces between."""
    order = orders_of(keys)
    place = np.empty(len(keys), np.int64)
    words = pa.array(vocabulary, pa.large_string())
    texts: list[pa.Array] = []
    numbers = []
    for n in range(MAX_ORDER):
        at = np.flatnonzero(order == n)
        place[at] = np.arange(len(at))
        own = words.take(pa.array(keys[at] & LAST))
        if n:
            beginning = texts[-1].take(pa.array(place[keys[at] >> 32]))
            own = pc.binary_join_element_wise(beginning, own, pa.scalar(" ", pa.large_string()))
        texts.append(own)
        numbers.append(at)
    return pa.concat_arrays(texts).take(pa.array(np.argsort(np.concatenate(numbers))))
