"""ROUGE-L of every caption with every image's reference set.

The F-score of pycocoevalcap (`rouge/rouge.py`) over longest common subsequences (LCS): of single pairs as it is
defined, in double precision; of rectangles faster. Their kernel is the
bit-parallel LCS (Crochemore et al. 2001): one step a caption token updates a whole reference held in the bits of
a word. Here a reference of up to 16 tokens is one 16-bit lane, and the lanes of many images stand side by side,
so one vector instruction steps 32 references; a caption token that no reference of the block contains costs
nothing. References of up to 64 tokens have 64-bit lanes; longer ones chains of 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capgrade.bits import ones
from capgrade.kernels import in_threads, njit
from capgrade.measures.base import UNIT, ArrayState, Error, Fill, ImagePairs, leaves_out
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import RougeParams
from capgrade.text.words import tokens_of, without_empty_sentences

SHORT = 16  # bits of a short lane
IMAGES = 64  # images whose lanes stand side by side, as many as fit MOST
MOST = 512  # lanes
SOME = 16  # captions whose scores are written together
ONE = np.float32(1 - 1e-6)  # what is above is 1, but for rounding: one word in a thousand is 1e-3
LEAST = np.float32(1e-30)


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
def rouge_l_of_pairs(begin, end, pairs, captions, references, longest, beta2, mean, out):
    row = np.empty(longest + 1, np.int32)
    for k in range(begin, end):
        c, image = pairs.captions[k], pairs.images[k]
        mine = captions.word[captions.ptr[c] : captions.ptr[c + 1]]
        precision, recall, total, used = 0.0, 0.0, 0.0, 0
        for r in pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]:
            if not (pairs.leave_out and r == c):
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
    pairs: ImagePairs, captions: WordRows, references: WordRows, beta: float = 1.2, mean: bool = False
) -> np.ndarray:
    """float64 [pairs]; NaN where no reference is left.

    F of the largest precision and the largest recall over the references, each on its own, as pycocoevalcap
    `rouge/rouge.py` takes them; with `mean` the mean of F over the references.
    """
    out, longest = np.empty(len(pairs.captions)), int(np.diff(references.ptr).max(initial=0))
    in_threads(rouge_l_of_pairs, len(out), pairs, captions, references, longest, beta**2, mean, out)
    return out


@njit(cache=True)
def lanes_of(first, last, pairs, texts, local, width, slots):
    """The references of pairs.images[first:last]. A word's row in masks is put into `local`.

    Of short ones bit masks uint16 [words, slots * width] and lengths float32 [slots * width]; of long ones masks uint64
    [words, chain, lanes], lengths float32 [lanes] and images int64 [lanes].
    """
    refs, (ptr, word) = pairs.refs, texts
    n_words, n_long, chain = 0, 0, 0
    for b in range(first, last):
        for r in refs[pairs.ref_ptr[pairs.images[b]] : pairs.ref_ptr[pairs.images[b] + 1]]:
            if ptr[r + 1] - ptr[r] > SHORT:
                n_long += 1
                chain = max(chain, (ptr[r + 1] - ptr[r] + 63) // 64)
            for w in word[ptr[r] : ptr[r + 1]]:
                if local[w] < 0:
                    local[w] = n_words
                    n_words += 1
    mask, length = np.zeros((n_words, slots * width), np.uint16), np.zeros(slots * width, np.float32)
    long_mask = np.zeros((n_words, chain, n_long), np.uint64)
    long_length, image = np.empty(n_long, np.float32), np.empty(n_long, np.int64)
    n_long = 0
    for b in range(first, last):
        start = pairs.ref_ptr[pairs.images[b]]
        for q in range(start, pairs.ref_ptr[pairs.images[b] + 1]):
            at, size = ptr[refs[q]], ptr[refs[q] + 1] - ptr[refs[q]]
            if size <= SHORT:
                lane = (q - start) * width + b - first
                length[lane] = size
                for p in range(size):
                    mask[local[word[at + p]], lane] |= np.uint16(1 << p)
            else:
                for p in range(size):
                    long_mask[local[word[at + p]], p // 64, n_long] |= np.uint64(1) << np.uint64(p % 64)
                long_length[n_long], image[n_long] = size, b - first
                n_long += 1
    return mask, length, long_mask, long_length, image


@njit(cache=True, forceinline=True)
def _found_words(c, ptr, word, local, found):
    """Put the numbers of a caption's words that have one into `found`; how many."""
    n = 0
    for p in range(ptr[c], ptr[c + 1]):
        found[n] = local[word[p]]
        n += found[n] >= 0
    return n


