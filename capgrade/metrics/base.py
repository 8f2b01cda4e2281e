"""What a metric sees: queries as rows, candidates as columns, one block of queries at a time,
ranked once.

A metric is a function from a `QueryBlock` and its options (`k`, `m`, `relevance`, `lists`, ...) to
one float64 per query (NaN: this query is not part of the metric). Most are formulas over the gains
expected at each place: `QueryBlock.gains_at` and `QueryBlock.hits_at`. Blocks are made and scored
on threads, so memory does not grow with the number of queries.

NaN is refused by every metric, in a similarity and in relevance. An infinite similarity ranks like
any other: +inf is above and -inf below all numbers, and equal infinities are tied. Metrics of
cosines refuse it (`finite_similarity`). Relevance must be finite, and so must its sums and gains,
because they are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from capgrade.kernels import get_num_threads
from capgrade.metrics.positives import Positives
from capgrade.metrics.ranking import (
    Ranking,
    TieRule,
    as_rankable,
    count_above,
    gains_by_place,
    rank,
)
from capgrade.schemas.arrays import Array, as_numpy, release
from capgrade.schemas.errors import InputError
from capgrade.schemas.progress import count_part

Score: TypeAlias = "Callable[..., Array]"  # of a Block and options
Matrix: TypeAlias = Any  # numpy array or torch tensor
_MOST = float(np.finfo(np.float64).max)
_CELLS = 1_000_000  # of a block: 4 MB of float32 and a few times that in rankings, a thread
_READ = 2**26  # cells of a matrix that are read at a time: 256 MB of float32
_TURNED = 128  # rows that are turned into columns at a time, so that what is read stays in a cache


def own_positives(query_group: Array, candidate_group: Array) -> Positives:
    """Each query's own items: the candidates of its group, any number, in any order. Groups are int
    [Q] and int [N].

    >>> own_positives(np.array([0, 1]), np.array([0, 0, 1, 2])).indices
    array([0, 1, 2])
    """
    order = np.argsort(candidate_group, kind="stable")
    groups = candidate_group[order]
    low = np.searchsorted(groups, query_group, side="left")
    sizes = np.searchsorted(groups, query_group, side="right") - low
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
    indices = order[np.repeat(low, sizes) + within].astype(np.int64)
    return Positives(indptr, indices, np.zeros(len(sizes), np.int64))


@dataclass(frozen=True)
class Queries:
    """One direction of retrieval. Every array may be a view; nothing is copied whole.

    similarity (n_queries, n_candidates); `query_group` and `candidate_group` say which items belong
    together (the image of each); `relevance` named matrices of the same shape; `positives` named
    lists; `codes` the class vectors (queries, candidates) as 0/1 rows, a row of zeros for an image
    without annotation.
    """

    similarity: Array
    query_group: Array | None = None
    candidate_group: Array | None = None
    relevance: Mapping[str, Array] = field(default_factory=dict)
    positives: Mapping[str, Positives] = field(default_factory=dict)
    codes: tuple[Array, Array] | None = None
    ties: TieRule = "expected"
    clip: bool = False  # negative relevance counts as no gain, instead of being refused

    def __post_init__(self) -> None:
        check_matrix("similarity", self.similarity)
        for name, matrix in self.relevance.items():
            check_matrix(f"relevance {name}".rstrip(), matrix, self.similarity.shape)
        shape = self.similarity.shape
        if self.query_group is not None and self.candidate_group is not None:
            sizes = len(self.query_group), len(self.candidate_group)
            if sizes != shape:
                raise InputError(
                    f"images are given for {sizes}, similarity is {shape}",
                    remedy="give one per row and column",
                )
            missing = ~np.isin(self.query_group, self.candidate_group)
            if missing.any():
                where = int(np.argmax(missing))
                raise InputError(
                    f"query {where} (image {self.query_group[where]}) has no own candidate; "
                    f"{int(missing.sum())} such queries",
                    remedy=(
                        "drop images without captions, and captions without images, from both"
                        " tables"
                    ),
                )
        for lists in self.positives.values():
            if len(lists.absent) != shape[0]:
                problem = f"{len(lists.absent)} lists of positives for {shape[0]} queries"
                raise InputError(problem, remedy="give one list per query")
            if (
                lists.indices.size
                and not 0 <= lists.indices.min() <= lists.indices.max() < shape[1]
            ):
                raise InputError(
                    "a list of positives names a candidate outside the gallery",
                    remedy="map the ids first",
                )
        if self.ties not in ("expected", "reference"):
            raise InputError(
                f"ties {self.ties!r} is not known", remedy="use 'expected' or 'reference'"
            )

    @cached_property
    def own(self) -> Positives:
        """The own items of every query: the lists of that name, else those of the groups."""
        if "own" in self.positives:
            return self.positives["own"]
        # Whoever names a metric has checked that the task holds what the metric needs.
        assert self.query_group is not None
        assert self.candidate_group is not None
        return own_positives(self.query_group, self.candidate_group)


def check_matrix(name: str, matrix: Array, wanted: tuple[int, ...] | None = None) -> None:
    """InputError for what is no matrix of real numbers, or not of the shape `wanted`."""
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or 0 in matrix.shape:
        shape = getattr(matrix, "shape", type(matrix).__name__)
        raise InputError(
            f"{name} is {shape}, not a matrix", remedy="give queries x candidates, none empty"
        )
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {matrix.dtype}", remedy="give real numbers")
    if wanted is not None and matrix.shape != wanted:
        hint = (
            "transpose it"
            if matrix.shape[::-1] == wanted
            else "score the same queries and candidates"
        )
        raise InputError(f"{name} is {matrix.shape}, similarity is {wanted}", remedy=hint)


@dataclass
class QueryBlock:
    """The queries start..stop of a task, ranked once for every metric."""

    queries: Queries
    start: int
    stop: int
    rows: Array | None = None  # of the similarity, (b, n), where they were read already
    _once: dict[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Number of candidates."""
        return int(self.queries.similarity.shape[1])

    @cached_property
    def similarity(self) -> Array:
        """(b, n) C-contiguous. InputError for NaN."""
        remedy = "find the pair that has no score and score it"
        return self._checked_rows(self._rows(), "similarity", remedy)

    def _rows(self) -> Array:
        if self.rows is None:
            return self.queries.similarity[self.start : self.stop]
        return self.rows

    def finite_similarity(self, what: str = "similarity") -> Array:
        """The similarity, where its values and not their order alone matter. InputError for
        infinity and NaN."""
        remedy = "give finite values, or take metrics of the order alone"
        check = partial(self._checked_rows, infinite=True)
        return self.compute_once("finite", check, self._rows(), what, remedy)

    def _checked_rows(
        self, rows: Array, what: str, remedy: str, *, infinite: bool = False
    ) -> Array:
        """Rows of this block as they are ranked. InputError for NaN, and for what is `infinite`."""
        values = as_rankable(rows)
        least, most = values.min(), values.max()  # NaN where any is
        if np.isnan(least) or (infinite and not np.isfinite([least, most]).all()):
            wrong = ~np.isfinite(values) if infinite else np.isnan(values)
            row, candidate = np.argwhere(wrong)[0]
            found = "NaN" if np.isnan(values[row, candidate]) else "infinity"
            raise InputError(
                f"{what} holds {found} (query {self.start + row}, candidate {candidate})",
                remedy=remedy,
            )
        return values

    @cached_property
    def ranking(self) -> Ranking:
        """By similarity, under the task's tie rule."""
        return rank(self.similarity, self.queries.ties)

    def relevance(self, name: str) -> Array:
        """The named relevance (b, n); NaN and infinity are refused, and what is too large to be
        added up."""
        what = f"relevance {name}".rstrip()
        if what not in self._once:
            rows = self.queries.relevance[name][self.start : self.stop]
            values = self._checked_rows(rows, what, "give finite labels", infinite=True)
            largest = max(abs(float(values.min())), abs(float(values.max())))
            if largest > _MOST / self.width:
                problem = f"{what} reaches {largest:.3g}: its sums overflow"
                raise InputError(problem, remedy="scale it")
            self._once[what] = values
        return self._once[what]

    def ideal(self, name: str) -> Ranking:
        """By the named relevance: the best order, and the tie groups of the labels."""
        return self.compute_once(f"ideal {name}", rank, self.relevance(name), self.queries.ties)

    def gains(self, name: str) -> Array:
        """The named relevance for metrics that add it up: never negative, or the ideal could not
        normalise them."""
        values = self.relevance(name)
        if (least := values.min()) >= 0:
            return values
        if not self.queries.clip:
            problem = f"{f'relevance {name}'.rstrip()} goes down to {least:g}, gains are at least 0"
            raise InputError(problem, remedy="clip it: numpy.clip(relevance, 0, None)")
        return self.compute_once(f"gains {name}", np.maximum, values, 0)

    def gains_at(
        self,
        ranking: Ranking,
        gains: Array,
        depth: int,
        left_out: tuple[Array, Array],
        exponential: bool = False,
    ) -> Array:
        """The gains (b, n) expected at the first `depth` places, float64 (b, depth); `left_out` as
        `groups` has it."""
        places = np.empty((len(gains), min(depth, self.width)))
        gains_by_place(ranking.order, ranking.end, gains, *left_out, exponential, places)
        return places

    def counts_above(self, lists: Positives) -> tuple[Array, Array]:
        """Of each listed candidate, how many of its query's candidates score higher, and how many
        the same, itself included (by rule `reference` it alone): int64 [listed] each."""
        above, tied = np.empty((2, len(lists.indices)), np.int64)
        start, items = (np.array(of, np.int64) for of in (lists.indptr, lists.indices))
        count_above(self.similarity, start, items, self.queries.ties == "reference", above, tied)
        return above, tied

    def hits_at(
        self, lists: Positives, depth: int, *, gains: Array | None = None, remove_own: bool = False
    ) -> Array:
        """The gains of the listed candidates expected at the first `depth` places, float64 (b,
        depth); 1 by default, which makes the share of each tie group that is listed."""
        every = np.zeros(self.similarity.shape)
        every[lists.queries, lists.indices] = 1 if gains is None else gains
        return self.gains_at(self.ranking, every, depth, self.groups(remove_own))

    def compute_once(self, key: str, compute: Callable[..., Any], *arguments: Any) -> Any:
        """`compute(*arguments)`, which several metrics of a block share, for the first of them."""
        if key not in self._once:
            self._once[key] = compute(*arguments)
        return self._once[key]

    def positives(self, name: str | None = None) -> Positives:
        """The named lists, or the own items when there is no name."""
        if name is None:
            return self.queries.own.rows(self.start, self.stop)
        return self.queries.positives[name].rows(self.start, self.stop)

    def groups(self, remove: bool) -> tuple[Array, Array]:
        """The group of each query (b,) and candidate (n,), by which a kernel leaves out a query's
        own items. No query shares a group with a candidate where own items stay."""
        if not remove:
            return np.full(self.stop - self.start, -1, np.int64), np.zeros(self.width, np.int64)
        # As in `Queries.own`.
        assert self.queries.query_group is not None
        assert self.queries.candidate_group is not None
        own = self.queries.query_group[self.start : self.stop]
        return own.astype(np.int64), self.queries.candidate_group.astype(np.int64)


