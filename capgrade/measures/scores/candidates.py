"""Candidates and references as texts, or as the token ids that a captioner samples.

Token ids are the same as the ids written with spaces between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.measures.base import ImagePairs
from capgrade.schemas.errors import InputError
from capgrade.text.tokens import Words

CaptionSets = Mapping[Any, str | Sequence[str]] | Sequence[str | Sequence[str]]


@dataclass(frozen=True)
class Candidates:
    """Candidates, and the reference set of each one's image.

    `ids` [candidates]: the image of each as it was given; `texts`: candidates, then references;
    `owner` int64 [candidates]: number of the image; `ref_ptr` int64 [images + 1]: where each
    image's references start.
    """

    ids: list[Any]
    texts: list[str]
    owner: np.ndarray
    ref_ptr: np.ndarray

    @property
    def pairs(self) -> ImagePairs:
        """Each candidate with the references of its image."""
        return ImagePairs(self.owner, np.arange(len(self.owner)), self.ref_ptr, self.refs)

    @property
    def refs(self) -> np.ndarray:
        """Rows of the references."""
        return np.arange(len(self.owner), len(self.texts))

    @property
    def n_images(self) -> int:
        return len(self.ref_ptr) - 1


def pair_candidates(candidates: CaptionSets, references: CaptionSets) -> Candidates:
    """From two dicts (id -> captions) or two lists in one order; a string stands for one caption.

    Raises InputError for ids or lengths that differ, an image without captions, or what is not
    text.
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
        images, candidate_sets, reference_sets = (
            list(range(len(candidates))),
            list(candidates),
            list(references),
        )
    if not images:
        raise InputError("no candidates", remedy="give one image or more")
    sets = [
        _require_captions(captions_of, "candidates", image)
        for captions_of, image in zip(candidate_sets, images, strict=True)
    ]
    refs = [
        _require_captions(captions_of, "references", image)
        for captions_of, image in zip(reference_sets, images, strict=True)
    ]
    owner = np.repeat(np.arange(len(images)), [len(captions_of) for captions_of in sets])
    ref_ptr = np.concatenate([[0], np.cumsum([len(captions_of) for captions_of in refs])])
    texts = [text for captions_of in (*sets, *refs) for text in captions_of]
    return Candidates([images[k] for k in owner], texts, owner, ref_ptr)


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


def _require_captions(captions: Any, what: str, image: Any) -> Sequence[str]:
    """The captions of one image. InputError for none, or what is not text."""
    texts = (
        [captions]
        if isinstance(captions, str)
        else captions.tolist()
        if hasattr(captions, "tolist")
        else captions
    )
    if not isinstance(texts, Sequence) or not len(texts):
        raise InputError(
            f"no list of captions: {captions!r}",
            row=f"{what}[{image!r}]",
            remedy="give one or more",
        )
    for k, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"not text: {text!r}",
                row=f"{what}[{image!r}][{k}]",
                remedy="give captions as strings",
            )
    return texts


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
