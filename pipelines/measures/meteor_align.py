"""METEOR's aligner: which words of a caption go with which of a reference, by the beam search of `Aligner.resolve`.

Reference positions are resolved from left to right. A path has so far matched words (more is better), begun chunks and
moved words (fewer is better); after each position the best 40 paths go on, earlier ones first among equals. Two
habits of the original are kept, as scores hang on them: a match that is not exact counts half its words, rounded
down; and the distance of a match is added to the path it branches off, not to the one that has it.

A match is one number: reference's place, words there, caption's place, words there, stage. A path's `rank` is one
number as well, smaller is better: words matched, chunks, distance.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BEAM = 40
WORDS_AT, CHUNKS_AT = 50, 38  # bits of a rank
MOST_WORDS = 8191
CHUNK = 1 << CHUNKS_AT
FIRST_RANK = MOST_WORDS << WORDS_AT
RANK, NODE, END, BUSY = range(4)  # columns of a path: END of the open chunk or -1; BUSY until this reference position


@njit(cache=True, inline="always")
def packed_match(i, size, j, width, module):
    return (((np.int64(i) << 4 | size) << 12 | j) << 4 | width) << 2 | module


@njit(cache=True, inline="always")
def reference_place(match):
    return match >> 22


@njit(cache=True, inline="always")
def reference_words(match):
    return (match >> 18) & 15


@njit(cache=True, inline="always")
def caption_place(match):
    return (match >> 6) & 4095


@njit(cache=True, inline="always")
def caption_words(match):
    return (match >> 2) & 15


@njit(cache=True, inline="always")
def module_of(match):
    return match & 3


@njit(cache=True)
def _gain(match):
    """What a match takes off a path's rank for its words."""
    size, width = reference_words(match), caption_words(match)
    words = size + width if module_of(match) == 0 else size // 2 + width // 2
    return np.int64(words) << WORDS_AT


@njit(cache=True)
def _distance(match):
    return abs(reference_place(match) - caption_place(match))


@njit(cache=True)
def _is_used(used, match):
    for j in range(caption_place(match), caption_place(match) + caption_words(match)):
        if used[j >> 6] >> np.uint64(j & 63) & np.uint64(1):
            return True
    return False


@njit(cache=True)
def _push(path, used, order, n, rank, node, end, busy, taken):
    """Put a path in its place among the best BEAM, behind its equals: how many there are, and its slot or -1."""
    if n == BEAM and rank >= path[order[n - 1], RANK]:
        return n, -1
    if n < BEAM:
        slot, at = n, n
        n += 1
    else:
        slot, at = order[n - 1], n - 1
    while at > 0 and path[order[at - 1], RANK] > rank:
        order[at] = order[at - 1]
        at -= 1
    order[at] = slot
    path[slot, RANK], path[slot, NODE], path[slot, END], path[slot, BUSY] = rank, node, end, busy
    for k in range(used.shape[1]):
        used[slot, k] = taken[k]
    return n, slot


@njit(cache=True)
def _sort(path, order, n):
    for k in range(1, n):
        slot, at = order[k], k
        while at > 0 and path[order[at - 1], RANK] > path[slot, RANK]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = slot


@njit(cache=True)
def _pass_over(path, order, n, i, until):
    """No match begins at the reference positions i..until - 1: open chunks end."""
    while i < until:
        changed, busy = False, False
        for k in range(n):
            slot = order[k]
            if path[slot, BUSY] > i:
                busy = True
            elif path[slot, END] >= 0:
                path[slot, RANK] += CHUNK
                path[slot, END] = -1
                changed = True
        if changed:
            _sort(path, order, n)
        if not busy:
            return
        i += 1


@njit(cache=True)
def _take_only(path, order, n, match, node_before, node_match, n_nodes):
    """Every path takes a match that is nobody's rival."""
    j = caption_place(match)
    for k in range(n):
        slot = order[k]
        path[slot, RANK] += _distance(match) - _gain(match)
        if path[slot, END] >= 0 and path[slot, END] != j:
            path[slot, RANK] += CHUNK
        path[slot, END] = j + caption_words(match)
        path[slot, BUSY] = reference_place(match) + reference_words(match)
        node_before[n_nodes], node_match[n_nodes] = path[slot, NODE], match
        path[slot, NODE] = n_nodes
        n_nodes += 1
    _sort(path, order, n)
    return n_nodes


