"""ROUGE-L of single pairs, in double precision: the definition, which every other road is held to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import in_threads


class Sentences(NamedTuple):
    """Words of sentences as numbers; one without words has an empty one, as `"".split(" ")`."""

    ptr: np.ndarray  # int64 [sentences + 1]
    word: np.ndarray  # int32


@njit(cache=True)
def _longest_common(a, b, row):
    """Length of the longest common subsequence by the textbook table; `row` has room for b and one more."""
    row[: b.shape[0] + 1] = 0
    for word in a:
        diagonal = 0
        for j in range(b.shape[0]):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if word == b[j] else max(above, row[j])
            diagonal = above
    return row[b.shape[0]]


@njit(nogil=True, cache=True)
def rouge_l_of_pairs(
    begin, end, images, rows, captions, references, ref_ptr, refs, longest, beta2, mean, leave_out, out
):
    row = np.empty(longest + 1, np.int32)
    for k in range(begin, end):
        mine = captions.word[captions.ptr[rows[k]] : captions.ptr[rows[k] + 1]]
        precision, recall, total, used = 0.0, 0.0, 0.0, 0
        for r in refs[ref_ptr[images[k]] : ref_ptr[images[k] + 1]]:
            if not (leave_out and r == rows[k]):
                theirs = references.word[references.ptr[r] : references.ptr[r + 1]]
                common = _longest_common(mine, theirs, row)
                precision = max(precision, common / mine.shape[0])
                recall = max(recall, common / theirs.shape[0])
                total += (1 + beta2) * common / (mine.shape[0] + beta2 * theirs.shape[0])
                used += 1
        if not used:
            out[k] = np.nan
        elif mean:
            out[k] = total / used
        else:
            below = recall + beta2 * precision
            out[k] = (1 + beta2) * precision * recall / below if below > 0 else 0.0


def score_pairs(
    images: np.ndarray, rows: np.ndarray, captions: Sentences, references: Sentences, ref_ptr: np.ndarray,
    refs: np.ndarray, beta: float = 1.2, mean: bool = False, leave_out: bool = False,
) -> np.ndarray:  # fmt: skip
    """float64 [pairs]: caption rows[k] with the references of image images[k], rows of `references` that are
    refs[ref_ptr[image] : ref_ptr[image + 1]]; with `leave_out` without row rows[k]. NaN where none is left.

    F of the largest precision and the largest recall over the references, each on its own, as pycocoevalcap
    `rouge/rouge.py` takes them; with `mean` the mean of F over the references.
    """
    out, longest = np.empty(len(rows)), int(np.diff(references.ptr).max(initial=0))
    args = images, rows, captions, references, ref_ptr, refs, longest, beta**2, mean, leave_out, out
    in_threads(rouge_l_of_pairs, len(out), *args)
    return out
