"""BLEU of single pairs, in double precision: the definition, which every other road is held to."""

from __future__ import annotations

import numpy as np

from capgrade.pipelines.measures.ngrams import Sentences
from capgrade.schemas.compiled import njit
from capgrade.schemas.threads import in_threads

TINY, SMALL = 1e-15, 1e-9  # of bleu_scorer.py: added to what matches, and to what could


@njit(cache=True)
def _clipped(c, own, n, captions, references, found):
    """Matches of order n + 1 of caption c, each n-gram counted at most as often as in one of the references `own`."""
    start, size = captions.start[c, n], captions.stop[c, n] - captions.start[c, n]
    found[:size] = 0
    for r in own:
        at, end = references.start[r, n], references.stop[r, n]
        for x in range(size):
            while at < end and references.gram[at] < captions.gram[start + x]:
                at += 1
            if at < end and references.gram[at] == captions.gram[start + x]:
                found[x] = max(found[x], references.counts[at])
    total = 0
    for x in range(size):
        total += min(found[x], captions.counts[start + x])
    return total


@njit(cache=True)
def _closest(size, own, references):
    """The length of the reference that is nearest in length, the shorter of two; -1 of none."""
    closest = np.int64(-1)
    for r in own:
        words = references.words[r]
        nearer, near = abs(words - size), abs(closest - size)
        if closest < 0 or nearer < near or (nearer == near and words < closest):
            closest = words
    return closest


@njit(nogil=True, cache=True)
def _count(begin, end, images, rows, captions, references, ref_ptr, refs, leave_out, out):
    most = captions.start.shape[1]
    for k in range(begin, end):
        c, own = rows[k], refs[ref_ptr[images[k]] : ref_ptr[images[k] + 1]]
        if leave_out:
            own = own[own != c]
        size = captions.words[c]
        found = np.empty(size, np.int64)
        out[k, 0], out[k, 1] = size, _closest(size, own, references)
        for n in range(most):
            out[k, 2 + n] = _clipped(c, own, n, captions, references, found)
            out[k, 2 + most + n] = max(size - n, 0)


def statistics_of_pairs(
    images: np.ndarray, rows: np.ndarray, captions: Sentences, references: Sentences, ref_ptr: np.ndarray,
    refs: np.ndarray, leave_out: bool = False,
) -> np.ndarray:  # fmt: skip
    """Counts of each pair, float64 [pairs, 2 + 2 orders]: the caption's words, those of the reference of closest
    length, matches of each order, n-grams of each order.

    Pair k is caption rows[k] with the references of image images[k], rows of `references` that are
    refs[ref_ptr[image] : ref_ptr[image + 1]]; with `leave_out` without row rows[k].
    """
    out = np.empty((len(rows), 2 + 2 * captions.start.shape[1]))
    in_threads(_count, len(out), images, rows, captions, references, ref_ptr, refs, leave_out, out)
    return out


def bleu_of(statistics: np.ndarray) -> np.ndarray:
    """BLEU-1..most from counts or sums of counts [..., 2 + 2 most], float64 [..., most].

    `BP (Π_n correct_n / guess_n)^(1/k)`, n = 1..k; source: pycocoevalcap `bleu_scorer.py`, with its 1e-15 and 1e-9.
    """
    most = (statistics.shape[-1] - 2) // 2
    words, closest = statistics[..., 0], statistics[..., 1]
    correct, guess = statistics[..., 2 : 2 + most], statistics[..., 2 + most :]
    precision = np.cumprod((correct + TINY) / (guess + SMALL), axis=-1) ** (1 / np.arange(1, most + 1))
    ratio = (words + TINY) / (closest + SMALL)
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.where(ratio < 1, np.exp(1 - 1 / ratio), 1.0)
    return precision * penalty[..., None]
