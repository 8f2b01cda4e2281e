"""Paired tests of evaluations of the same queries: for means, medians and sums of metrics, each by
its own resampling.

An exchange and a draw take an image with all its captions, in both directions at once: they are not
independent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capgrade.metrics.base import Queries
from capgrade.metrics.catalogue import (
    RECALL,
    SUM_OF,
    is_median,
    reduce_values,
    relevant_name,
    with_measure,
)
from capgrade.metrics.formats import DIRECTION_WORDS, DIRECTIONS, format_gap, format_value
from capgrade.metrics.runs import Qrels
from capgrade.metrics.uncertainty import (
    METHODS,
    PairedTest,
    correct,
    exchanged_means,
    exchanged_medians,
    format_p,
    paired_result,
    require_same_queries,
    resampled_means,
    resampled_medians,
)
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError, check_choice, choose_from
from capgrade.schemas.extras import needs
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.tables import WRITERS, Style, plain

if TYPE_CHECKING:
    import pandas as pd

    from capgrade.evaluation import Evaluated

WHOLE = "whole"  # the protocol without folds
SHORT_TABLE = 12  # rows of the short table
# What papers on retrieval report, the most usual first: a short table is filled in this order.
PAPERS = (*RECALL, "rsum", "map@r", "ndcg", "nsum", "medr", "ncs")
Column = tuple[str, str]  # direction, "" of a sum and of ranked lists, and metric
_HASHED = 4_000_000  # cells of a matrix that are brought into order at a time
_ITEMS = {"i2t": "images", "t2i": "captions", "": "queries"}  # the queries of a direction


@dataclass(frozen=True)
class Basis:
    """What values are of, by which a comparison tells other queries, galleries and labels."""

    # Of images and captions, or of queries: their ids, text [n]; without ids their numbers.
    ids: Mapping[str, Array] = field(default_factory=dict)
    # What decides the values -> its digest, or the value of a setting.
    labels: Mapping[str, str] = field(default_factory=dict)
    measure: str = ""  # whose relevance metrics without a name in brackets read

    def unlike(self, other: Basis) -> tuple[str, str] | None:
        """What another basis has that this one has not, and the remedy; None where values of both
        may be compared."""
        for what, ours in self.ids.items():
            theirs = other.ids.get(what, ours[:0])
            common = (
                len(np.intersect1d(ours, theirs)) if ours.dtype.kind == theirs.dtype.kind else 0
            )
            if not common == len(ours) == len(theirs):
                counts = f"{len(theirs):,} here, {len(ours):,} there, {common:,} in both"
                remedy = "evaluate both on the same"
                if (ours.dtype.kind == "U") != (theirs.dtype.kind == "U"):
                    remedy += ", and give the ids of both"
                return f"of other {what} than the first ({counts})", remedy
        differing = [
            name
            for name in self.labels
            if name in other.labels and self.labels[name] != other.labels[name]
        ]
        if differing:
            return f"evaluated with other {', '.join(differing)} than the first", (
                "evaluate both alike"
            )
        return None

    def places(self, other: Basis) -> dict[str, Array]:
        """Where each of our items stands in the other, int64 [n]."""
        found = {}
        for what, ours in self.ids.items():
            order = np.argsort(other.ids[what], kind="stable")
            found[what] = order[np.searchsorted(other.ids[what], ours, sorter=order)]
        return found


def numbered(ids: Sequence[Any] | Array | None, size: int, what: str) -> Array:
    """Ids as text [size], or numbers where there are none. InputError for another number of them,
    and for one that comes twice."""
    if ids is None:
        return np.arange(size)
    names = np.asarray([str(name) for name in ids], np.str_)
    if len(names) != size:
        raise InputError(f"{len(names)} ids for {size} {what}", remedy="give one for each")
    if len(np.unique(names)) < size:
        found, counts = np.unique(names, return_counts=True)
        raise InputError(
            f"id '{found[counts > 1][0]}' of the {what} comes twice", remedy="give each its own"
        )
    return names


def basis_of(
    i2t: Queries,
    t2i: Queries,
    ids: tuple[Any, Any] | None,
    samples: Mapping[str, Pairs],
    settings: Mapping[str, str],
    measure: str = "",
) -> Basis:
    """What an evaluation of both directions is of. Digests are of labels in the order of the ids:
    the same labels in another order of rows have the same digest."""
    sides = zip(("images", "captions"), ids or (None, None), i2t.similarity.shape, strict=True)
    named = {what: numbered(of_side, size, what) for what, of_side, size in sides}
    rows, columns = (np.argsort(names, kind="stable") for names in named.values())
    row_of, column_of = np.argsort(rows), np.argsort(columns)  # new numbers
    labels = {
        f"relevance {name}".rstrip(): _digest_matrix(matrix, rows, columns)
        for name, matrix in i2t.relevance.items()
    }
    for name, sample in samples.items():
        values = sample.value, 1 / sample.weight
        labels[f"relevance {name}".rstrip()] = _digest_pairs(
            row_of[sample.image], column_of[sample.caption], *values
        )
    if i2t.candidate_group is not None:
        labels["owner"] = _digest_pairs(row_of[i2t.candidate_group], column_of)
    if i2t.codes is not None:
        labels["classes"] = _digest_matrix(i2t.codes[0], rows)
    for name, images in i2t.positives.items():
        if name.startswith(relevant_name("")):  # told by the relevance and its limit
            continue
        captions = t2i.positives[name]
        both = (
            _digest_pairs(row_of[images.queries], column_of[images.indices]),
            _digest_pairs(column_of[captions.queries], row_of[captions.indices]),
            _digest_matrix(images.absent, rows),
            _digest_matrix(captions.absent, columns),
        )
        labels["owner" if name == "own" else f"positives {name}"] = " ".join(both)
    return Basis(named, {**labels, **settings}, measure)


def basis_of_lists(judgements: Qrels, settings: Mapping[str, str]) -> Basis:
    """What an evaluation of ranked lists is of."""
    names = numbered(judgements.queries, len(judgements.queries), "queries")
    codes, documents = judgements.document_codes
    row_of = np.argsort(np.argsort(names, kind="stable"))
    column_of = np.argsort(np.argsort(np.asarray(documents, np.str_), kind="stable"))
    query = np.repeat(np.arange(len(names)), np.diff(judgements.start))
    judged = _digest_pairs(row_of[query], column_of[codes], judgements.relevance)
    every = hashlib.sha256("\n".join(sorted(map(str, documents))).encode()).hexdigest()
    return Basis({"queries": names}, {"judgements": f"{judged} {every}", **settings})


def _digest_matrix(matrix: Array, rows: Array, columns: Array | None = None) -> str:
    """SHA-256 of a matrix, or a vector, with its rows and columns in this order."""
    found = hashlib.sha256(repr(matrix.shape).encode())
    step = max(1, _HASHED // max(1, matrix[:1].size))
    for start in range(0, len(matrix), step):
        part = matrix[rows[start : start + step]]
        part = part if columns is None else part[:, columns]
        found.update(np.ascontiguousarray(part, np.float64).tobytes())
    return found.hexdigest()


def _digest_pairs(rows: Array, columns: Array, *values: Array) -> str:
    """SHA-256 of pairs with their values, sorted by row and column."""
    order = np.lexsort((columns, rows))
    found = hashlib.sha256(repr(len(order)).encode())
    for part in (rows, columns, *values):
        found.update(np.ascontiguousarray(part[order], np.float64).tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class ComparedMetric:
    """One metric of several runs, as fractions (sums: 0 to 600), and tests of the first run less
    each other one: None where no query has a value."""

    direction: str  # i2t, t2i; "" of a sum, and of ranked lists
    metric: str  # with its measure: ndcg@25[cider]
    values: list[float]
    tests: list[PairedTest | None]

    @property
    def key(self) -> str:
        """What JSON calls it: i2t/recall@1, rsum."""
        return f"{self.direction}/{self.metric}" if self.direction else self.metric


@dataclass(frozen=True)
class Comparison(Mapping[str, PairedTest | None]):
    """Several evaluations of the same queries, with paired tests of the first less each other one;
    print it for a table. By the key of a metric, "t2i/recall@1", it has the test against the second
    one."""

    labels: Sequence[str]
    rows: Sequence[ComparedMetric]
    level: float = 0.95
    method: str = "permutation"

    @cached_property
    def _by_key(self) -> dict[str, PairedTest | None]:
        return {row.key: row.tests[0] for row in self.rows}

    def __getitem__(self, key: str) -> PairedTest | None:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def tested(self) -> int:
        """How many tests the corrected p-values are corrected for."""
        return sum(test is not None for row in self.rows for test in row.tests)

    def json(self) -> dict[str, Any]:
        """Tests by metric, null where no query has a value; of more than two runs by their labels
        too."""
        by_run = {
            label: {
                row.key: None if (test := row.tests[k]) is None else asdict(test)
                for row in self.rows
            }
            for k, label in enumerate(self.labels[1:])
        }
        return next(iter(by_run.values())) if len(by_run) == 1 else by_run

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric and each other run. Needs pandas."""
        with needs("pandas"):
            import pandas as pd
        return pd.DataFrame(
            {
                "direction": row.direction,
                "metric": row.metric,
                "first": self.labels[0],
                "second": label,
                "first_value": row.values[0],
                "second_value": value,
                **({} if test is None else asdict(test)),
            }
            for row in self.rows
            for label, value, test in zip(self.labels[1:], row.values[1:], row.tests, strict=True)
        )

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells of a table: a row for each metric."""
        words = {**DIRECTION_WORDS, "": "both"}
        heads, rows = tested_rows(
            self.labels,
            [
                (
                    [format_value(row.metric, value) for value in row.values],
                    row.tests,
                    partial(format_gap, row.metric),
                )
                for row in self.rows
            ],
            self.level,
        )
        names = [[row.metric, words[row.direction]] for row in self.rows]
        return ["metric", "direction", *heads], [
            [*name, *row] for name, row in zip(names, rows, strict=True)
        ]

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return self._written("markdown")

    def to_latex(self) -> str:
        """The table in LaTeX, for the package booktabs."""
        return self._written("latex")

    def _written(self, style: Style) -> str:
        return WRITERS[style](*self.cells(), left=2)

    def __str__(self) -> str:
        heads, rows = self.cells()
        return plain([heads, *rows])


def compare(
    runs: Mapping[str, Comparable],
    metrics: Sequence[str] | None = None,
    *,
    short: bool = False,
    method: str = "permutation",
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """The first of two or more evaluations, by label, tested against each other one: on `metrics`,
    or on all that every one has; `short` takes at most SHORT_TABLE that papers report.

    P-values are corrected for all tests of the result by Holm's method. InputError for an
    evaluation of other queries, labels or ties, and for a metric that is not there.
    """
    check_choice("method", method, METHODS)
    labels, (first, *others) = list(runs), runs.values()
    for label, other in zip(labels[1:], others, strict=True):
        _require_like(first, other, label)
    ours, *theirs = (_RunValues(run) for run in (first, *others))
    in_all = [column for column in ours.columns if all(column in run.columns for run in theirs)]
    columns = find_columns(in_all, metrics, first.basis.measure) if metrics else in_all
    columns = reported_columns(columns) if short and not metrics else columns
    if not columns:
        raise InputError("no metric that all have", remedy="evaluate all with the same metrics")
    options = {"samples": samples, "seed": seed}
    by_run = [
        _tests(ours, run, first.basis.places(other.basis), columns, options, method, level)
        for run, other in zip(theirs, others, strict=True)
    ]
    every = correct(
        {
            (k, column): test
            for k, tests in enumerate(by_run)
            for column, test in tests.items()
            if test is not None
        }
    )
    rows = [
        ComparedMetric(
            direction,
            name,
            [run.of((direction, name)) for run in (ours, *theirs)],
            [every.get((k, (direction, name))) for k in range(len(theirs))],
        )
        for direction, name in columns
    ]
    return Comparison(labels, rows, level, method)


class Comparable(Protocol):
    """What `compare` takes: evaluations of a matrix, and of ranked lists."""

    @property
    def scored(self) -> Mapping[str, Evaluated]:
        """By direction."""

    @property
    def basis(self) -> Basis:
        """What their values are of."""

    @property
    def protocol(self) -> str:
        """The whole set, or folds."""


def _require_like(first: Comparable, other: Comparable, label: str | None = None) -> None:
    """InputError where another evaluation is of other queries or labels; `label` names it."""
    if first.protocol != other.protocol:
        problem = f"of {other.protocol}, the first of {first.protocol}"
        raise InputError(problem, file=label, remedy="evaluate both alike")
    if found := first.basis.unlike(other.basis):
        raise InputError(found[0], file=label, remedy=found[1])
    if first.protocol != WHOLE and any(
        (place != np.arange(len(place))).any() for place in first.basis.places(other.basis).values()
    ):
        raise InputError("of folds in another order", file=label, remedy="give one order to both")


class _RunValues:
    """The values of a run of each query, by direction and metric, each fold apart; and its sums."""

    def __init__(self, run: Comparable) -> None:
        self.scored, measure = run.scored, run.basis.measure
        self.folds = {
            (direction, with_measure(name, measure)): [fold[name] for fold in found.folds]
            for direction, found in run.scored.items()
            for name in found.folds[0]
        }
        self.parts: dict[Column, list[Column]] = {}
        for name, parts in SUM_OF.items():
            both = [(side, with_measure(part, measure)) for side in DIRECTIONS for part in parts]
            if all(column in self.folds for column in both):
                self.parts["", with_measure(name, measure)] = both

    @property
    def columns(self) -> list[Column]:
        """Every metric in each direction that has it, then the sums whose parts are there."""
        names = dict.fromkeys(name for _, name in self.folds)
        singles = [(of, name) for name in names for of in self.scored if (of, name) in self.folds]
        return [*singles, *self.parts]

    def of(self, column: Column) -> float:
        """The number that is reported."""
        if column in self.parts:
            return 100 * sum(map(self.of, self.parts[column]))
        return float(np.mean([reduce_values(column[1], fold) for fold in self.folds[column]]))


def values_of(run: Comparable) -> dict[Column, float]:
    """The numbers of an evaluation that are reported, by direction and metric, sums last."""
    values = _RunValues(run)
    return {column: values.of(column) for column in values.columns}


def _tests(
    ours: _RunValues,
    theirs: _RunValues,
    places: Mapping[str, Array],
    columns: Sequence[Column],
    options: Mapping[str, int],
    method: str,
    level: float,
) -> dict[Column, PairedTest | None]:
    """One run less another, by column. `places`: where our queries stand among theirs."""
    needed = dict.fromkeys(part for column in columns for part in ours.parts.get(column, [column]))
    drawn: dict[Column, Array] = {}
    exchanged: dict[Column, Array] = {}
    for direction, found in ours.scored.items():
        names = [name for of, name in needed if of == direction]
        for number, groups in enumerate(found.groups):
            settings: dict[str, Any] = {**options, "groups": groups}
            settings["seed"] += number
            if direction == "t2i" and groups is None:
                # Captions are then drawn one by one, independently of the images.
                settings["seed"] += 1
            a, b = (
                {name: run.folds[direction, name][number] for name in names}
                for run in (ours, theirs)
            )
            if len(found.groups) == 1:  # folds are in one order
                b = {name: values[places[_ITEMS[direction]]] for name, values in b.items()}
            of_both = _draw(a, b, settings, direction)
            for draws, of_fold in zip((drawn, exchanged), of_both, strict=True):
                for name, values in of_fold.items():
                    share = values / len(found.groups)
                    draws[direction, name] = draws.get((direction, name), 0) + share
    for draws in (drawn, exchanged):
        for column in columns:
            if column in ours.parts:
                draws[column] = 100 * np.sum([draws[part] for part in ours.parts[column]], axis=0)
    tests: dict[Column, PairedTest | None] = {}
    for column in columns:
        gap = ours.of(column) - theirs.of(column)
        # Of a sum, the queries of each direction are counted once.
        parts = {part[0]: part for part in ours.parts.get(column, [column])}.values()
        queries = sum(int((~np.isnan(fold)).sum()) for part in parts for fold in ours.folds[part])
        tests[column] = (
            None
            if np.isnan(gap)
            else paired_result(
                gap,
                drawn[column],
                None if method == "bootstrap" else exchanged[column],
                queries,
                level,
            )
        )
    return tests


def _draw(
    ours: Mapping[str, Array],
    theirs: Mapping[str, Array],
    settings: Mapping[str, Any],
    direction: str,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Bootstrap draws and exchanges of the differences of one direction, by metric."""
    for name in ours:
        require_same_queries(ours[name], theirs[name], f"{direction}/{name}".lstrip("/"))
    drawn, exchanged = dict[str, Array](), dict[str, Array]()
    if means := [name for name in ours if not is_median(name)]:
        a, b = (np.stack([values[name] for name in means], axis=1) for values in (ours, theirs))
        drawn |= zip(means, resampled_means(a - b, **settings).T, strict=True)
        exchanged |= zip(means, exchanged_means(a, b, **settings).T, strict=True)
    for name in ours.keys() - set(means):
        a, b = ours[name], theirs[name]
        drawn[name] = resampled_medians(a, **settings) - resampled_medians(b, **settings)
        exchanged[name] = exchanged_medians(a, b, **settings)
    return drawn, exchanged