@njit(cache=True)
def _step_long(state, mask, row, carry):
    for k in range(state.shape[1]):
        carry[k] = 0
    for w in range(state.shape[0]):
        for k in range(state.shape[1]):
            s = state[w, k]
            u = s & mask[row, w, k]
            t = s + u
            total = t + carry[k]
            carry[k] = np.uint64(t < s) | np.uint64(total < t)
            state[w, k] = total | (s - u)


@njit(cache=True)
def _long_lcs(state, lane):
    zeros = np.int64(0)
    for w in range(state.shape[0]):
        zeros += np.int64(ones(~state[w, lane]))
    return np.float32(zeros)


@njit(cache=True)
def _lcs_of_lanes(words, masks, free, lcs):
    """Fill uint16 [lanes] with the LCS of a text and each lane's. The text is rows of `masks`, uint16 [words, lanes],
    whose bits say where in a lane's text a word is; `free` is room for as many."""
    free[:] = 0xFFFF
    for row in words:
        mask = masks[row]
        for k in range(free.shape[0]):
            kept = free[k] & mask[k]
            free[k] = (free[k] + kept) | (free[k] - kept)
    for k in range(free.shape[0]):  # count the zeros of each, a step at a time: so they become vectors
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
    """F of the largest LCS and the largest share of a reference, into f float32 [width]; `longest` and `recall` are
    those of long references. `share` is room for as many."""
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
        ratio = (np.float32(1) + beta2) * f[k] * share[k] / (below if below > LEAST else LEAST)
        f[k] = np.float32(1) if ratio > ONE else ratio


@njit(cache=True)
def _finish_mean(found, length, long_lcs, long_length, long_image, n, beta2, width, slots, f):
    """Sum over the references of F of each, into f float32 [width]."""
    for k in range(width):
        f[k] = 0
    for s in range(slots):
        for k in range(width):
            lcs = np.float32(np.int32(found[s * width + k]))
            f[k] += (np.float32(1) + beta2) * lcs / (n + beta2 * length[s * width + k])
    for x in range(long_length.shape[0]):
        f[long_image[x]] += (np.float32(1) + beta2) * long_lcs[x] / (n + beta2 * long_length[x])


@njit(cache=True, forceinline=True)
def _lcs_of_long(words, masks, state, carry, out):
    """Fill float32 [lanes]: the LCS of a caption of these words with each long reference."""
    if state.shape[0] == 1:
        for x in range(out.shape[0]):
            s = ~np.uint64(0)
            for row in words:
                u = s & masks[row, 0, x]
                s = (s + u) | (s - u)
            out[x] = np.float32(np.int64(ones(~s)))
    else:
        state[:] = ~np.uint64(0)
        for row in words:
            _step_long(state, masks, row, carry)
        for x in range(out.shape[0]):
            out[x] = _long_lcs(state, x)


@njit(cache=True, forceinline=True)
def _largest(lcs, length, image, longest, recall):
    """Of each image the largest LCS with a long reference, and share of it; others have 0."""
    for i in image:
        longest[i], recall[i] = 0, 0
    for x in range(lcs.shape[0]):
        longest[image[x]] = max(longest[image[x]], lcs[x])
        recall[image[x]] = max(recall[image[x]], lcs[x] / length[x])


@njit(cache=True, nogil=True)
def _score_blocks(begin, end, pairs, texts, form, out):
    """Images in blocks, begin..end, with all captions."""
    beta2, mean, n_vocabulary, longest_caption, width, slots = form
    captions, (ptr, word) = pairs.captions, texts
    lanes = slots * width
    free, found, tile = np.empty(lanes, np.uint16), np.empty(lanes, np.uint16), np.empty((SOME, width), np.float32)
    words, share = np.empty(longest_caption + 1, np.int32), np.empty(width, np.float32)
    inverse = np.empty(lanes, np.float32)
    for block in range(begin, end):
        first, last = block * width, min((block + 1) * width, pairs.images.shape[0])
        local = np.full(n_vocabulary, -1, np.int32)
        masks, length, long, long_length, long_image = lanes_of(first, last, pairs, texts, local, width, slots)
        for lane in range(lanes):
            inverse[lane] = np.float32(1) / max(length[lane], np.float32(1))
        carry = np.empty(long.shape[2], np.uint64)
        long_state, long_lcs = np.empty((long.shape[1], long.shape[2]), np.uint64), np.empty(long.shape[2], np.float32)
        longest, recall = np.zeros(width, np.float32), np.zeros(width, np.float32)
        for at in range(0, captions.shape[0], SOME):
            some = captions[at : at + SOME]
            for j in range(some.shape[0]):
                n_words = _found_words(some[j], ptr, word, local, words)
                if long_lcs.shape[0]:
                    _lcs_of_long(words[:n_words], long, long_state, carry, long_lcs)
                _lcs_of_lanes(words[:n_words], masks, free, found)
                n = np.float32(ptr[some[j] + 1] - ptr[some[j]])
                if mean:
                    _finish_mean(found, length, long_lcs, long_length, long_image, n, beta2, width, slots, tile[j])
                    for k in range(last - first):
                        image = pairs.images[first + k]
                        tile[j, k] = min(tile[j, k] / (pairs.ref_ptr[image + 1] - pairs.ref_ptr[image]), 1.0)
                else:
                    _largest(long_lcs, long_length, long_image, longest, recall)
                    _finish_max(found, inverse, longest, recall, n, beta2, width, slots, tile[j], share)
            for k in range(last - first):
                for j in range(some.shape[0]):
                    out[first + k, at + j] = tile[j, k]


