"""Kernels of scene graphs: F-scores of weighted sets of tuples, by postings for all captions, by look-up for some.

An image's graph is merged from its references' tuples, each with the largest weight that it has among them. Sums go
in the order of tuple numbers everywhere, so both ways give the same bits.
"""

from __future__ import annotations

import numpy as np

from capgrade.kernels import njit


@njit(cache=True)
def merge(i, without, ref_ptr, refs, ptr, tuples, weight):
    """The tuples of an image's references, sorted, their weights and the sum of these; caption `without` left out."""
    n = 0
    for q in range(ref_ptr[i], ref_ptr[i + 1]):
        n += ptr[refs[q] + 1] - ptr[refs[q]]
    all_tuples, all_weights = np.empty(n, np.int32), np.empty(n, np.float32)
    k = 0
    for q in range(ref_ptr[i], ref_ptr[i + 1]):
        if refs[q] != without:
            for p in range(ptr[refs[q]], ptr[refs[q] + 1]):
                all_tuples[k], all_weights[k] = tuples[p], weight[p]
                k += 1
    order = np.argsort(all_tuples[:k])
    merged, best = np.empty(k, np.int32), np.empty(k, np.float32)
    used, total = 0, np.float32(0)
    for x in order:
        if used and merged[used - 1] == all_tuples[x]:
            best[used - 1] = max(best[used - 1], all_weights[x])
        else:
            merged[used], best[used] = all_tuples[x], all_weights[x]
            used += 1
    for u in range(used):
        total += best[u]
    return merged[:used], best[:used], total


@njit(cache=True)
def f_score(matched, found, caption_total, image_total, beta2):
    """F of precision matched / caption_total and recall found / image_total."""
    below = beta2 * np.float64(matched) * image_total + np.float64(found) * caption_total
    if below <= 0:
        return np.float32(0)
    return np.float32((1 + beta2) * np.float64(matched) * found / below)  # in double: of equal sets it is 1


@njit(nogil=True, cache=True)
def score_run(
    begin, end, images, first, last, ref_ptr, refs, ptr, tuples, weight, total, post_ptr, post_caption, post_weight,
    beta2, out,
):  # fmt: skip
    """Captions first..last with images begin..end into out: each tuple of an image's graph adds to the captions that
    have it."""
    for b in range(begin, end):
        matched, found = np.zeros(last - first, np.float32), np.zeros(last - first, np.float32)
        merged, best, image_total = merge(images[b], -1, ref_ptr, refs, ptr, tuples, weight)
        for u in range(merged.shape[0]):
            start, end = post_ptr[merged[u]], post_ptr[merged[u] + 1]
            p = start + np.searchsorted(post_caption[start:end], first) if first else start
            while p < end and post_caption[p] < last:
                c = post_caption[p] - first
                matched[c] += post_weight[p]
                found[c] += best[u]
                p += 1
        for c in range(last - first):
            out[b, c] = f_score(matched[c], found[c], total[first + c], image_total, beta2)


@njit(cache=True)
def _score_pair(c, merged, best, image_total, ptr, tuples, weight, total, beta2):
    """One caption and a merged graph, both sorted by tuple."""
    matched, found = np.float32(0), np.float32(0)
    u = 0
    for p in range(ptr[c], ptr[c + 1]):
        while u < merged.shape[0] and merged[u] < tuples[p]:
            u += 1
        if u < merged.shape[0] and merged[u] == tuples[p]:
            matched += weight[p]
            found += best[u]
    return f_score(matched, found, total[c], image_total, beta2)


@njit(nogil=True, cache=True)
def score_pairs(
    begin, end, order, images, captions, ref_ptr, refs, ptr, tuples, weight, total, beta2, leave_out, out
):  # fmt: skip
    """Pairs order[begin:end], in which those of an image follow each other, into out float32 [pairs]."""
    image, without = np.int64(-1), np.int64(-1)
    merged, best, image_total = np.empty(0, np.int32), np.empty(0, np.float32), np.float32(0)
    for k in order[begin:end]:
        c = captions[k]
        left = np.int64(-1)
        if leave_out:
            for r in refs[ref_ptr[images[k]] : ref_ptr[images[k] + 1]]:
                if r == c:
                    left = c
        if images[k] != image or left != without:
            image, without = images[k], left
            merged, best, image_total = merge(image, without, ref_ptr, refs, ptr, tuples, weight)
        out[k] = _score_pair(c, merged, best, image_total, ptr, tuples, weight, total, beta2)
