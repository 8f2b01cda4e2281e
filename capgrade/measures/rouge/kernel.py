"""ROUGE-L of pairs and of rectangles: the kernels.

It is an F-score over longest common subsequences (LCS): of single pairs as defined, in double
precision, of rectangles by the faster bit-parallel LCS (Crochemore et al. 2001), where one step for
a caption's token updates a whole reference held in the bits of a word. A reference of up to 16
tokens is a 16-bit lane, and lanes of many images stand side by side, so that one vector instruction
steps 32 of them. Longer references are chains of 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit, ones
from capgrade.measures.base import ImagePairs, own_pairs

_SHORT = 16  # bits of a short lane
_TOGETHER = 16  # captions whose scores are written together
# A value above is 1 but for rounding, as one word in a thousand makes a difference of 1e-3.
ROUGE_ONE = np.float32(1 - 1e-6)
_LEAST = np.float32(1e-30)  # in place of a denominator of 0


class WordRows(NamedTuple):
    """Words of captions as numbers; one without words has an empty one, as `"".split(" ")`."""

    ptr: np.ndarray  # int64 [sentences + 1]
    word: np.ndarray  # int32


class BlockForm(NamedTuple):
    """How a rectangle is scored: the F-score, and images side by side in blocks."""

    beta2: np.float32
    mean: bool
    n_vocabulary: int
    longest: int  # words of a caption, at most
    width: int  # images of a block
    slots: int  # references of an image, at most


class Lanes(NamedTuple):
    """The references of a block of images: bits say where in a reference a word is.

    A short one of image b stands in a lane, slot * width + b. Other lanes are empty.
    """

    row: np.ndarray  # int32 [n_vocabulary]: a word's row in the masks, -1 where no reference has it
    references: np.ndarray  # int64 [images]: how many each has
    mask: np.ndarray  # uint16 [words, slots * width]
    length: np.ndarray  # float32 [slots * width]
    inverse: np.ndarray  # float32 [slots * width]: 1 / length, 1 of none
    long_mask: np.ndarray  # uint64 [words, chain, long references]
    long_length: np.ndarray  # float32 [long references]
    long_image: np.ndarray  # int64 [long references]


@njit(cache=True)
def _longest_common(a, b, row):
    """Length of the longest common subsequence, by the textbook table.

    `row` has room for the words of b and one more.
    """
    row[: b.shape[0] + 1] = 0
    for word in a:
        diagonal = 0
        for j in range(b.shape[0]):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if word == b[j] else max(above, row[j])
            diagonal = above
    return row[b.shape[0]]


@njit(nogil=True, cache=True)
def _rouge_l_of_pairs(begin, end, pairs, captions, references, longest, beta2, mean, out):
    row = np.empty(longest + 1, np.int32)
    for k in range(begin, end):
        c, image = pairs.captions[k], pairs.images[k]
        caption_words = captions.word[captions.ptr[c] : captions.ptr[c + 1]]
        precision, recall, total, used = 0.0, 0.0, 0.0, 0
        for r in pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]:
            if not (pairs.leave_out and r == c):
                reference_words = references.word[references.ptr[r] : references.ptr[r + 1]]
                common = _longest_common(caption_words, reference_words, row)
                precision = max(precision, common / caption_words.shape[0])
                recall = max(recall, common / reference_words.shape[0])
                total += (
                    (1 + beta2)
                    * common
                    / (caption_words.shape[0] + beta2 * reference_words.shape[0])
                )
                used += 1
        if not used:
            out[k] = np.nan
        elif mean:
            out[k] = total / used
        else:
            below = recall + beta2 * precision
            out[k] = (1 + beta2) * precision * recall / below if below > 0 else 0.0


def score_pairs(
    pairs: ImagePairs,
    captions: WordRows,
    references: WordRows,
    beta: float = 1.2,
    mean: bool = False,
) -> np.ndarray:
    """float64 [pairs]; NaN where no reference is left.

    F of the largest precision and the largest recall over the references, each on its own, as
    pycocoevalcap `rouge/rouge.py` takes them; with `mean` the mean of F over the references.
    """
    out, longest = np.empty(len(pairs.captions)), int(np.diff(references.ptr).max(initial=0))
    in_threads(
        _rouge_l_of_pairs, len(out), pairs, captions, references, longest, beta**2, mean, out
    )
    return out


def lanes_of(
    images: np.ndarray, ref_ptr: np.ndarray, refs: np.ndarray, texts: WordRows, form: BlockForm
) -> Lanes:
    """The lanes of a block of images."""
    image, own = own_pairs(ref_ptr, refs, images)
    sizes, length = ref_ptr[images + 1] - ref_ptr[images], np.diff(texts.ptr)[own]
    lane = (np.arange(len(own)) - np.repeat(np.cumsum(sizes) - sizes, sizes)) * form.width + image
    of = np.repeat(np.arange(len(own)), length)
    place = np.arange(len(of)) - np.repeat(np.cumsum(length) - length, length)
    words, row = np.unique(texts.word[texts.ptr[own][of] + place], return_inverse=True)
    rows, long = np.full(form.n_vocabulary, -1, np.int32), np.flatnonzero(length > _SHORT)
    rows[words] = np.arange(len(words))
    lengths, number = np.zeros(form.slots * form.width, np.float32), np.empty(len(own), np.int64)
    number[long] = np.arange(len(long))
    lengths[lane[length <= _SHORT]] = length[length <= _SHORT]
    mask = np.zeros((len(words), len(lengths)), np.uint16)
    long_mask = np.zeros(
        (len(words), (int(length[long].max(initial=0)) + 63) // 64, len(long)), np.uint64
    )
    short = length[of] <= _SHORT
    np.add.at(mask, (row[short], lane[of[short]]), np.uint16(1) << place[short].astype(np.uint16))
    cells = row[~short], place[~short] // 64, number[of[~short]]
    np.add.at(long_mask, cells, np.uint64(1) << (place[~short] % 64).astype(np.uint64))
    inverse = np.float32(1) / np.maximum(lengths, np.float32(1))
    return Lanes(
        rows, sizes, mask, lengths, inverse, long_mask, length[long].astype(np.float32), image[long]
    )


@njit(cache=True)
def _lcs_of_lanes(words, masks, free, lcs):
    """Put the LCS of a caption and each lane's reference into uint16 [lanes].

    The caption is rows of `masks`, uint16 [words, lanes], whose bits say where in a lane's
    reference a word is. `free` is a buffer of one number a lane.
    """
    free[:] = 0xFFFF
    for row in words:
        mask = masks[row]
        for k in range(free.shape[0]):
            kept = free[k] & mask[k]
            free[k] = (free[k] + kept) | (free[k] - kept)
    # Count the zeros of each lane, in loops of one step each, so that they become vectors.
    for k in range(free.shape[0]):
        lcs[k] = ~free[k]
    for k in range(free.shape[0]):
        lcs[k] -= (lcs[k] >> 1) & 0x5555
    for k in range(free.shape[0]):
        lcs[k] = (lcs[k] & 0x3333) + ((lcs[k] >> 2) & 0x3333)
    for k in range(free.shape[0]):
        lcs[k] = (lcs[k] + (lcs[k] >> 4)) & 0x0F0F
    for k in range(free.shape[0]):
        lcs[k] = (lcs[k] + (lcs[k] >> 8)) & 0x1F


@njit(cache=True)
def _finish_max(lcs, inverse, longest, recall, n, beta2, width, slots, f, share):
    """F of the largest precision and the largest recall over references, into f float32 [width].

    `longest` and `recall` are the largest LCS and recall of long references; `share` is a buffer.
    """
    for k in range(width):
        f[k], share[k] = longest[k], recall[k]
    for s in range(slots):
        some, scale = lcs[s * width : (s + 1) * width], inverse[s * width : (s + 1) * width]
        for k in range(width):
            common = np.float32(np.int32(some[k]))
            f[k] = common if common > f[k] else f[k]
            common *= scale[k]
            share[k] = common if common > share[k] else share[k]
    for k in range(width):
        below = n * share[k] + beta2 * f[k]
        ratio = (np.float32(1) + beta2) * f[k] * share[k] / (below if below > _LEAST else _LEAST)
        f[k] = np.float32(1) if ratio > ROUGE_ONE else ratio


@njit(cache=True)
def _finish_mean(found, lanes, long_lcs, n, beta2, slots, f):
    """Mean over the references of F of each, 1 at most, into f float32 [width]."""
    width = f.shape[0]
    for k in range(width):
        f[k] = 0
    for s in range(slots):
        for k in range(width):
            lcs = np.float32(np.int32(found[s * width + k]))
            f[k] += (np.float32(1) + beta2) * lcs / (n + beta2 * lanes.length[s * width + k])
    for x in range(long_lcs.shape[0]):
        f[lanes.long_image[x]] += (
            (np.float32(1) + beta2) * long_lcs[x] / (n + beta2 * lanes.long_length[x])
        )
    for k in range(lanes.references.shape[0]):
        f[k] = min(f[k] / lanes.references[k], 1.0)


@njit(cache=True, forceinline=True)
def _lcs_of_long(words, masks, state, carry, lcs):
    """Fill float32 [long references] with the LCS of a caption of these words and each."""
    for x in range(lcs.shape[0] if state.shape[0] == 1 else 0):
        s = ~np.uint64(0)
        for row in words:
            u = s & masks[row, 0, x]
            s = (s + u) | (s - u)
        lcs[x] = np.float32(np.int64(ones(~s)))
    if state.shape[0] == 1:
        return
    state[:], lcs[:] = ~np.uint64(0), 0
    for row in words:
        carry[:] = 0
        for w in range(state.shape[0]):
            for x in range(state.shape[1]):
                s = state[w, x]
                u = s & masks[row, w, x]
                t = s + u
                total = t + carry[x]
                carry[x] = np.uint64(t < s) | np.uint64(total < t)
                state[w, x] = total | (s - u)
    for w in range(state.shape[0]):
        for x in range(state.shape[1]):
            lcs[x] += np.float32(np.int64(ones(~state[w, x])))


@njit(cache=True, forceinline=True)
def _largest(lcs, length, image, longest, recall):
    """Of each image the largest LCS with a long reference, and share of it; others have 0."""
    for i in image:
        longest[i], recall[i] = 0, 0
    for x in range(lcs.shape[0]):
        longest[image[x]] = max(longest[image[x]], lcs[x])
        recall[image[x]] = max(recall[image[x]], lcs[x] / length[x])


@njit(cache=True, nogil=True)
def score_block(begin, end, captions, texts, lanes, form, out):
    """Captions begin..end of `captions` with a block of images, into float32 [images, captions]."""
    beta2, mean, _, longest_caption, width, slots = form
    ptr, word = texts
    long = lanes.long_length.shape[0]
    free, found = np.empty(slots * width, np.uint16), np.empty(slots * width, np.uint16)
    tile = np.empty((_TOGETHER, width), np.float32)
    words, share = np.empty(longest_caption + 1, np.int32), np.empty(width, np.float32)
    state, carry = np.empty((lanes.long_mask.shape[1], long), np.uint64), np.empty(long, np.uint64)
    long_lcs = np.empty(long, np.float32)
    longest = np.empty(width, np.float32)
    recall = np.empty(width, np.float32)
    for k in range(width):
        longest[k], recall[k] = 0, 0
    for at in range(begin, end, _TOGETHER):
        some = captions[at : min(at + _TOGETHER, end)]
        for j in range(some.shape[0]):
            first, last, n_words = ptr[some[j]], ptr[some[j] + 1], 0
            for p in range(first, last):
                words[n_words] = lanes.row[word[p]]
                n_words += words[n_words] >= 0
            if long:
                _lcs_of_long(words[:n_words], lanes.long_mask, state, carry, long_lcs)
            _lcs_of_lanes(words[:n_words], lanes.mask, free, found)
            if mean:
                _finish_mean(
                    found, lanes, long_lcs, np.float32(last - first), beta2, slots, tile[j]
                )
            else:
                n = np.float32(last - first)
                _largest(long_lcs, lanes.long_length, lanes.long_image, longest, recall)
                _finish_max(
                    found, lanes.inverse, longest, recall, n, beta2, width, slots, tile[j], share
                )
        for k in range(out.shape[0]):
            values = out[k, at : at + _TOGETHER]
            for j in range(some.shape[0]):
                values[j] = tile[j, k]
