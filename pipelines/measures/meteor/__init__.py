"""METEOR 1.5 of every caption with every image's reference set, without Java.

What the jar that pycocoevalcap carries computes with `-l en -norm`: stages exact, stem, synonym and paraphrase, the
aligner's beam search, and the best score over the references. Words, stems, synonym sets and paraphrases are
looked up once for all captions; what matches an image's references is then a table by unit of a caption, so that a
pair costs what its common words cost. Words are the caption's tokens, normalised once more as METEOR does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from capgrade.pipelines.measures.base import ArrayState, by_image, leaves_out
from capgrade.pipelines.measures.language import warn_unless_english
from capgrade.pipelines.measures.meteor import kernel, tops_kernel
from capgrade.pipelines.measures.meteor.data import read_lexicon
from capgrade.pipelines.measures.meteor.index import Index, build_index
from capgrade.pipelines.measures.meteor.tops import bound_index
from capgrade.pipelines.measures.tops import Tops, every_pair, sorted_tops
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeteorParams
from capgrade.schemas.threads import get_num_threads
from capgrade.schemas.ties import Ties


@dataclass(frozen=True)
class FittedMeteor(ArrayState):
    """The captions as words and phrases, and which of them match (`index.Index`)."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    ptr: np.ndarray
    function: np.ndarray
    function_bits: np.ndarray
    weight: np.ndarray
    same: np.ndarray
    unit_ptr: np.ndarray
    unit_start: np.ndarray
    unit_length: np.ndarray
    unit: np.ndarray
    match_ptr: np.ndarray
    match_unit: np.ndarray
    match_stage: np.ndarray
    match_rank: np.ndarray
    leave_out: bool

    @property
    def columns(self) -> int:
        """As `Fitted.columns`."""
        return len(self.ptr) - 1

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`."""
        some, ptr, order = by_image(images)
        values = np.empty(len(captions), np.float32)
        kernel.score(some, ptr, captions[order], *self.arrays, values)
        out = np.empty_like(values)
        out[order] = values
        return out

    def tops(self, images: np.ndarray, k: int, ties: Ties) -> Tops:
        """As `Searches.tops`: by the bounds of `tops_kernel`, where the captions are few words enough for them."""
        if self._longest > tops_kernel.MOST_WORDS or k >= (len(self.ptr) - 1) // 4:
            return every_pair(self, images, k, ties)
        rows, values = np.empty((len(images), k), np.int64), np.empty((len(images), k), np.float32)
        pairs = np.zeros(len(images), np.int64)
        found = ties.images[images], ties.captions, rows, values, pairs
        tops_kernel.tops(get_num_threads(), images, *self.arrays, self.bounds, *found)
        return sorted_tops(images, rows, values, pairs, k, ties)

    @cached_property
    def bounds(self) -> tops_kernel.BoundIndex:
        return bound_index(self)

    @property
    def _longest(self) -> int:
        return int(np.diff(self.ptr).max(initial=0))

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, bool, Index, int]:
        """What the kernels take: references, whether a caption is left out of its own, index, words of the longest."""
        index = Index(*(getattr(self, name) for name in Index._fields))
        return self.ref_ptr, self.refs, self.leave_out, index, max(self._longest, 1)


class Meteor:
    """METEOR 1.5, 0..1, English: F = P R / (α P + (1 - α) R) less a penalty for fragmentation, the best over the
    references (Denkowski and Lavie 2014). Equal to pycocoevalcap `meteor/meteor.py`."""

    low, high = 0.0, 1.0

    def __init__(self, params: MeteorParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedMeteor:
        """Look up the captions' words and phrases. InputError when `left_out` leaves an image without references, or
        METEOR's data is missing."""
        leave_out = leaves_out(self.params.self_reference, captions)
        warn_unless_english("meteor", captions)
        index = build_index(caption_lines(captions), read_lexicon())
        return FittedMeteor(captions.ref_ptr, captions.refs, **index._asdict(), leave_out=leave_out)


def caption_lines(captions: Captions) -> list[str]:
    """Each caption's tokens joined by a space. InputError where METEOR's protocol would take a caption for several."""
    lines: list[str] = pc.binary_join(captions.table["tokens"], " ").to_pylist()
    for row, line in enumerate(lines):
        if "|||" in line:
            raise InputError(
                f"caption '{captions.caption_ids[row]}' has '|||', which separates METEOR's captions",
                remedy="remove it from the caption",
            )
    return lines
