"""METEOR's aligner: which words of a caption match which of a reference, as `Aligner.resolve`.

It is a beam search over reference positions, from left to right. Of paths, those with more matched
words, then fewer chunks, then less distance are better; the best 40 go on, earlier ones first among
equals. Two habits of the original are kept, as scores depend on them: a match that is not exact
counts half its words, rounded down, and a match's distance is added to the path that it branches
off. A path's rank is one number, smaller is better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.kernels import njit

_BEAM = 40
WORDS_AT, CHUNKS_AT = 50, 38  # bits of a rank
_MOST_WORDS = 8191
_CHUNK = 1 << CHUNKS_AT
FIRST_RANK = _MOST_WORDS << WORDS_AT
NODE, END, BUSY = range(3)


@njit(cache=True, forceinline=True)
def packed_match(i, size, j, width, stage):
    """A match as one int64.

    It has `size` words from word i of the reference on, and `width` from word j of the caption on.
    """
    return (((np.int64(i) << 4 | size) << 12 | j) << 4 | width) << 2 | stage


@njit(cache=True, forceinline=True)
def reference_place(match):
    """First word of a packed match in the reference."""
    return match >> 22


@njit(cache=True, forceinline=True)
def reference_words(match):
    """Its number of words there."""
    return (match >> 18) & 15


@njit(cache=True, forceinline=True)
def caption_place(match):
    """First word of a packed match in the caption."""
    return (match >> 6) & 4095


@njit(cache=True, forceinline=True)
def caption_words(match):
    """Its number of words there."""
    return (match >> 2) & 15


@njit(cache=True, forceinline=True)
def match_stage(match):
    """The stage that found it: 0 exact, 1 stem, 2 synonym, 3 paraphrase."""
    return match & 3


@njit(cache=True, forceinline=True)
def _gain(match):
    """What a match takes off a path's rank for its words."""
    size, width = reference_words(match), caption_words(match)
    words = size + width if match_stage(match) == 0 else size // 2 + width // 2
    return np.int64(words) << WORDS_AT


@njit(cache=True, forceinline=True)
def _distance(match):
    return abs(reference_place(match) - caption_place(match))


@njit(cache=True, forceinline=True)
def _bits(match, k):
    """The caption's words of a match as bits, words 64 k to 64 k + 63."""
    start = caption_place(match) - 64 * k
    bits = (np.uint64(1) << np.uint64(caption_words(match))) - np.uint64(1)
    return bits << np.uint64(start) if start >= 0 else bits >> np.uint64(-start)


@njit(cache=True, forceinline=True)
def _insert(ranks, slot, base, n, rank, at_slot):
    """Place a path among the n first of a beam, behind those of the same rank."""
    at = base + n
    while at > base and ranks[at - 1] > rank:
        ranks[at], slot[at] = ranks[at - 1], slot[at - 1]
        at -= 1
    ranks[at], slot[at] = rank, at_slot


@njit(cache=True, forceinline=True)
def _sort(ranks, slot, base, n):
    for k in range(1, n):
        if ranks[base + k - 1] > ranks[base + k]:
            _insert(ranks, slot, base, k, ranks[base + k], slot[base + k])


@njit(cache=True, forceinline=True)
def _push(ranks, slot, state, used, base, n, rank, node, end, busy, parent):
    """Put a path among the best BEAM. Returns how many there are then, and its slot or -1.

    It used the words that `parent` did.
    """
    if n < _BEAM:
        new = base + n
        n += 1
    elif rank < ranks[base + n - 1]:
        new = slot[base + n - 1]
    else:
        return n, np.int64(-1)
    _insert(ranks, slot, base, n - 1, rank, new)
    state[new, NODE], state[new, END], state[new, BUSY] = node, end, busy
    for k in range(used.shape[1]):
        used[new, k] = used[parent, k]
    return n, np.int64(new)


@njit(cache=True, forceinline=True)
def _pass_over(ranks, slot, state, base, n, i, until):
    """No match begins at the reference positions i..until - 1: open chunks end."""
    while i < until:
        changed, busy = False, False
        for k in range(base, base + n):
            s = slot[k]
            if state[s, BUSY] > i:
                busy = True
            elif state[s, END] >= 0:
                ranks[k] += _CHUNK
                state[s, END] = -1
                changed = True
        if changed:
            _sort(ranks, slot, base, n)
        if not busy:
            return
        i += 1


@njit(cache=True, forceinline=True)
def _take_only(ranks, slot, state, base, n, match, nodes, n_nodes):
    """Let every path take a match that shares no word with another match."""
    j = caption_place(match)
    for k in range(base, base + n):
        s = slot[k]
        end = state[s, END]
        ranks[k] += _distance(match) - _gain(match) + (_CHUNK if end >= 0 and end != j else 0)
        nodes[n_nodes, 0], nodes[n_nodes, 1] = state[s, NODE], match
        state[s, NODE], state[s, END] = n_nodes, j + caption_words(match)
        state[s, BUSY] = reference_place(match) + reference_words(match)
        n_nodes += 1
    _sort(ranks, slot, base, n)
    return n_nodes


@njit(cache=True, forceinline=True)
def _is_free(used, s, match):
    first, last = caption_place(match) >> 6, (caption_place(match) + caption_words(match) - 1) >> 6
    taken = np.uint64(0)
    for k in range(first, last + 1):
        taken |= used[s, k] & _bits(match, k)
    return taken == 0


