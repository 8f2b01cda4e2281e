"""Paired tests of evaluations of the same queries: for means, medians and sums of metrics, each by
its own resampling.

An exchange and a draw take an image with all its captions, in both directions at once: they are not
independent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.evaluation import DIRECTIONS, RECALL, SUM_OF
from capgrade.metrics.catalogue import is_median, reduce_values
from capgrade.metrics.ranking import Array
from capgrade.metrics.uncertainty import (
    PairedTest,
    exchanged_means,
    exchanged_medians,
    paired_result,
    require_same_queries,
    resampled_means,
    resampled_medians,
)
from capgrade.schemas.errors import InputError, first_of
from capgrade.schemas.files import read_manifest
from capgrade.schemas.lines import read_json
from capgrade.schemas.say import warn
from capgrade.trainer.evaluation.evaluate import METRICS_FILE, OWNER, PER_QUERY_FILE
from capgrade.trainer.evaluation.tables import first_measure, is_graded

SHORT_TABLE = 12  # rows of the short table
# What papers on retrieval report, the most usual first: a short table is filled in this order.
PAPERS = (*RECALL, "rsum", "map@r", "ndcg", "nsum", "medr", "ncs")
_Column = tuple[str, str]  # direction, "" of a sum, and metric


@dataclass(frozen=True)
class Comparison:
    """One metric of several runs, as fractions (sums: 0 to 600), and tests of the first run less
    each other one: None where no query has a value."""

    direction: str  # i2t, t2i; "" of a sum
    metric: str  # with its measure: ndcg@25[cider]
    values: list[float]
    tests: list[PairedTest | None]

    @property
    def key(self) -> str:
        """What JSON calls it: i2t/recall@1, rsum."""
        return f"{self.direction}/{self.metric}" if self.direction else self.metric

    def json(self, k: int) -> dict[str, Any] | None:
        """The test against run k + 1, null where no query has a value."""
        test = self.tests[k]
        return None if test is None else asdict(test)


class StoredQueries:
    """What an evaluation kept of each query. InputError for a folder that is not finished."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, read_manifest(folder, "evaluation")
        self.measure = first_measure(read_json(folder / METRICS_FILE))
        with np.load(folder / PER_QUERY_FILE) as stored:
            names = [name for name in stored.files if name != OWNER]
            # Evaluations of an earlier version have no owner.
            self.owner = stored[OWNER] if OWNER in stored.files else None
            self.names = {
                direction: [n.partition("/")[2] for n in names if n.startswith(f"{direction}/")]
                for direction in DIRECTIONS
            }

    def read(self, direction: str, names: Sequence[str]) -> dict[str, Array]:
        """Values of each query of a direction, float64 [queries], by metric."""
        with np.load(self.folder / PER_QUERY_FILE) as stored:
            return {name: np.asarray(stored[f"{direction}/{name}"], np.float64) for name in names}

    def require_like(self, other: "StoredQueries") -> None:
        """InputError where another was evaluated on other captions or labels."""
        first, second = (
            {**run.manifest["inputs"], "ties": run.manifest["params"].get("ties")}
            for run in (self, other)
        )
        differing = sorted(
            name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
        )
        # These inputs belong to the models, which are what is compared.
        of_models = (
            "similarity",
            "image_embeddings",
            "caption_embeddings",
            "row_ids",
            "column_ids",
        )
        if differing := [name for name in differing if not name.startswith(of_models)]:
            problem = f"evaluated with other {', '.join(differing)} than the first"
            raise InputError(problem, file=other.folder, remedy="evaluate both alike")


def compare(
    folders: Sequence[Path],
    metrics: Sequence[str] = (),
    *,
    every: bool = False,
    method: str = "permutation",
    samples: int = 10_000,
    seed: int = 0,
) -> list[Comparison]:
    """The first of two or more evaluation folders tested against each other one: on `metrics`, on
    at most SHORT_TABLE that papers report, or on `every` metric that all have.

    InputError for a folder that is not finished, one of other captions or labels, and a metric that
    is not there.
    """
    runs = [StoredQueries(folder) for folder in folders]
    for run in runs[1:]:
        runs[0].require_like(run)
    if runs[0].owner is None:
        warn(
            f"{folders[0]}: of an earlier version: captions of one image count as independent;"
            " evaluate it again"
        )
    names_in_all = {
        direction: [
            n for n in runs[0].names[direction] if all(n in run.names[direction] for run in runs)
        ]
        for direction in DIRECTIONS
    }
    columns = (
        _find_columns(names_in_all, metrics, runs[0].measure, folders[0])
        if metrics
        else _columns(names_in_all)
    )
    columns = columns if metrics or every else _reported_columns(columns)
    first, *others = (_RunValues(run, columns) for run in runs)
    tests_by_run = [
        first.test_against(
            other, {"samples": samples, "seed": seed, "groups": runs[0].owner}, method
        )
        for other in others
    ]
    return [
        Comparison(
            direction,
            _with_measure(name, runs[0].measure),
            [values.of(direction, name) for values in (first, *others)],
            [tests[direction, name] for tests in tests_by_run],
        )
        for direction, name in columns
    ]


def list_reported(folder: Path) -> list[str]:
    """Names of at most SHORT_TABLE metrics of a finished evaluation, those that papers report.
    InputError as `compare`."""
    run = StoredQueries(folder)
    return list(
        dict.fromkeys(
            _with_measure(name, run.measure) for _, name in _reported_columns(_columns(run.names))
        )
    )