@dataclass(frozen=True)
class FittedRougeL(ArrayState):
    """Captions as word numbers."""

    ref_ptr: np.ndarray  # int64 [n_images + 1]
    refs: np.ndarray  # int64 [n_captions]
    ptr: np.ndarray  # int64 [n_captions + 1]
    word: np.ndarray  # int32 [words]
    n_vocabulary: int
    beta: float
    mean: bool
    leave_out: bool

    @property
    def columns(self) -> int:
        """As `Fitted.columns`."""
        return len(self.ptr) - 1

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """As `Fitted.pairs`."""
        return self.scores(images, captions, self.texts, self.leave_out).astype(np.float32)

    def scores(self, images: np.ndarray, rows: np.ndarray, captions: WordRows, leave_out: bool = False) -> np.ndarray:
        """float64 [pairs] of rows of any captions, with words numbered as here."""
        return score_pairs(self.image_pairs(images, rows, leave_out), captions, self.texts, self.beta, self.mean)

    @property
    def texts(self) -> WordRows:
        """The captions as `score_pairs` takes them."""
        return WordRows(self.ptr, self.word)

    def score(self, images: np.ndarray, captions: np.ndarray | None = None) -> np.ndarray:
        """As `Fitted.score`; of some captions by the same kernel, as batches of training ask for."""
        if captions is None or self.leave_out:
            return super().score(images, captions)
        out = np.empty((len(images), len(captions)), np.float32)
        self._fill(images, captions, out)
        return out

    @property
    def error(self) -> Error:
        """As `Fitted.error`: ten operations on positive numbers, with `mean` a sum over the references; what is above
        ONE is 1."""
        references = int(np.diff(self.ref_ptr).max(initial=0))
        return Error(relative=(references + 16) * UNIT + 1e-6)

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`."""
        return lambda first, last, out: self._fill(images, np.arange(first, last), out)

    def _fill(self, images: np.ndarray, captions: np.ndarray, out: np.ndarray) -> None:
        slots = int((self.ref_ptr[images + 1] - self.ref_ptr[images]).max(initial=1))
        width = int(np.clip(MOST // slots, 1, IMAGES))
        longest = int(np.diff(self.ptr).max(initial=0))
        form = BlockForm(np.float32(self.beta**2), self.mean, self.n_vocabulary, longest, width, slots)
        pairs, blocks = self.image_pairs(images, captions), -(-len(images) // width)
        in_threads(_score_blocks, blocks, pairs, self.texts, form, out)


class RougeL:
    """ROUGE-L, 0..1: F = (1 + b^2) P R / (R + b^2 P) with P = LCS / caption words, R = LCS / reference words.

    `references: max` takes the largest P and the largest R over the references independently, as
    pycocoevalcap `rouge/rouge.py`; `mean` averages F over the references, as the TERAN paper says.
    A caption without tokens counts as one empty word, as the reference code's split(" ") gives.
    """

    low, high = 0.0, 1.0

    def __init__(self, params: RougeParams) -> None:
        self.params = params

    def fit(self, captions: Captions) -> FittedRougeL:
        """Number the words. InputError when `left_out` leaves an image without references."""
        leave_out = leaves_out(self.params.self_reference, captions)
        ptr, word, vocabulary = without_empty_sentences(tokens_of(captions))
        mean, beta = self.params.references == "mean", self.params.beta
        return FittedRougeL(captions.ref_ptr, captions.refs, ptr, word, len(vocabulary), beta, mean, leave_out)