def share(part: Array, whole: Array, otherwise: float = 0.0) -> Array:
    """part / whole, float64; `otherwise` where the whole is 0."""
    return np.divide(part, whole, out=np.full(len(whole), otherwise), where=whole > 0)


def score_matrix(
    scores: Matrix,
    score: Score,
    *,
    relevance: Matrix = None,
    own: Matrix = None,
    groups: tuple[Matrix, Matrix] = (None, None),
    codes: tuple[Array, Array] | None = None,
    ties: TieRule = "expected",
    **options: Any,
) -> Any:
    """A metric of each row of `scores`, with its options: float64 [Q], numpy for numpy, a tensor on
    the scores' device for tensors. Relevance and own items have the name ""."""
    check_matrix("similarity", similarity := as_numpy(scores))
    queries, candidates = (None if group is None else as_numpy(group) for group in groups)
    if (queries is None) != (candidates is None):
        raise InputError(
            "one of two groups is given", remedy="give query_group and candidate_group, or neither"
        )
    graded = {} if relevance is None else {"": as_numpy(relevance)}
    positives = {} if own is None else {"": lists_of(own, similarity.shape)}
    options |= {
        name: "" for name, given in (("relevance", relevance), ("lists", own)) if given is not None
    }
    options |= {} if queries is None else {"remove_own": True}
    task = Queries(similarity, queries, candidates, graded, positives, codes, ties)
    values = score_queries(task, partial(score, **options))
    if not hasattr(scores, "detach"):
        return values
    import torch  # whoever has a tensor has imported it

    return torch.from_numpy(values).to(scores.device)


