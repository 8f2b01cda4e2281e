"""The relevant candidates of each query, as lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs


@dataclass(frozen=True)
class Positives:
    """The relevant candidates of each query, as rows of a sparse matrix: indices[indptr[q]:indptr[q
    + 1]].

    `absent` counts positives that the gallery does not hold: never retrieved, but part of the
    query's number.

    >>> found = Positives.from_ids({"q": ["b", "z"]}, queries=["q", "r"], candidates=["a", "b"])
    >>> found.indices, found.absent, found.sizes
    (array([1]), array([1, 0]), array([2, 0]))
    """

    indptr: Array  # (n_queries + 1,) int64
    indices: Array  # int64, candidates
    absent: Array  # (n_queries,) int64

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int] | Array]) -> Positives:
        """One list of candidates per query, -1 for an absent one; an empty list leaves the query
        out of the metric."""
        rows = [np.asarray(items, np.int64) for items in lists]
        absent = np.array([int((row < 0).sum()) for row in rows], np.int64)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows] - absent, out=indptr[1:])
        flat = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        return cls(indptr, flat[flat >= 0], absent)

    @classmethod
    def from_ids(
        cls,
        lists: Mapping[Any, Iterable[Any]],
        queries: Sequence[Any] | Array,
        candidates: Sequence[Any] | Array,
    ) -> Positives:
        """The lists of `queries` in their order; a positive that is not among `candidates` is
        absent. Ids are compared as text. A query without a list, or with an empty one, is left out
        of the metric; lists of other queries too.

        InputError where no query has a list, for a candidate that is given twice, and for a
        positive listed twice.
        """
        rows = {str(query): [str(item) for item in items] for query, items in lists.items()}
        at = {str(item): index for index, item in enumerate(candidates)}
        if len(at) < len(candidates):
            raise InputError(
                "a candidate is given twice", remedy="give each id once, in the order of the scores"
            )
        chosen = [rows.get(str(query), []) for query in queries]
        if len(queries) and not any(str(query) in rows for query in queries):
            problem = f"no query has a list of positives, such as '{queries[0]}'"
            raise InputError(
                problem,
                remedy=f"give queries with the ids of the lists, such as {next(iter(rows), '-')}",
            )
        for query, row in zip(queries, chosen, strict=True):
            if len(set(row)) < len(row):
                raise InputError(
                    f"the list of query '{query}' names a positive twice", remedy="name each once"
                )
        return cls.from_lists([[at.get(item, -1) for item in row] for row in chosen])

    @property
    def queries(self) -> Array:
        """The query of each of `indices`, int64."""
        return np.repeat(np.arange(len(self.absent)), np.diff(self.indptr))

    @property
    def sizes(self) -> Array:
        """Number of positives of each query, absent ones included."""
        return np.asarray(np.diff(self.indptr) + self.absent)

    def pairs(self, gain: float = 1.0) -> Pairs:
        """Those of these lists, of one gain that needs no judge; absent ones are left out."""
        gains = np.full(len(self.indices), gain)
        return Pairs.judged(self.queries, self.indices, gains, np.ones(len(gains)))

    def rows(self, start: int, stop: int) -> Positives:
        """The queries start..stop."""
        low, high = self.indptr[start], self.indptr[stop]
        return Positives(
            self.indptr[start : stop + 1] - low, self.indices[low:high], self.absent[start:stop]
        )

    def lists(self) -> list[Array]:
        """One array of candidates per query, -1 for absent ones."""
        rows = np.split(self.indices, self.indptr[1:-1])
        return [
            np.append(row, np.full(gone, -1)) if gone else row
            for row, gone in zip(rows, self.absent, strict=True)
        ]


BothSides: TypeAlias = tuple[Positives, Positives]  # of the rows, of the columns of scores