@njit(cache=True, forceinline=True)
def _branch(ranks, slot, state, used, base, n, matches, first, last, nodes, n_nodes):
    """Continue each path with each match of one reference position that it can take, and with none.

    The new paths are in the other beam.
    """
    new, n_new, i = _BEAM - base, 0, reference_place(matches[first])
    for k in range(base, base + n):
        s, rank = slot[k], ranks[k]
        node, end, busy = state[s, NODE], state[s, END], state[s, BUSY]
        if busy > i:
            n_new, _ = _push(ranks, slot, state, used, new, n_new, rank, node, end, busy, s)
            continue
        for m in range(first, last):
            match = matches[m]
            if not _is_free(used, s, match):
                continue
            j, width = caption_place(match), caption_words(match)
            taken = rank - _gain(match) + (_CHUNK if end >= 0 and end != j else 0)
            until = i + reference_words(match)
            n_new, at = _push(
                ranks, slot, state, used, new, n_new, taken, n_nodes, j + width, until, s
            )
            if at >= 0:
                for b in range(j >> 6, ((j + width - 1) >> 6) + 1):
                    used[at, b] |= _bits(match, b)
                nodes[n_nodes, 0], nodes[n_nodes, 1] = node, match
                n_nodes += 1
            rank += _distance(match)
        rank += _CHUNK if end >= 0 else 0
        n_new, _ = _push(ranks, slot, state, used, new, n_new, rank, node, -1, busy, s)
    return n_new, n_nodes


@njit(cache=True, forceinline=True)
def _has_rivals(match, covered):
    """Whether another match has a word of this one too."""
    i, j = reference_place(match), caption_place(match)
    wanted = 0
    for k in range(i, i + reference_words(match)):
        wanted += covered[1, k] - 1
    for k in range(j, j + caption_words(match)):
        wanted += covered[0, k] - 1
    return wanted > 0


@njit(cache=True, forceinline=True)
def _cover(matches, covered, by):
    for match in matches:
        i, j = reference_place(match), caption_place(match)
        for k in range(i, i + reference_words(match)):
            covered[1, k] += by
        for k in range(j, j + caption_words(match)):
            covered[0, k] += by


@njit(cache=True, forceinline=True)
def _best(ranks, slot, state, base, n):
    """The last node and the chunks of the best finished path."""
    node, least = np.int64(-1), np.int64(-1)
    for k in range(base, base + n):
        rank = ranks[k] + (_CHUNK if state[slot[k], END] >= 0 else 0)
        if least < 0 or rank < least:
            node, least = state[slot[k], NODE], rank
    return node, (least >> CHUNKS_AT) & ((1 << (WORDS_AT - CHUNKS_AT)) - 1)


class _AlignmentBuffers(NamedTuple):
    """Arrays to work in. A path's rest is at `slot`, as ranks alone are kept sorted.

    Arrays of 2 * BEAM hold two beams, one after the other.
    """

    match: np.ndarray  # int64 [2, matches]: of a caption and a reference, and their order
    ranks: np.ndarray  # int64 [2 * BEAM]: words matched, chunks and distance, ascending
    slot: np.ndarray  # int64 [2 * BEAM]: where `state` and `used` of the path with this rank are
    # int64 [2 * BEAM, 3]: a path's last node, the end of its open chunk or -1, and the reference
    # position until which it is busy
    state: np.ndarray
    used: np.ndarray  # uint64 [2 * BEAM, a bit for each of the caption's words]
    nodes: np.ndarray  # int64 [BEAM * matches, 2]: the node before, and a match
    covered: np.ndarray  # int32 [2, longest]: zeros between alignments


@njit(cache=True)
def alignment_buffers(longest, matches):
    """For as many matches, of captions of at most `longest` words."""
    return _AlignmentBuffers(
        np.empty((2, matches), np.int64),
        np.empty(2 * _BEAM, np.int64),
        np.empty(2 * _BEAM, np.int64),
        np.empty((2 * _BEAM, 3), np.int64),
        np.empty((2 * _BEAM, (longest + 63) // 64), np.uint64),
        np.empty((_BEAM * matches, 2), np.int64),
        np.zeros((2, longest), np.int32),
    )


@njit(cache=True)
def align(matches, n_words, buffers):
    """The last match's node of the best alignment (-1: none), and how many chunks it has.

    `matches` are those of a caption with a reference of `n_words`, sorted by reference position,
    then in the order in which the stages find them.
    """
    _, ranks, slot, state, used, nodes, covered = buffers
    _cover(matches, covered, 1)
    base, n, n_nodes, i, first = 0, 1, 0, 0, 0
    ranks[0], slot[0] = FIRST_RANK, 0
    state[0, NODE], state[0, END], state[0, BUSY] = -1, -1, 0
    used[0, :] = 0
    while first < matches.shape[0]:
        place, last = reference_place(matches[first]), first + 1
        while last < matches.shape[0] and reference_place(matches[last]) == place:
            last += 1
        _pass_over(ranks, slot, state, base, n, i, place)
        if last - first > 1 or _has_rivals(matches[first], covered):
            n, n_nodes = _branch(
                ranks, slot, state, used, base, n, matches, first, last, nodes, n_nodes
            )
            base = _BEAM - base
        else:
            n_nodes = _take_only(ranks, slot, state, base, n, matches[first], nodes, n_nodes)
        first, i = last, place + 1
    _pass_over(ranks, slot, state, base, n, i, n_words)
    _cover(matches, covered, -1)
    return _best(ranks, slot, state, base, n)