@njit(cache=True)
def _branch(paths, useds, orders, now, n, matches, node_before, node_match, n_nodes):
    """Each path goes on with each match of one reference position that it can still take, and without any."""
    path, used, order, new = paths[now], useds[now], orders[now], 1 - now
    i, n_new = reference_place(matches[0]), 0
    for k in range(n):
        slot = order[k]
        rank, node, end = path[slot, RANK], path[slot, NODE], path[slot, END]
        if path[slot, BUSY] > i:
            n_new, _ = _push(
                paths[new], useds[new], orders[new], n_new, rank, node, end, path[slot, BUSY], used[slot]
            )  # fmt: skip
            continue
        for match in matches:
            if _is_used(used[slot], match):
                continue
            j = caption_place(match)
            taken = rank - _gain(match) + (CHUNK if end >= 0 and end != j else 0)
            n_new, at = _push(
                paths[new], useds[new], orders[new], n_new, taken, n_nodes, j + caption_words(match),
                i + reference_words(match), used[slot],
            )  # fmt: skip
            if at >= 0:
                for p in range(j, j + caption_words(match)):
                    useds[new, at, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
                node_before[n_nodes], node_match[n_nodes] = node, match
                n_nodes += 1
            rank += _distance(match)
        if end >= 0:
            rank += CHUNK
        n_new, _ = _push(paths[new], useds[new], orders[new], n_new, rank, node, -1, path[slot, BUSY], used[slot])
    return n_new, n_nodes


@njit(cache=True)
def _has_rivals(matches, first, last, covered_1, covered_2):
    """Whether another match wants a word of the only match that begins at its reference position."""
    if last - first != 1:
        return True
    match = matches[first]
    for i in range(reference_place(match), reference_place(match) + reference_words(match)):
        if covered_2[i] != 1:
            return True
    for j in range(caption_place(match), caption_place(match) + caption_words(match)):
        if covered_1[j] != 1:
            return True
    return False


@njit(cache=True)
def _cover(matches, covered_1, covered_2, by):
    for match in matches:
        for i in range(reference_place(match), reference_place(match) + reference_words(match)):
            covered_2[i] += by
        for j in range(caption_place(match), caption_place(match) + caption_words(match)):
            covered_1[j] += by


@njit(cache=True)
def _best(path, order, n):
    """The slot of the best finished path and its chunks."""
    slot, least = -1, np.int64(0)
    for k in range(n):
        rank = path[order[k], RANK] + (CHUNK if path[order[k], END] >= 0 else 0)
        if slot < 0 or rank < least:
            slot, least = order[k], rank
    return slot, (least >> CHUNKS_AT) & ((1 << (WORDS_AT - CHUNKS_AT)) - 1)


@njit(cache=True)
def align(matches, n_words, paths, useds, orders, node_before, node_match, covered_1, covered_2):
    """Node of the last match of the best alignment (-1: none) and its chunks. `matches` are those of a caption with a
    reference of `n_words`, sorted by reference position and the order in which the stages find them; `covered_1`
    and `covered_2` are zeros and are left so."""
    _cover(matches, covered_1, covered_2, 1)
    now, n, n_nodes, i, first = 0, 1, 0, 0, 0
    paths[0, 0, RANK], paths[0, 0, NODE], paths[0, 0, END], paths[0, 0, BUSY] = FIRST_RANK, -1, -1, 0
    useds[0, 0, :] = 0
    orders[0, 0] = 0
    while first < matches.shape[0]:
        here, last = reference_place(matches[first]), first + 1
        while last < matches.shape[0] and reference_place(matches[last]) == here:
            last += 1
        _pass_over(paths[now], orders[now], n, i, here)
        if _has_rivals(matches, first, last, covered_1, covered_2):
            n, n_nodes = _branch(paths, useds, orders, now, n, matches[first:last], node_before, node_match, n_nodes)
            now = 1 - now
        else:
            n_nodes = _take_only(paths[now], orders[now], n, matches[first], node_before, node_match, n_nodes)
        first, i = last, here + 1
    _pass_over(paths[now], orders[now], n, i, n_words)
    _cover(matches, covered_1, covered_2, -1)
    slot, chunks = _best(paths[now], orders[now], n)
    return paths[now, slot, NODE], chunks
