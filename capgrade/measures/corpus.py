"""A corpus to score: candidates and references, prepared when a score first asks; and a score.

Captions are texts, or the token ids that a captioner samples. Token ids are the same as the ids
written with spaces between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from capgrade.measures.base import ImagePairs, OfReferences
from capgrade.measures.ngrams import Ngrams, ngrams_of
from capgrade.schemas.captions import SCHEMA, Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import (
    Words,
    fill_empty_sentences,
    split_at_white_space,
    tokenize_as_words,
)

if TYPE_CHECKING:
    from capgrade.measures.frequencies import Frequencies

CaptionSets = Mapping[Any, str | Sequence[str]] | Sequence[str | Sequence[str]]


@dataclass(frozen=True)
class Candidates:
    """Candidates, and the reference set of each one's image.

    `ids` [candidates]: the image of each as it was given; `texts`: candidates, then references;
    `pairs`: each candidate with the references of its image, as rows of `texts`.
    """

    ids: list[Any]
    texts: list[str]
    pairs: ImagePairs


def pair_candidates(candidates: CaptionSets, references: CaptionSets) -> Candidates:
    """From two dicts (id -> captions) or two lists in one order; a string stands for one caption.

    Raises InputError for ids or lengths that differ, an image without captions, or what is not
    text.

    >>> pair_candidates({"x": "a dog"}, {"x": ["a dog runs", "dogs"]}).texts
    ['a dog', 'a dog runs', 'dogs']
    """
    for what, captions in (("candidates", candidates), ("references", references)):
        if isinstance(captions, str) or not hasattr(captions, "__len__"):
            raise InputError(
                f"{what} are {captions!r}",
                remedy="give a dict (id -> captions), or a list with a set for each image",
            )
    if isinstance(candidates, Mapping) != isinstance(references, Mapping):
        raise InputError(
            "candidates and references are not both dicts or both lists", remedy="give them alike"
        )
    if isinstance(candidates, Mapping) and isinstance(references, Mapping):
        _check_ids(candidates, references)
        images = list(candidates)
        candidate_sets = list(candidates.values())
        reference_sets = [references[i] for i in candidates]
    else:
        if len(candidates) != len(references):
            problem = f"{len(candidates)} candidates, but {len(references)} reference sets"
            raise InputError(problem, remedy="give one set of references for each image")
        images = list(range(len(candidates)))
        candidate_sets, reference_sets = list(candidates), list(references)
    if not images:
        raise InputError("no candidates", remedy="give one image or more")
    texts, sizes = _texts_of(candidate_sets, "candidates", images)
    reference_texts, reference_sizes = _texts_of(reference_sets, "references", images)
    owner, rows = np.repeat(np.arange(len(images)), sizes), np.arange(len(texts + reference_texts))
    ref_ptr = np.concatenate([[0], np.cumsum(reference_sizes)])
    pairs = ImagePairs(owner, rows[: len(texts)], ref_ptr, rows[len(texts) :])
    return Candidates([images[k] for k in owner.tolist()], texts + reference_texts, pairs)


def _check_ids(candidates: Mapping, references: Mapping) -> None:
    for ids, others, name in (
        (candidates, references, "references"),
        (references, candidates, "candidates"),
    ):
        missing = [image for image in ids if image not in others]
        if missing:
            raise InputError(
                f"{len(missing)} image(s) have no {name}, {missing[0]!r} the first",
                remedy=(
                    "give candidates and references of the same ids (an id '1' is not the number 1)"
                ),
            )


def _texts_of(sets: Sequence[Any], what: str, images: Sequence[Any]) -> tuple[list[str], list[int]]:
    """The captions of all sets, and how many each has. InputError for none, or what is not text."""
    texts: list[str] = []
    sizes = []
    for captions, image in zip(sets, images, strict=True):
        if isinstance(captions, str):
            captions = [captions]
        elif hasattr(captions, "tolist"):
            captions = captions.tolist()
        row = f"{what}[{image!r}]"
        if not isinstance(captions, Sequence) or not len(captions):
            problem = f"no list of captions: {captions!r}"
            raise InputError(problem, row=row, remedy="give one or more")
        for k, text in enumerate(captions):
            if not isinstance(text, str):
                problem, remedy = f"not text: {text!r}", "give captions as strings"
                raise InputError(problem, row=f"{row}[{k}]", remedy=remedy)
        texts += captions
        sizes.append(len(captions))
    return texts, sizes


def are_ids(sets: Any) -> bool:
    """Whether the first caption of the first set is a sequence of numbers, not a text."""
    try:
        first = next(iter(next(iter(sets))))
    except (TypeError, StopIteration):
        return False
    return hasattr(first, "__len__") and not isinstance(first, str)


def token_ids(end: int | None, **several: Sequence[Any]) -> tuple[Words, np.ndarray]:
    """Sets of captions, each a caption's token ids, as words, and how many captions each set has.

    A word is an id as it is written; sizes are int64. A set is a list of captions or an array
    [captions, length]; a caption is a list, array or tensor of ids. With `end` a caption ends with
    its first `end`, and what follows is padding. InputError for what is no id.
    """
    flat, rows, sizes = [np.empty(0, np.int64)], [""], []
    for row, own in (
        (f"{what}[{k}]", own) for what, sets in several.items() for k, own in enumerate(sets)
    ):
        captions = [_require_ids(caption, row) for caption in _as_numpy(own)]
        if not captions:
            raise InputError("no captions", row=row, remedy="give one or more")
        flat += captions
        rows += [row] * len(captions)
        sizes.append(len(captions))
    ids = np.concatenate(flat).astype(np.int64, copy=False)
    if ids.min(initial=0) < 0:
        row = next(
            row for row, caption in zip(rows, flat, strict=True) if caption.min(initial=0) < 0
        )
        remedy = "ids are 0 or more; pad with the end mark and give end="
        raise InputError(f"token id {ids.min()}", row=row, remedy=remedy)
    ptr = np.cumsum([len(caption) for caption in flat])
    if end is not None:
        ptr, ids = _cut_at_end(ptr, ids, end)
    different, word = np.unique(ids, return_inverse=True)
    return Words(ptr, word.astype(np.int32), [str(caption) for caption in different]), np.array(
        sizes
    )


def _cut_at_end(ptr: np.ndarray, ids: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Captions without what follows their first `end`."""
    ends = np.concatenate([[0], np.cumsum(ids == end)])  # before each token
    kept = ends[:-1] == np.repeat(ends[ptr[:-1]], np.diff(ptr))
    return np.concatenate([[0], np.cumsum(kept)])[ptr], ids[kept]