def lists_of(own: Matrix, shape: tuple[int, ...]) -> Positives:
    """The True cells of each row; `Positives` as they are. InputError for what is no bool matrix of
    this shape."""
    if isinstance(own, Positives):
        return own
    marks = as_numpy(own)
    if marks.dtype != np.bool_ or marks.shape != shape:
        problem = f"own is {marks.dtype} {list(marks.shape)}, scores are {list(shape)}"
        raise InputError(problem, remedy="give bool [queries, candidates], or Positives")
    indptr = np.concatenate([[0], np.cumsum(marks.sum(axis=1))]).astype(np.int64)
    return Positives(indptr, np.nonzero(marks)[1].astype(np.int64), np.zeros(len(marks), np.int64))


def score_queries(queries: Queries, score: Score) -> Array:
    """Run a metric over all queries, blocks of what fits `CELLS` on numba's number of threads; in
    query order.

    `score` returns (b,) or (b, m), or a row for each pair of the block. The matrix is read in parts
    of what fits `READ`, so that one in a file is never in memory whole.
    """
    matrix = queries.similarity
    total, width = matrix.shape
    step = max(1, min(_CELLS // width, -(-total // get_num_threads())))
    wide, values = max(step, _READ // width), list[Array]()
    with ThreadPoolExecutor(get_num_threads()) as pool:
        for first in range(0, total, wide):
            last = min(first + wide, total)
            rows = _read_rows(matrix, first, last)
            # A generator, so that no list holds what each block has computed.
            blocks = (
                QueryBlock(queries, k, min(k + step, last), rows[k - first : k - first + step])
                for k in range(first, last, step)
            )
            values += pool.map(score, blocks)
            release(matrix)
            count_part(last - first, total)
    return np.concatenate(values)


def _read_rows(matrix: Array, first: int, last: int) -> Array:
    """Some rows of a matrix, as they are ranked. Of one that lies by columns they are turned in
    strips: a row would be read cell by cell, each on a page of its own. The system reads whole
    stretches of a mapped file around them, so each strip leaves the memory again."""
    rows = matrix[first:last]
    if abs(rows.strides[1]) <= abs(rows.strides[0]):
        return as_rankable(rows)
    turned = np.empty(rows.shape, rows.dtype)
    for start in range(0, rows.shape[1], _TURNED):
        strip = slice(start, start + _TURNED)
        turned[:, strip] = rows[:, strip]
        release(rows)
    return as_rankable(turned)


def place_pairs(similarity: Array, lists: Positives) -> tuple[Array, Array]:
    """`QueryBlock.counts_above` of the pairs that lists of each query name."""

    def count(block: QueryBlock) -> Array:
        return np.stack(block.counts_above(lists.rows(block.start, block.stop)), axis=1)

    above, tied = score_queries(Queries(similarity), count).T
    return above, tied


def check_k(k: int, least: int = 1) -> int:
    """A cut-off is a whole number of at least `least`."""
    if k != int(k) or k < least:
        raise InputError(
            f"cut-off {k} is not a whole number of at least {least}", remedy="use 1, 5, 10"
        )
    return int(k)