def reported_columns(columns: Sequence[Column]) -> list[Column]:
    """At most SHORT_TABLE of these columns, chosen by the order of PAPERS and of the first measure,
    in the order of `columns`."""
    kept: list[Column] = []
    for name in PAPERS:  # Of ndcg and ncs the first cut-off and measure are taken.
        like = [
            metric
            for _, metric in columns
            if name in (plain_name := metric.partition("[")[0], plain_name.partition("@")[0])
        ]
        kept += [column for column in columns if column[1] in like[:1]]
    return [column for column in columns if column in kept[:SHORT_TABLE]] or list(
        columns[:SHORT_TABLE]
    )


def find_columns(columns: Collection[Column], metrics: Sequence[str], measure: str) -> list[Column]:
    """The columns of metrics by name; one of the first measure may be written without its name."""
    chosen: list[Column] = []
    for metric in metrics:
        name = with_measure(metric, measure)
        if not (matching := [column for column in columns if column[1] == name]):
            known = list(dict.fromkeys(known_name for _, known_name in columns))
            raise InputError(f"no {metric} was evaluated", remedy=choose_from(metric, known))
        chosen += [column for column in matching if column not in chosen]
    return chosen


def tested_rows(
    labels: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[PairedTest | None], Callable[[float], str]]],
    level: float = 0.95,
    of: str = "queries",
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of systems' values, and of tests of the first against each other one; a row
    has the values, the tests, and how a difference is written. Of two systems the difference has an
    interval, of more each cell a corrected p."""
    if len(labels) != 2:
        cells = [
            [first, *(_with_p(value, test) for value, test in zip(others, tests, strict=True))]
            for (first, *others), tests, _ in rows
        ]
        return [*labels], cells
    gap = f"{labels[0]} less {labels[1]}"
    heads = [*labels, gap, f"{level:.0%} interval", "p", "corrected p", of]
    return heads, [[*values, *_gap_cells(tests[0], write)] for values, tests, write in rows]


def _with_p(value: str, test: PairedTest | None) -> str:
    if test is None:
        return value
    p = format_p(test.corrected, test)
    return f"{value} (p {p})"


def _gap_cells(test: PairedTest | None, write: Callable[[float], str]) -> list[str]:
    if test is None:
        return ["-"] * 5
    between = f"{write(test.low)} .. {write(test.high)}"
    p_values = [format_p(p, test) for p in (test.p_value, test.corrected)]
    return [write(test.difference), between, *p_values, f"{test.queries:,}"]
