"""Pools of pairs to judge: the best of each system for certain, fewer the lower systems rank a
pair. `image` and `caption` are rows and columns of the similarities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from capgrade.metrics.base import Matrix, check_k, check_matrix
from capgrade.metrics.positives import Positives
from capgrade.metrics.ranking import as_rankable, rank
from capgrade.schemas.arrays import Array, as_numpy
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs

BLOCK = 1024  # rows or columns of a matrix whose best are taken at a time
_CELLS = 1_000_000  # of a block that is ranked at a time


def draw_pool(
    similarities: Sequence[Matrix],
    budget: int,
    *,
    top: int = 10,
    columns: bool = False,
    own: Positives | None = None,
    seed: int = 0,
) -> Pairs:
    """`budget` pairs of all to judge, as yet without values: the first `top` of each row of each
    system (and of each column) with probability 1, the pooling of TREC. The others fall into strata
    by their best rank, from `top` on each twice as deep as the one above. A stratum of n pairs gets
    a share as the square root of n, which is Neyman's where relevance falls as 1 / rank.

    `own` pairs are known and not drawn. InputError for similarities of several shapes, and for a
    budget that leaves a pair without a chance.

    >>> len(draw_pool([np.eye(20)], budget=100, top=2))
    100
    """
    systems = [as_numpy(matrix) for matrix in similarities]
    for system in systems:
        check_matrix("similarity", system, systems[0].shape)
    strata, count = _assign_strata(systems, check_k(top), columns, own)
    in_row = np.stack([(strata == h).sum(axis=1) for h in range(count)], axis=1)  # rows x strata
    sizes = in_row.sum(axis=0)
    random, chosen = np.random.default_rng(seed), list[Pairs]()
    for stratum, drawn in enumerate(_allocate_budget(sizes, budget, top)):
        # Numbers of the drawn pairs among those of the stratum, counted row by row.
        numbers = np.sort(random.choice(sizes[stratum], drawn, replace=False))
        ends = in_row[:, stratum].cumsum()
        row = np.searchsorted(ends, numbers, side="right")
        within = numbers - (ends - in_row[:, stratum])[row]
        parts = np.split(within, np.searchsorted(row, np.arange(1, len(strata))))
        items = [
            np.flatnonzero(strata[q] == stratum)[part] for q, part in enumerate(parts) if len(part)
        ]
        probability = np.full(drawn, drawn / max(sizes[stratum], 1))
        item = np.concatenate([np.zeros(0, np.int64), *items])
        chosen.append(Pairs(row, item, 1 / probability))
    return Pairs.concatenate(chosen)


def first_cells(similarities: Sequence[Matrix], depth: int) -> Array:
    """What any system [Q, N] ranks among the first `depth` of a row, as row * N + column, int64
    [cells], rising. InputError for similarities of several shapes."""
    systems = [as_numpy(matrix) for matrix in similarities]
    for system in systems:
        check_matrix("similarity", system, systems[0].shape)
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    cells = [
        part
        for system in systems
        for part in best_cells(system, check_k(depth), nothing, columns=False)
    ]
    return np.unique(np.concatenate(cells))


def draw_strata(strata: Sequence[Array], budget: int, width: int, *, seed: int = 0) -> Pairs:
    """Up to `budget` cells from all in the strata, which have them as row * width + column, int64
    [cells]: each stratum gets an equal share, and a small one is taken whole and leaves its rest to
    others. A cell that several have is of the first. InputError for a budget that leaves a stratum
    without a pair.

    >>> pool = draw_strata([np.array([3]), np.array([3, 4, 5, 9])], budget=3, width=5)
    >>> pool.image.tolist()[0], pool.caption.tolist()[0], pool.weight.tolist()
    (0, 3, [1.0, 1.5, 1.5])
    """
    random, parts, taken = np.random.default_rng(seed), list[Array](), np.zeros(0, np.int64)
    for cells in strata:
        parts.append(np.setdiff1d(cells, taken))
        taken = np.union1d(taken, parts[-1])
    left, drawn, probability = budget, list[Array](), list[Array]()
    filled = sorted((part for part in parts if len(part)), key=len)
    if budget < len(filled):
        problem = f"{budget:,} pairs to judge of {len(filled)} strata"
        raise InputError(problem, remedy="give a larger budget")
    for number, part in enumerate(filled):
        count = min(len(part), left // (len(filled) - number))
        left -= count
        drawn.append(np.sort(random.choice(part, count, replace=False)))
        probability.append(np.full(count, count / len(part)))
    query, item = np.divmod(np.concatenate([*drawn, np.zeros(0, np.int64)]), width)
    return Pairs(query, item, 1 / np.concatenate([*probability, np.zeros(0)]))


def _assign_strata(
    systems: Sequence[Array], top: int, columns: bool, own: Positives | None
) -> tuple[Array, int]:
    """The stratum of each pair, uint8 [Q, N], 0 for pairs chosen for certain, and the number of
    strata. A pair that is never drawn has that number as its stratum."""
    rows, width = systems[0].shape
    edges = [top]
    while 4 * edges[-1] <= width:  # the last stratum is the largest
        edges.append(2 * edges[-1])
    strata = np.empty((rows, width), np.uint8)
    step = max(1, _CELLS // width)
    place = np.arange(width, dtype=np.int32)
    for start in range(0, rows, step):
        best = np.full((min(step, rows - start), width), width, np.int32)
        for system in systems:
            order = rank(as_rankable(system[start : start + step]), "reference").order
            places = np.empty_like(order)
            np.put_along_axis(places, order, place[None], axis=1)
            np.minimum(best, places, out=best)
        strata[start : start + step] = np.maximum(np.searchsorted(edges, best, side="right"), 1)
    nothing = np.zeros(0, np.int64)
    for system in systems:
        for cells in best_cells(system, top, (nothing, nothing), columns=columns):
            strata.reshape(-1)[cells] = 0
    if own is not None:
        strata[own.queries, own.indices] = len(edges) + 1
    return strata, len(edges) + 1


def best_cells(
    S: Array, depth: int, excluded: tuple[Array, Array], *, columns: bool = True
) -> Iterator[Array]:
    """The `depth` best cells of each row of S, float [rows, width], and of each column, as row *
    width + column, int64 [cells], in blocks. The cells of `excluded`, rows and columns, never are
    among them, nor is what a model left out (-inf)."""
    width = S.shape[1]
    sides = [(S, excluded, (width, 1)), (S.T, excluded[::-1], (1, width))]
    for values, (first, second), (by_row, by_column) in sides if columns else sides[:1]:
        for start in range(0, len(values), BLOCK):
            block = as_rankable(values[start : start + BLOCK]).copy()
            inside = (first >= start) & (first < start + len(block))
            block[first[inside] - start, second[inside]] = -np.inf
            count = min(depth, block.shape[1])
            column = np.argpartition(-block, count - 1, axis=1)[:, :count].ravel()
            row = np.repeat(np.arange(len(block)), count)
            finite = block[row, column] > -np.inf
            yield (row[finite] + start) * by_row + column[finite].astype(np.int64) * by_column


def _allocate_budget(sizes: Array, budget: int, top: int) -> list[int]:
    """How many pairs of each stratum are drawn. A small stratum may be taken whole, and leaves its
    rest to larger ones."""
    drawn, left = [int(sizes[0])] + [0] * (len(sizes) - 1), budget - int(sizes[0])
    below = [int(h) for h in np.argsort(sizes[1:], kind="stable") + 1 if sizes[h]]
    if left < len(below) or budget > sizes.sum():
        problem = (
            f"{budget:,} pairs to judge: {sizes[0]:,} are among the first {top},"
            f" {sizes[1:].sum():,} below"
        )
        raise InputError(problem, remedy="give a budget between these, or a smaller top")
    for number, h in enumerate(below):
        share = np.sqrt(sizes[h]) / np.sqrt(sizes[below[number:]]).sum()
        drawn[h] = min(int(sizes[h]), max(1, round(left * share)), left - (len(below) - number - 1))
        left -= drawn[h]
    return drawn