class _RunValues:
    """The values of a run that the columns need: of each query, by direction and metric, those of
    the parts of sums included."""

    def __init__(self, run: StoredQueries, columns: Sequence[_Column]) -> None:
        self.run = run
        summed = [part for _, name in columns for part in SUM_OF.get(name, ())]
        parts = [(direction, part) for part in summed for direction in DIRECTIONS]
        needed = dict.fromkeys([*(column for column in columns if column[0]), *parts])
        self.queries = {
            direction: run.read(direction, [n for of, n in needed if of == direction])
            for direction in DIRECTIONS
        }

    def of(self, direction: str, name: str) -> float:
        """The number that is reported."""
        if direction:
            return reduce_values(name, self.queries[direction][name])
        return 100 * sum(
            self.of(direction, part) for direction in DIRECTIONS for part in SUM_OF[name]
        )

    def test_against(
        self, other: "_RunValues", options: Mapping[str, Any], method: str
    ) -> dict[_Column, PairedTest | None]:
        """This run less the other, by column."""
        exchanged: dict[_Column, Array] = {}
        drawn: dict[_Column, Array] = {}
        for direction in DIRECTIONS:
            ours, theirs = self.queries[direction], other.queries[direction]
            for name in ours:
                require_same_queries(ours[name], theirs[name], f"{direction}/{name}")
            settings: dict[str, Any] = {**options, "groups": None}
            if direction == "t2i":
                settings["groups"] = options["groups"]
                if options["groups"] is None:
                    # Captions are then drawn one by one, independently of the images.
                    settings["seed"] += 1
            if means := [name for name in ours if not is_median(name)]:
                a, b = (
                    np.stack([queries[name] for name in means], axis=1)
                    for queries in (ours, theirs)
                )
                for into, values in (
                    (drawn, resampled_means(a - b, **settings)),
                    (exchanged, exchanged_means(a, b, **settings)),
                ):
                    into |= {
                        (direction, name): column
                        for name, column in zip(means, values.T, strict=True)
                    }
            for name in ours.keys() - set(means):
                a, b = ours[name], theirs[name]
                drawn[direction, name] = resampled_medians(a, **settings) - resampled_medians(
                    b, **settings
                )
                exchanged[direction, name] = exchanged_medians(a, b, **settings)
        for draws in (drawn, exchanged):
            for name, parts in SUM_OF.items():
                columns = [(direction, part) for direction in DIRECTIONS for part in parts]
                if all(column in draws for column in columns):
                    draws["", name] = 100 * np.sum([draws[column] for column in columns], axis=0)
        return {
            column: self._test_column(other, column, drawn, exchanged, method) for column in drawn
        }

    def _test_column(
        self,
        other: "_RunValues",
        column: _Column,
        drawn: Mapping[_Column, Array],
        exchanged: Mapping[_Column, Array],
        method: str,
    ) -> PairedTest | None:
        direction, name = column
        gap = self.of(direction, name) - other.of(direction, name)
        if np.isnan(gap):
            return None
        counted = (
            [self.queries[direction][name]]
            if direction
            else [self.queries[side][SUM_OF[name][0]] for side in DIRECTIONS]
        )
        queries = sum(int((~np.isnan(values)).sum()) for values in counted)
        return paired_result(
            gap, drawn[column], None if method == "bootstrap" else exchanged[column], queries
        )


def _columns(names_by_direction: Mapping[str, Sequence[str]]) -> list[_Column]:
    """Every metric in each direction that has it, then the sums whose parts are there."""
    all_names = dict.fromkeys(
        name for direction in DIRECTIONS for name in names_by_direction[direction]
    )
    columns = [
        (direction, name)
        for name in all_names
        for direction in DIRECTIONS
        if name in names_by_direction[direction]
    ]
    in_both = set.intersection(*(set(names_by_direction[direction]) for direction in DIRECTIONS))
    sums = [name for name, parts in SUM_OF.items() if in_both.issuperset(parts)]
    return [*columns, *(("", name) for name in sums)]


def _reported_columns(columns: Sequence[_Column]) -> list[_Column]:
    """At most SHORT_TABLE of these columns, chosen by the order of PAPERS and of the first measure,
    in the order of `columns`."""
    kept: list[_Column] = []
    for name in PAPERS:  # Of ndcg and ncs the first cut-off is taken.
        like = [
            metric
            for _, metric in columns
            if name in (metric, metric.partition("@")[0]) and "[" not in metric
        ]
        kept += [column for column in columns if column[1] in like[:1]]
    return [column for column in columns if column in kept[:SHORT_TABLE]] or list(
        columns[:SHORT_TABLE]
    )


def _find_columns(
    evaluated_names: Mapping[str, Collection[str]],
    metrics: Sequence[str],
    measure: str | None,
    file: Path,
) -> list[_Column]:
    """The columns of metrics by name; one of the first measure may be written without its name."""
    evaluated = _columns({side: list(names) for side, names in evaluated_names.items()})
    columns: list[_Column] = []
    for metric in metrics:
        name = metric.removesuffix(f"[{measure}]")
        if not (matching := [column for column in evaluated if column[1] == name]):
            known_names = list(dict.fromkeys(name for _, name in evaluated))
            raise InputError(
                f"no {metric}", file=file, remedy=f"evaluated: {first_of(known_names, 40)}"
            )
        columns += [column for column in matching if column not in columns]
    return columns


def _with_measure(name: str, measure: str | None) -> str:
    """ndcg@25[cider]: graded metrics have the name of the first measure too."""
    return f"{name}[{measure}]" if measure and is_graded(name) and not name.endswith("]") else name
