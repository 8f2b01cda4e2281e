"""Rankings by top-k lists: runs and graded judgements as TREC files have them, and as FAISS and the
like give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.arrays import as_numpy
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import number, read_lines
from capgrade.schemas.trec import fields_of, refuse_spaces, write_trec


@dataclass(frozen=True)
class _QueryDocuments:
    """Documents of queries, each with a number."""

    queries: list[str]
    documents: pa.StringArray  # those of all queries, one after the other
    start: np.ndarray  # int64 [queries + 1]
    values: np.ndarray  # of the kind KIND; of lists float64

    COLUMNS: ClassVar[list[str]]  # of a line of a file
    VALUE: ClassVar[str]  # the one with the number
    LEAST: ClassVar[float]  # of a number
    KIND: ClassVar[type]  # what it is held as
    WITHIN: ClassVar[list[tuple[str, str]]]  # how the documents of a query are sorted

    @classmethod
    def from_dict(cls, given: Mapping[str, Mapping[str, float]]) -> Self:
        """{query: {document: number}}, as ranx and ir_measures take it: scores of a run, which are
        held as float32 and whose ties are the later id first, as in trec_eval; the relevance of
        judgements, at least 0, whole or not.

        >>> Run.from_dict({"q": {"a": 0.1, "b": 0.9}}).documents.to_pylist()
        ['b', 'a']
        """
        names = [str(document) for documents in given.values() for document in documents]
        values = np.array(
            [float(value) for documents in given.values() for value in documents.values()],
            np.float64,
        )
        query = np.repeat(
            np.arange(len(given)),
            np.array([len(documents) for documents in given.values()], np.int64),
        )
        return cls._from_columns(list(map(str, given)), query, pa.array(names, pa.string()), values)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A TREC file, a document a line. A run: "query Q0 document rank score tag", by score and
        not by rank, as trec_eval reads it: in float32, ties the later id first. Judgements:
        "query 0 document relevance", below 0 counts as 0. Raises InputError with file and row."""
        queries, documents, values = [], [], []
        for line, text in read_lines(Path(path)):
            fields = fields_of(text)
            if not fields:
                continue
            if len(fields) != len(cls.COLUMNS):
                problem = f"{len(fields)} fields, {len(cls.COLUMNS)} are {', '.join(cls.COLUMNS)}"
                raise InputError(problem, file=path, row=line, remedy="write one document a line")
            row = dict(zip(cls.COLUMNS, fields, strict=True))
            queries.append(row["query"])
            documents.append(row["document"])
            values.append(number(row[cls.VALUE], Path(path), line, cls.VALUE))
        clipped = np.maximum(np.array(values, np.float64), cls.LEAST)
        return cls._from_columns(
            *_number_queries(pa.array(queries, pa.string())),
            pa.array(documents, pa.string()),
            clipped,
            path,
        )

    @classmethod
    def _from_columns(
        cls,
        queries: list[str],
        query: np.ndarray,
        document: pa.Array,
        values: np.ndarray,
        file: str | Path | None = None,
    ) -> Self:
        """`query` is the number of each document's."""
        with np.errstate(over="ignore"):  # `_check` refuses what is infinite then
            values = values.astype(cls.KIND)
        table = pa.table({"query": query, "value": values, "document": document})
        order = pc.sort_indices(table, sort_keys=[("query", "ascending"), *cls.WITHIN])
        start = np.searchsorted(query[order.to_numpy()], np.arange(len(queries) + 1))
        return cls(queries, document.take(order), start, values[order.to_numpy()])._check(file)

    @cached_property
    def document_codes(self) -> tuple[np.ndarray, pa.Array]:
        """The documents as numbers, int32, and the ids that these stand for."""
        codes = pc.dictionary_encode(self.documents)
        return codes.indices.to_numpy(zero_copy_only=False), codes.dictionary

    def _check(self, file: str | Path | None = None) -> Self:
        """InputError for numbers that are none, or too small, and where a document or query comes
        twice."""
        finite = np.isfinite(self.values)
        if not finite.all():
            name = self.queries[
                int(np.searchsorted(self.start, np.argmin(finite), side="right")) - 1
            ]
            raise InputError(f"a {self.VALUE} of query '{name}' is not finite", file=file)
        if (self.values < self.LEAST).any():
            problem = f"{self.VALUE} {self.values.min():g} is below {self.LEAST:g}"
            raise InputError(
                problem, file=file, remedy=f"clip it: max({self.LEAST:g}, {self.VALUE})"
            )
        codes, width = self.document_codes[0], len(self.document_codes[1])
        key = np.sort(np.repeat(np.arange(len(self.queries)), np.diff(self.start)) * width + codes)
        twice = key[1:][np.diff(key) == 0]
        if len(twice):
            name = self.queries[int(twice[0] // width)]
            raise InputError(
                f"query '{name}' has a document twice", file=file, remedy="keep one line of it"
            )
        if len(set(self.queries)) < len(self.queries):
            raise InputError("a query comes twice", file=file, remedy="give each query one list")
        return self


@dataclass(frozen=True)
class Run(_QueryDocuments):
    """What a system retrieved: of each query its documents, best first. Made by `from_lists`,
    `from_dict` or `read`."""

    COLUMNS = ["query", "q0", "document", "rank", "score", "tag"]
    VALUE, LEAST, WITHIN = "score", -np.inf, [("value", "descending"), ("document", "descending")]
    KIND = np.float32  # trec_eval's: scores that are equal in it are a tie

    @property
    def scores(self) -> np.ndarray:
        """float32 [entries], of `from_lists` float64; never rising within a query."""
        return self.values

    @classmethod
    def from_lists(
        cls, queries: Sequence[Any], documents: Any, scores: Any = None, names: Any = None
    ) -> Run:
        """One list of documents for each query, best first, as an index returns them.

        `documents` [Q, k] are ids, or rows of `names`; -1 (FAISS: nothing found) ends a list.
        Lists, arrays or tensors, wherever they lie. `scores` [Q, k] never rise; without them the
        lists' order counts.

        Raises InputError for lists that do not fit, hold one twice, or a row that `names` has not.

        >>> Run.from_lists(["q"], [[2, 0, -1]], names=["a", "b", "c"]).documents.to_pylist()
        ['c', 'a']
        """
        queries, names = _as_arrays(queries), names if names is None else _as_arrays(names)
        rows = [list(_as_arrays(row)) for row in _as_arrays(documents)]
        lists = [range(0, -len(row), -1) for row in rows] if scores is None else _as_arrays(scores)
        values = [list(_as_arrays(row)) for row in lists]
        if len(rows) != len(queries) or [len(row) for row in rows] != [len(row) for row in values]:
            problem = f"{len(queries)} queries, {len(rows)} lists, {len(values)} of scores"
            raise InputError(
                problem, remedy="give one list for each query, one score for each document"
            )
        texts: list[str] = []
        numbers, start = [], [0]
        for query, row, scores_of_query in zip(queries, rows, values, strict=True):
            end = next(
                (
                    k
                    for k, name in enumerate(row)
                    if isinstance(name, int | np.integer) and name < 0
                ),
                len(row),
            )
            for place, name in enumerate(row[:end] if names is not None else (), 1):
                if not isinstance(name, int | np.integer) or name >= len(names):
                    problem = (
                        f"query '{query}', place {place}: {name!r} is no row of {len(names):,}"
                        " names"
                    )
                    raise InputError(
                        problem,
                        remedy="give names in the order of the index; leave names out for ids",
                    )
            if any(higher < lower for higher, lower in pairwise(scores_of_query[:end])):
                raise InputError(
                    f"scores of query '{query}' rise", remedy="give each list best first"
                )
            texts += [str(name if names is None else names[name]) for name in row[:end]]
            numbers += scores_of_query[:end]
            start.append(len(texts))
        scored = np.array(numbers, np.float64)
        return cls(
            [str(q) for q in queries], pa.array(texts, pa.string()), np.array(start), scored
        )._check()

    def write(self, path: str | Path, tag: str = "capgrade", force: bool = False) -> int:
        """A TREC run, ranks from 1; returns the lines. Raises InputError for an id with a space,
        and where a file is, but with `force`.

        >>> Run.from_dict({"q": {"a": 0.1, "b": 0.9}}).write("a.run")
        2
        """
        texts = self.documents.to_pylist()
        refuse_spaces([*self.queries, tag], "query")
        refuse_spaces(texts, "document")
        lines = []
        for query, first, last in zip(self.queries, self.start[:-1], self.start[1:], strict=True):
            for rank, k in enumerate(range(first, last), 1):
                lines.append(f"{query} Q0 {texts[k]} {rank} {float(self.scores[k])!r} {tag}\n")
        write_trec(Path(path), lines, force)
        return len(lines)


class WithJudgements(Protocol):
    """What `Qrels.from_labels` takes: `capgrade.Labels`."""

    def judgements(
        self, measure: str | None, queries: str
    ) -> tuple[pa.Array, pa.Array, np.ndarray]:
        """Query, document and relevance of each pair that is known."""


@dataclass(frozen=True)
class Qrels(_QueryDocuments):
    """Graded judgements: of each query its documents with their relevance, float, at least 0. Made
    by `from_labels`, `from_dict` or `read`."""

    COLUMNS = ["query", "zero", "document", "relevance"]
    VALUE, LEAST, WITHIN, KIND = "relevance", 0.0, [], np.float64

    @property
    def relevance(self) -> np.ndarray:
        """float64 [entries], at least 0."""
        return self.values

    @classmethod
    def from_labels(
        cls, labels: WithJudgements, measure: str | None = None, *, queries: str = "captions"
    ) -> Qrels:
        """What is known of the labels as it is, relevance below 0 as 0; `queries` is captions or
        images.

        >>> import capgrade
        >>> labels = capgrade.Labels.load("dataset")
        >>> len(Qrels.from_labels(labels, "cider", queries="images").queries)
        12
        """
        query, document, values = labels.judgements(measure, queries)
        return cls._from_columns(*_number_queries(query), document, np.maximum(values, 0))


def _as_arrays(values: Any) -> Any:
    """Tensors as arrays: their numbers are no ids, and compare as nothing."""
    return as_numpy(values) if hasattr(values, "detach") else values


def _number_queries(query: pa.Array) -> tuple[list[str], np.ndarray]:
    """Queries in order of first appearance, and the number of each line's."""
    codes = pc.dictionary_encode(query)
    return codes.dictionary.to_pylist(), codes.indices.to_numpy(zero_copy_only=False)