def _as_numpy(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _require_ids(caption: Any, row: str) -> np.ndarray:
    ids = np.asarray(_as_numpy(caption))
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(
            f"no token ids: {caption!r}",
            row=row,
            remedy="give each caption as a list of whole numbers",
        )
    return ids


@dataclass(frozen=True)
class Corpus:
    """Candidates (the first sentences), references, and how they are tokenised."""

    candidates: Candidates
    tokenizer: str = "ptb_py"
    frequencies: Frequencies | None = None

    def __post_init__(self) -> None:
        if self.frequencies is not None and self.frequencies.tokenizer != self.tokenizer:
            problem = f"document frequencies with tokenizer {self.frequencies.tokenizer}, "
            problem += f"captions with {self.tokenizer}"
            raise InputError(problem, remedy="tokenise both alike")

    @cached_property
    def tokens(self) -> Words:
        """Tokens; a sentence without any has one empty word, as pycocoevalcap's ROUGE-L sees it."""
        warn_of_scripts(self.candidates.texts, self.tokenizer)
        # pycocoevalcap hands candidates, then references to the tokenizer's jar.
        lists = (0, len(self.candidates.ids))
        return fill_empty_sentences(tokenize_as_words(self.candidates.texts, self.tokenizer, lists))

    @cached_property
    def words(self) -> Words:
        """Words as BLEU and CIDEr-D count them."""
        return split_at_white_space(self.tokens)

    @cached_property
    def ngrams(self) -> Ngrams:
        """Of every sentence, counted."""
        return ngrams_of(self.words)

    def warn_of_empty(self) -> None:
        """Say how many captions have no words: their scores are 0."""
        n, sizes = len(self.candidates.ids), self.words.sizes
        for what, empty in (("candidate", sizes[:n] == 0), ("reference", sizes[n:] == 0)):
            if empty.any():
                warn(
                    f"{int(empty.sum())} {what}(s) have no words, so measures of common words give"
                    " 0 with them"
                )

    @cached_property
    def table(self) -> Captions:
        """The sentences as a captions table, each an image of its own."""
        rows = pa.array([str(k) for k in range(len(self.candidates.texts))])
        tokens = pa.ListArray.from_arrays(
            pa.array(self.tokens.ptr, pa.int32()),
            pa.DictionaryArray.from_arrays(self.tokens.word, pa.array(self.tokens.vocabulary)).cast(
                pa.string()
            ),
        )
        split = pa.array([""] * len(rows))
        columns = [
            rows,
            rows,
            split,
            pa.array(self.candidates.texts),
            tokens,
            pa.nulls(len(rows), pa.string()),
        ]
        return Captions(pa.Table.from_arrays(columns, schema=SCHEMA), "", self.tokenizer, "")


def own_scores(fitted: OfReferences, corpus: Corpus) -> np.ndarray:
    """float32 [candidates]: the measure of each candidate with its own references.

    `fitted` is fitted on the corpus' table.
    """
    pairs = corpus.candidates.pairs
    return fitted.regroup(pairs.ref_ptr, pairs.refs).pairs(pairs.images, pairs.captions)
