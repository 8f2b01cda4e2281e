"""CIDEr-D of single pairs, in double precision: the definition, which every other road is held to.

Of each order of n-grams the clipped tf-idf cosine of caption and reference, times a Gaussian penalty on the difference
of their lengths; mean over orders and references, times 10. Without clipping and penalty it is CIDEr, and of words
alone a tf-idf cosine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from capgrade.kernels import in_threads, njit
from capgrade.measures.base import ImagePairs
from capgrade.measures.ngrams import MAX_ORDER, Sentences

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Form(NamedTuple):
    """Which tf-idf cosine."""

    clip: bool  # an n-gram of the caption counts at most as often as the reference has it
    sigma: float  # of the penalty, inf for none
    scale: float = 10.0 / MAX_ORDER  # the value of equal captions, divided by the orders


class Weighted(NamedTuple):
    """Sentences and their norms."""

    sentences: Sentences
    inverse: np.ndarray  # float64 [sentences, orders]: 1 / norm of the weights, 0 for a norm of 0


@njit(nogil=True, cache=True)
def _inverse_norms(begin, end, sentences, gain, out):
    for s in range(begin, end):
        for n in range(out.shape[1]):
            squares = 0.0
            for p in range(sentences.start[s, n], sentences.stop[s, n]):
                squares += sentences.counts[p] ** 2 * gain[sentences.gram[p]]
            out[s, n] = 1 / math.sqrt(squares) if squares > 0 else 0.0


def inverse_norms(sentences: Sentences, gain: np.ndarray) -> np.ndarray:
    """`Weighted.inverse`; `gain` float64 [n_grams] is the squared inverse document frequency."""
    out = np.empty(sentences.start.shape)
    in_threads(_inverse_norms, len(out), sentences, gain, out)
    return out


class ReferenceTerms(NamedTuple):
    """The n-grams of an image's references: an open hash table, and what each weighs in each reference."""

    places: np.ndarray  # int32 [a power of two]: -1 where free
    gram: np.ndarray  # int32 [terms]
    counts: np.ndarray  # int32 [terms, references]
    weight: np.ndarray  # float64 [terms, references]: count x gain / norm


@njit(cache=True, forceinline=True)
def _slot(gram, places, terms):
    """Where an n-gram is, or the free place where it would go."""
    mask = np.uint64(places.shape[0] - 1)
    at = (np.uint64(gram) * GOLDEN >> np.uint64(32)) & mask
    while places[at] >= 0 and terms[places[at]] != gram:
        at = (at + np.uint64(1)) & mask
    return at


@njit(cache=True)
def _terms(refs, weighted, gain):
    references, most, size, used = weighted.sentences, 1, 4, 0
    for r in refs:
        for n in range(references.start.shape[1]):
            most += references.stop[r, n] - references.start[r, n]
    while size < 4 * most:
        size *= 2
    places, gram = np.full(size, -1, np.int32), np.empty(most, np.int32)
    counts, weight = np.zeros((most, refs.shape[0]), np.int32), np.zeros((most, refs.shape[0]))
    for q in range(refs.shape[0]):
        for n in range(references.start.shape[1]):
            for p in range(references.start[refs[q], n], references.stop[refs[q], n]):
                g, c = references.gram[p], references.counts[p]
                at = _slot(g, places, gram)
                if places[at] < 0:
                    places[at], gram[used] = used, g
                    used += 1
                counts[places[at], q], weight[places[at], q] = c, c * gain[g] * weighted.inverse[refs[q], n]
    return ReferenceTerms(places, gram, counts, weight)


@njit(cache=True, forceinline=True)
def _pair(c, refs, weighted, references, terms, form, leave_out, cosine):
    """One caption with an image's references; `cosine` is room for one number each."""
    captions, cosine[:] = weighted.sentences, 0
    for n in range(references.start.shape[1]):
        for p in range(captions.start[c, n], captions.stop[c, n]):
            t = terms.places[_slot(captions.gram[p], terms.places, terms.gram)]
            if t >= 0:
                for q in range(refs.shape[0]):
                    found = min(captions.counts[p], terms.counts[t, q]) if form.clip else captions.counts[p]
                    cosine[q] += found * weighted.inverse[c, n] * terms.weight[t, q]
    total, used = 0.0, 0
    for q in range(refs.shape[0]):
        if not (leave_out and refs[q] == c):
            apart = max(captions.words[c] - 1, 0) - max(references.words[refs[q]] - 1, 0)  # "lengths" are of bigrams
            total += cosine[q] * math.exp(-(apart**2) / (2 * form.sigma**2))
            used += 1
    return form.scale * total / used if used else np.nan


@njit(nogil=True, cache=True)
def cider_of_pairs(begin, end, order, pairs, captions, references, gain, form, out):
    """Pairs order[begin:end], in which those of an image follow each other."""
    image = np.int64(-1)
    for k in order[begin:end]:
        if pairs.images[k] != image:
            image = pairs.images[k]
            own = pairs.refs[pairs.ref_ptr[image] : pairs.ref_ptr[image + 1]]
            terms, cosine = _terms(own, references, gain), np.empty(own.shape[0])
        c, leave_out = pairs.captions[k], pairs.leave_out
        out[k] = _pair(c, own, captions, references.sentences, terms, form, leave_out, cosine)


def score_pairs(
    pairs: ImagePairs, captions: Weighted, references: Weighted, gain: np.ndarray, form: Form
) -> np.ndarray:
    """float64 [pairs]; NaN where no reference is left.

    Source: Vedantam et al. 2015, eq. 1-4 and section 7; pycocoevalcap `cider/cider_scorer.py`.
    """
    out = np.empty(len(pairs.captions))
    in_threads(cider_of_pairs, len(out), pairs.order, pairs, captions, references, gain, form, out)
    return out
