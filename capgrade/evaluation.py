"""`capgrade.evaluate` of a score matrix, `evaluate_lists` of ranked lists: many metrics by name,
with intervals.

The command `capgrade evaluate` and `reproduce` call it too, so that these numbers are computed in
one place; validation while training shares `metrics.directions` with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from capgrade.agreement.correlation import (
    agreement_of_scores,
    judged_intervals,
    judged_values,
)
from capgrade.agreement.judgements import Judgements
from capgrade.comparison import WHOLE, Basis, Comparison, basis_of, basis_of_lists, compare
from capgrade.metrics.base import Queries
from capgrade.metrics.catalogue import (
    CATALOGUE,
    RECALL,
    Metric,
    choose_metric,
    family_of,
    find_metric,
    is_graded,
    is_median,
    reduce_values,
    score_all,
    usage,
)
from capgrade.metrics.directions import LIST_NAMES, add_up, directions_of, split_folds
from capgrade.metrics.formats import DIRECTION_WORDS, DIRECTIONS
from capgrade.metrics.judged_sample import (
    Estimate,
    PairPlaces,
    QueryValues,
    query_values,
)
from capgrade.metrics.lists import score_run
from capgrade.metrics.positives import BothSides, Positives
from capgrade.metrics.ranking import TieRule
from capgrade.metrics.runs import Qrels, Run
from capgrade.metrics.semantic_map import Collapse, collapse
from capgrade.metrics.semantic_recall import extension_images, extension_name, extension_set
from capgrade.metrics.uncertainty import (
    resampled_means,
    resampled_medians,
    tails,
)
from capgrade.schemas.arrays import Array, as_numpy, row_parts
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError, check_choice
from capgrade.schemas.extras import needs
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.progress import part_of_work
from capgrade.schemas.tables import plain

if TYPE_CHECKING:
    import pandas as pd

_OF_RELEVANCE = ("ndcg@25", "ncs@5", "asp", "kendall_tau_a")  # where nobody names metrics
_LISTED = ("ndcg@25", "ncs@5", *RECALL)
# Metrics of relevance that a sample of the pairs tells. Others need the order of all pairs.
FROM_SAMPLE = ("ncs", "ndcg", "ndcg_exp", "relevant_recall", "relevant_r", "relevant_map@r")
# What a metric lacks: what that is, and how it is given; arguments are in braces.
LACKS = {
    "own": ("the own items", "give {owner}, the row of each column"),
    "groups": ("the image of each caption", "give {owner}, the row of each column"),
    "relevance": ("relevance labels", "give {relevance}"),
    "relevant": ("a threshold of relevance", "give {above}"),
    "several": ("several relevances", "give {relevance} of two measures or more"),
    "cosines": ("cosines, these leave [-1, 1]", "normalise the embeddings"),
    "classes": ("class vectors", "give {classes}, of COCO's instances json"),
    "eccv": (
        "ECCV Caption's positives",
        "give {positives.eccv}, of metrics.human_lists('eccv', ...)",
    ),
    "cxc": ("CxC's positives", "give {positives.cxc}, of metrics.human_lists('cxc', ...)"),
    "accepted": ("likely positives", "give {positives.accepted}, of capgrade audit or a list"),
}
_ARGUMENTS = (
    *("owner", "relevance", "above", "classes", "fold"),
    *(f"positives.{name}" for name in LIST_NAMES),
)


@dataclass(frozen=True)
class Draws:
    """How intervals are drawn: bootstrap samples of the images, 0 for none. InputError for a level
    outside (0, 1).

    >>> some = Draws(level=0.9, samples=200)
    >>> print(evaluate(np.eye(2), owner=[0, 1], metrics="recall@1", direction="i2t",
    ...     intervals=some))
              i2t
    recall@1  1.0000 [1.0000, 1.0000]
    """

    level: float = 0.95
    samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        tails(self.level)
        if self.samples < 0:
            raise InputError(f"{self.samples} samples", remedy="give 0 for no intervals, or more")

    def intervals(self, drawn: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
        """Percentile intervals of what has values, each float64 [samples]."""
        finite = {name: values for name, values in drawn.items() if not np.isnan(values).all()}
        bounds = {
            name: np.nanquantile(values, tails(self.level)) for name, values in finite.items()
        }
        return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


_DRAWS = Draws()


@dataclass(frozen=True)
class Evaluated:
    """Metrics of one direction, or of ranked lists: each one's value for every query, NaN where the
    query has none."""

    # Each fold's values by metric, float64 [queries]; without folds one, the whole set.
    folds: Sequence[Mapping[str, Array]]
    queries: Sequence[str] | None = None  # their ids, of ranked lists
    metrics: Sequence[Metric] = ()
    # Each fold's image of each query, int64; None: each query is an image of its own.
    groups: Sequence[Array | None] = (None,)
    drawn: Draws = field(default_factory=Draws)
    # Of a sample of the pairs, by metric: estimates that say why they have no interval.
    estimated: Mapping[str, QueryValues] = field(default_factory=dict)
    basis: Basis = Basis()  # of ranked lists; that of a matrix is its evaluation's

    @cached_property
    def values(self) -> dict[str, Array]:
        """Each metric's value for every query, folds one after the other, float64 [queries]."""
        return {name: np.concatenate([fold[name] for fold in self.folds]) for name in self.folds[0]}

    @cached_property
    def mean(self) -> dict[str, float]:
        """Each metric over the queries that have a value (of medr the floored median), averaged
        over folds."""
        means = {
            name: float(np.mean([reduce_values(name, fold[name]) for fold in self.folds]))
            for name in self.folds[0]
        }
        return means | {name: one.value for name, one in self.estimates.items()}

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many queries have a value of each metric."""
        return {name: int((~np.isnan(values)).sum()) for name, values in self.values.items()}

    @cached_property
    def draws(self) -> dict[str, Array]:
        """Bootstrap draws of each metric, float64 [samples]: images drawn within each fold, with
        all their captions where these are the queries; folds averaged."""
        total = {name: np.zeros(self.drawn.samples) for name in self.folds[0]}
        for number, (fold, images) in enumerate(zip(self.folds, self.groups, strict=True)):
            options: dict[str, Any] = {
                "samples": self.drawn.samples,
                "seed": self.drawn.seed + number,
                "groups": images,
            }
            if means := [name for name in fold if not is_median(name)]:
                table = np.stack([fold[name] for name in means], axis=1)
                for name, drawn in zip(means, resampled_means(table, **options).T, strict=True):
                    total[name] += drawn / len(self.folds)
            for name in fold.keys() - set(means):
                total[name] += resampled_medians(fold[name], **options) / len(self.folds)
        return total

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals over queries of each metric that has a value; none without
        samples."""
        if not self.drawn.samples:
            return {}
        # Samples are of the whole gallery, never of folds.
        draws = {name: drawn for name, drawn in self.draws.items() if name not in self.estimated}
        estimates = {
            name: (one.low, one.high) for name, one in self.estimates.items() if not one.note
        }
        return self.drawn.intervals(draws) | estimates

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Metrics of a sample of the pairs."""
        return {
            name: values.estimate(self.drawn.level, self.groups[0])
            for name, values in self.estimated.items()
        }

    @property
    def scored(self) -> Mapping[str, Evaluated]:
        """As that of an evaluation; ranked lists have one direction."""
        return {"": self}

    @property
    def protocol(self) -> str:
        """As that of an evaluation."""
        return WHOLE

    def compare(
        self, other: Evaluated, metrics: str | Sequence[str] | None = None, **how: Any
    ) -> Comparison:
        """These ranked lists less others of the same queries and judgements; `how` and errors as
        `Evaluation.compare` has them.

        >>> judged = {"q": {"b": 2}, "r": {"b": 1}}
        >>> runs = [{query: {"b": 1.0, top: 2.0} for query in judged} for top in ("b", "a")]
        >>> ours, theirs = (evaluate_lists(run, judged, "ndcg@2") for run in runs)
        >>> round(ours.compare(theirs)["ndcg@2"].difference, 4)
        0.3691
        """
        if not self.basis.ids:
            raise InputError(
                "one direction of an evaluation", remedy="compare both: evaluation.compare(other)"
            )
        return compare({"first": self, "second": other}, _named_metrics(metrics), **how)

    def to_frame(self) -> pd.DataFrame:
        """A row for each metric: its value, the interval and the number of queries that have a
        value. Needs pandas."""
        return _frame({"": self}, {}, {}).drop(columns="direction")

    def __str__(self) -> str:
        return plain([[name, self._cell(name)] for name in self.mean])

    def _cell(self, name: str) -> str:
        return _with_interval(self.mean[name], self.intervals.get(name), 4)


@dataclass(frozen=True)
class Evaluation:
    """Both directions of a score matrix; one of them where only one was asked for."""

    protocol: str  # WHOLE or "folds of N"
    scored: Mapping[str, Evaluated]
    # How many images, captions and folds, and in each direction how many queries lack a value.
    counts: Mapping[str, Any]
    # Of each direction, where lambda@K was asked for.
    collapse: Mapping[str, Collapse] = field(default_factory=dict)
    notes: Sequence[str] = ()
    basis: Basis = Basis()  # what these values are of
    # By the name of the judgements, `agreement_of_scores` with them.
    judgements: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def i2t(self) -> Evaluated:
        """Image to text: rows of the scores are queries."""
        return self._direction("i2t")

    @property
    def t2i(self) -> Evaluated:
        """Text to image: columns of the scores are queries."""
        return self._direction("t2i")

    def _direction(self, direction: str) -> Evaluated:
        if direction not in self.scored:
            raise InputError(
                f"direction {direction} was not evaluated", remedy="leave direction away: both are"
            )
        return self.scored[direction]

    @cached_property
    def sums(self) -> dict[str, float]:
        """rsum and nsum: recall@1, 5, 10 and ncs@1, 5, 10 of both directions in percent, added up:
        0 to 600. A sum of which a part has no value is left out."""
        totals = add_up({k: v.mean for k, v in self.scored.items()})
        return {name: float(value) for name, value in totals.items() if not np.isnan(value)}

    @cached_property
    def sum_intervals(self) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals of the sums whose parts have one; none without samples."""
        drawn = next(iter(self.scored.values())).drawn
        if not drawn.samples:
            return {}
        known = {
            direction: {name: of.draws[name] for name in of.intervals}
            for direction, of in self.scored.items()
        }
        return drawn.intervals(add_up(known))

    @cached_property
    def judged(self) -> dict[str, float]:
        """judged_tau_b[NAME] of each judgements: Kendall's tau-b over pairs with captions of other
        images, -1 to 1."""
        return judged_values(self.judgements)

    @cached_property
    def judged_intervals(self) -> dict[str, tuple[float, float]]:
        """Intervals of `judged` at 95 %, by a bootstrap over images."""
        return judged_intervals(self.judgements)

    @property
    def rsum(self) -> float:
        """The sum of the six recalls in percent, 0 to 600. InputError where they were not all asked
        for."""
        if "rsum" not in self.sums:
            raise InputError(
                "rsum was not evaluated", remedy=f"ask for {', '.join(RECALL)} in both directions"
            )
        return self.sums["rsum"]

    def compare(
        self,
        other: Evaluation,
        metrics: str | Sequence[str] | None = None,
        *,
        method: str = "permutation",
        level: float = 0.95,
        samples: int = 10_000,
        seed: int = 0,
    ) -> Comparison:
        """This system less another on the same images and captions: of each metric the difference,
        its paired bootstrap interval, the p-value, and that corrected for all metrics by Holm's
        method. Images are exchanged and drawn with all their captions.

        `method`: permutation, or bootstrap; `metrics` as `evaluate` has them, None for all that
        both have. With `ids` of both, rows and columns may be in other orders. InputError for other
        images, captions, owners, labels or ties.

        >>> ours, theirs = (evaluate(scores, owner=[0, 1], metrics="recall@1")
        ...     for scores in (np.eye(2), 1 - np.eye(2)))
        >>> ours.compare(theirs)["i2t/recall@1"].difference
        1.0
        """
        runs = {"first": self, "second": other}
        how: dict[str, Any] = {"method": method, "level": level, "samples": samples, "seed": seed}
        return compare(runs, _named_metrics(metrics), **how)

    def to_frame(self) -> pd.DataFrame:
        """A row for each direction and metric: its value, the interval and the number of queries
        that have a value; the sums and the agreement with judgements last. Fractions, sums 0 to
        600. Needs pandas."""
        both = self.sums | self.judged, self.sum_intervals | self.judged_intervals
        return _frame(self.scored, *both)

    def to_latex(self, label: str = "this run", metrics: str | Sequence[str] | None = None) -> str:
        """`latex_table` of this result alone."""
        return latex_table({label: self}, metrics)

    def json(self) -> dict[str, Any]:
        """Fractions, except rsum and nsum of 0 to 600; `intervals` under the same keys; null where
        no query has a value. `judgements`, if there are any, have their own intervals."""
        values = {
            direction: {
                name: None if np.isnan(value) else value for name, value in scored.mean.items()
            }
            for direction, scored in self.scored.items()
        }
        intervals: dict[str, Any] = {
            direction: evaluated.intervals
            for direction, evaluated in self.scored.items()
            if evaluated.intervals
        }
        state = {
            name: {"contrast": c.contrast, "collapsed": c.collapsed}
            for name, c in self.collapse.items()
        }
        return {
            **values,
            **self.sums,
            "intervals": {**intervals, **self.sum_intervals},
            "protocol": self.protocol,
            "counts": dict(self.counts),
            "collapse": state,
            "notes": list(self.notes),
            **({"judgements": dict(self.judgements)} if self.judgements else {}),
        }

    def __str__(self) -> str:
        names = next(iter(self.scored.values())).mean
        rows = [
            [name, *(evaluated._cell(name) for evaluated in self.scored.values())] for name in names
        ]
        sums = [
            [name, _with_interval(v, self.sum_intervals.get(name), 1)]
            for name, v in self.sums.items()
        ]
        sums += [
            [name, _with_interval(v, self.judged_intervals.get(name), 4)]
            for name, v in self.judged.items()
        ]
        warned = [f"\n{direction}: {state}" for direction, state in self.collapse.items()]
        warned += [f"\n{note}" for note in self.notes]
        return plain([["", *self.scored], *rows, *sums]) + "".join(warned)


def _frame(
    scored: Mapping[str, Evaluated],
    sums: Mapping[str, float],
    sum_intervals: Mapping[str, tuple[float, float]],
) -> pd.DataFrame:
    with needs("pandas"):
        import pandas as pd
    nothing = np.nan, np.nan
    rows: list[tuple[Any, ...]] = [
        (direction, name, value, *found.intervals.get(name, nothing), found.counts[name])
        for name in next(iter(scored.values())).mean
        for direction, found in scored.items()
        for value in [found.mean[name]]
    ]
    rows += [
        ("", name, value, *sum_intervals.get(name, nothing), None) for name, value in sums.items()
    ]
    frame = pd.DataFrame(rows, columns=["direction", "metric", "value", "low", "high", "queries"])
    return frame.astype({"queries": "Int64"})


def latex_table(
    results: Mapping[str, Evaluation], metrics: str | Sequence[str] | None = None
) -> str:
    """Evaluations by label as a table of a paper: a row each, the directions over the columns, in
    percent. The best value is bold, and so is each that a paired test at 5 % does not tell from it.

    `metrics`: recall@1, 5, 10 and rsum by default. LaTeX needs the package booktabs. InputError for
    a metric that a result lacks.

    >>> found = evaluate(np.eye(2), owner=[0, 1], metrics=["recall@1", "recall@5"])
    >>> print(latex_table({"ours": found}).splitlines()[4])
     & R@1 & R@5 & R@1 & R@5 \\\\
    """
    from capgrade.result_tables import Result, table_of

    read = {label: Result.of(found) for label, found in results.items()}
    return table_of(read, _named_metrics(metrics), "latex")


@runtime_checkable
class GradedLabels(Protocol):
    """What is read here of `capgrade.Labels`, so that no file that opens labels is imported."""

    image_ids: Sequence[str]
    n_captions: int
    owners: Array | None
    captions: Captions | None

    def relevance(self, measure: str | None) -> Array | Pairs: ...


def evaluate(
    scores: Any,
    relevance: Any = None,
    metrics: str | Sequence[str] | None = None,
    *,
    owner: Any = None,
    positives: Mapping[str, BothSides] | None = None,
    classes: Any = None,
    measure: str | None = None,
    above: float | Mapping[str, float] | None = None,
    ids: tuple[Sequence[Any], Sequence[Any]] | None = None,
    direction: str = "both",
    fold: int | None = None,
    ties: TieRule = "expected",
    intervals: Draws | None = _DRAWS,
    judgements: Mapping[str, Judgements] | None = None,
) -> Evaluation:
    """Every metric for every query, of a matrix of scores; print it for a table with bootstrap
    `intervals`, None for none.

    `scores` [n_images, n_captions], numpy or torch; `.i2t` and `.t2i` have values, means and
    intervals, and `.rsum` the sum of the recalls. Give what the metrics need, all in this
    orientation, and nothing else:

    - `owner` int [n_captions], the row of each caption's image; or bool [n_images, n_captions],
      where captions have several: recall@K, ...
    - `relevance` float [n_images, n_captions], a dict of several (the first has plain names, others
      ndcg@25[name]), or `Labels` of these images and captions, by `measure`, which bring the owner:
      ndcg@25, ncs@5, asp, ... Of shards, or of judged `Pairs`, it is estimated by the weights:
      ndcg@K, ndcg_exp@K, ncs@K. A pair over `above` is right: relevant_recall@K, relevant_r@K,
      relevant_map@r
    - `positives`, (of images, of captions) for "eccv", "cxc" or "accepted": map@r, r_precision,
      cxc_recall@K, ...
    - `classes` 0/1 [n_images, n_classes]: pmrp
    - `judgements` by name, whose numbers are rows and columns: how well the scores agree with
      people on the pairs that these judged, `.judgements`; needs the owner

    Without `metrics`: recall@1, 5, 10, and of relevance ndcg@25, ncs@5, asp and kendall_tau_a.
    `ids` of images and captions, which `Labels` bring, are what `compare` goes by. `fold` averages
    over folds of so many images. Relevance below 0 is a gain of 0 (ndcg, ncs, soft sr); metrics of
    ranks take it as it is.

    Raises InputError for unknown metrics, for those that need what was not given, and for shapes
    and ids that do not fit.

    >>> found = evaluate(np.array([[0.9, 0.2, 0.5], [0.1, 0.3, 0.4]]), owner=[0, 1, 0],
    ...     metrics="recall@1")
    >>> found.i2t.mean, found.t2i.mean
    ({'recall@1': 0.5}, {'recall@1': 1.0})
    """
    if isinstance(scores, Run | Mapping):
        raise InputError(
            "scores are ranked lists, no matrix", remedy="give them to capgrade.evaluate_lists"
        )
    check_choice("direction", direction, ("both", *DIRECTIONS))
    similarity, names = as_numpy(scores), _named_metrics(metrics)
    if isinstance(relevance, GradedLabels):
        _require_shape(relevance, similarity.shape)
        owner = relevance.owners if owner is None else owner
        if ids is None and relevance.captions is not None:
            ids = relevance.image_ids, relevance.captions.caption_ids
    named = _named_relevance(relevance, measure, names)
    samples: dict[str, Pairs] = {}
    matrices: dict[str, Array] = {}
    for name, known in named.items():
        if isinstance(known, Pairs):
            samples[name] = known
        else:
            matrices[name] = known
    if samples and matrices:
        problem = f"relevance of all pairs ({', '.join(matrices)}) beside samples"
        raise InputError(problem, remedy="evaluate by one kind at a time")
    limits = _limits_of(above, named)
    directions = directions_of(
        similarity,
        matrices,
        owner=owner,
        positives=positives,
        classes=classes,
        above={} if samples else limits,
        ties=ties,
    )
    available = {
        "relevance": isinstance(relevance, GradedLabels) or bool(named),
        "several": len(named) > 1,
        "relevant": bool(limits),
    }
    names = _usable_names(names, directions["i2t"], available, fold, sampled=bool(samples))
    chosen = _build_metrics(names, named, limits)
    asked = DIRECTIONS if direction == "both" else (direction,)
    parts = [
        _with_extensions(part, chosen)
        for part in ([directions] if fold is None else split_folds(directions["i2t"], fold))
    ]
    drawn = intervals or Draws(samples=0)
    of_samples = {
        "i2t": samples,
        "t2i": {name: sample.transposed() for name, sample in samples.items()},
    }
    scored = {}
    shown = asked if any(name.startswith("lambda") for name in names) else ()
    passes = len(asked) * (len(parts) + bool(samples)) + len(shown)  # over the matrix
    for direction in asked:
        of_direction = [part[direction] for part in parts]
        # Samples are of the whole gallery, never of folds.
        with part_of_work(bool(samples), passes):
            estimated = _estimate(
                of_direction[0], chosen, of_samples[direction], limits, drawn.seed
            )
        folds = []
        for queries in of_direction:
            with part_of_work(1, passes):
                folds.append(_score_queries(queries, chosen, estimated))
        scored[direction] = Evaluated(
            folds,
            metrics=chosen,
            groups=[queries.query_group for queries in of_direction],
            drawn=drawn,
            estimated=estimated,
        )
    collapses = {}
    for direction in shown:
        with part_of_work(1, passes):
            collapses[direction] = collapse(*(part[direction].similarity for part in parts))
    settings = {"ties": ties, **{f"above {n}".rstrip(): repr(v) for n, v in limits.items()}}
    if "asp_a" in names:
        settings["measures of asp_a"] = ", ".join(named)
    return Evaluation(
        WHOLE if fold is None else f"folds of {fold}",
        scored,
        _count_cells(directions["i2t"], scored, len(parts), samples),
        collapses,
        _notes_of(scored),
        basis=basis_of(
            directions["i2t"], directions["t2i"], ids, samples, settings, next(iter(named), "")
        ),
        judgements=_agreements(directions["i2t"], judgements or {}),
    )


def _agreements(whole: Queries, judgements: Mapping[str, Judgements]) -> dict[str, dict[str, Any]]:
    """`agreement_of_scores` with each judgements; they are of the whole gallery, also beside
    folds."""
    if not judgements:
        return {}
    if (owner := whole.candidate_group) is None:
        problem = "judgements need the image of each caption"
        raise InputError(problem, remedy="give owner, the row of each column")
    found = {}
    for name, people in judgements.items():
        try:
            found[name] = agreement_of_scores(whole.similarity, owner, people)
        except InputError as error:
            raise error.of(name) from error
    return found


def evaluate_lists(
    run: Run | Mapping[str, Mapping[str, float]],
    judgements: Qrels | Mapping[str, Mapping[str, float]],
    metrics: str | Sequence[str] | None = None,
    *,
    above: float = 0.0,
    intervals: Draws | None = _DRAWS,
) -> Evaluated:
    """Every metric for every judged query, of ranked lists: a `Run` and `Qrels`, or each a dict of
    dicts.

    Metrics: ndcg@K, ndcg_exp@K, ncs@K, recall@K (any hit), r@K (share of the relevant),
    precision@K, mrr@K, map@K, r_precision, map@r; relevant is what exceeds `above`. Every metric
    is a mean of all judged queries. One without a list, or without a relevant document, scores 0,
    and a warning says how many do; a query without judgements does not count.

    Raises InputError for unknown metrics, `above` below 0, and judgements that are none.

    >>> print(evaluate_lists({"q": {"a": 0.9, "b": 0.1}}, {"q": {"b": 2}}, ["ndcg@2", "mrr@2"]))
    ndcg@2  0.6309 [0.6309, 0.6309]
    mrr@2   0.5000 [0.5000, 0.5000]
    """
    if isinstance(judgements, GradedLabels):
        raise InputError(
            "ranked lists against Labels", remedy="give Qrels.from_labels(labels, ...)"
        )
    if not above >= 0:  # what nobody judged counts as 0, and so does what is below
        raise InputError(
            f"above {above:g} of judgements that are at least 0", remedy="give 0 or more"
        )
    lists = run if isinstance(run, Run) else Run.from_dict(run)
    qrels = judgements if isinstance(judgements, Qrels) else Qrels.from_dict(judgements)
    chosen = _named_metrics(metrics) or list(_LISTED)
    table = score_run(lists, qrels, chosen, above)
    values = {name: table[:, k] for k, name in enumerate(chosen)}
    return Evaluated(
        [values],
        qrels.queries,
        drawn=intervals or Draws(samples=0),
        basis=basis_of_lists(qrels, {"above": repr(float(above))}),
    )


def _named_relevance(
    relevance: Any, measure: str | None, names: Sequence[str] | None
) -> dict[str, Array | Pairs]:
    """What relevance is given, by name; a single one has the name "". InputError for `measure`
    beside relevance that is no Labels."""
    if isinstance(relevance, GradedLabels):
        # Recall needs no labels, which may be known of some pairs only.
        is_read = names is None or any(map(is_graded, names))
        return {"": relevance.relevance(measure)} if is_read else {}
    if measure is not None:
        raise InputError(
            f"measure {measure!r} of a matrix", remedy="measure chooses among those of Labels"
        )
    if relevance is None:
        return {}
    several = relevance if isinstance(relevance, Mapping) else {"": relevance}
    return {
        str(name): matrix if isinstance(matrix, Pairs) else as_numpy(matrix)
        for name, matrix in several.items()
    }


def _named_metrics(metrics: str | Sequence[str] | None) -> list[str] | None:
    names = [metrics] if isinstance(metrics, str) else None if metrics is None else list(metrics)
    if names == []:
        raise InputError("no metrics", remedy="name some, or leave them to their default, None")
    return names


def may_be_cosines(similarity: Array) -> bool:
    """Whether these can be cosines, which SemanticMap needs."""
    return all(rows.min() >= -1.001 and rows.max() <= 1.001 for rows in row_parts(similarity))


def _limits_of(
    above: float | Mapping[str, float] | None, relevance: Mapping[str, Any]
) -> dict[str, float]:
    """By relevance the value over which a pair is right. InputError for one that is not given, and
    for one below 0."""
    if above is None:
        return {}
    limits = (
        {str(name): float(least) for name, least in above.items()}
        if isinstance(above, Mapping)
        else {next(iter(relevance), ""): float(above)}
    )
    for name, least in limits.items():
        check_choice("relevance of above", name, list(relevance))
        if not least >= 0:  # a sample has gains, of which none is below 0
            raise InputError(f"above {least:g}", remedy="give 0 or more")
    return limits


def _build_metrics(
    names: Sequence[str], relevance: Mapping[str, Any], limits: Mapping[str, float]
) -> list[Metric]:
    """The metrics of these names: of several relevances the first has plain names, the others
    [brackets]. Those of what is right are of the relevances that have a limit."""
    first, *others = relevance or [""]
    plain = [name for name in names if name != "asp_a"]

    def of(name: str, relevance_name: str) -> bool:
        needs = CATALOGUE[family_of(name) or ""].required_inputs
        return relevance_name in limits or "relevant" not in needs

    built = [
        find_metric(name, first if is_graded(name) else "") for name in plain if of(name, first)
    ]
    built += [
        find_metric(name, other, label=other)
        for other in others
        for name in plain
        if is_graded(name) and of(name, other)
    ]
    if "asp_a" in names:
        weights = [1 / max(float(matrix.max()), 1e-12) for matrix in relevance.values()]
        built.append(find_metric("asp_a", names=list(relevance), weights=weights))
    return built


def _reads_labels(item: Metric) -> bool:
    return "relevance" in item.family.required_inputs


def _estimate(
    queries: Queries,
    metrics: Sequence[Metric],
    samples: Mapping[str, Pairs],
    limits: Mapping[str, float],
    seed: int,
) -> dict[str, QueryValues]:
    """By metric the estimates of those that read relevance, where that is a sample."""
    estimated: dict[str, QueryValues] = {}
    placed, places = None, None
    for name, sample in samples.items():
        # What `estimate` calls them: recall@5 of relevant_recall@5[cider].
        base_name_of = {
            item.name: item.name.partition("[")[0].removeprefix("relevant_")
            for item in metrics
            if _reads_labels(item) and item.relevance == name
        }
        if not base_name_of:  # such as in folds
            continue
        with part_of_work(1, len(samples)):
            # Shards have the same pairs for each of their measures.
            if placed is None or not sample.are_pairs_of(placed):
                with part_of_work(1, 2):
                    placed = sample
                    places = PairPlaces.find(queries.similarity, sample, seed)
            found = query_values(
                queries.similarity,
                sample,
                list(base_name_of.values()),
                above=limits.get(name, 0.0),
                seed=seed,
                places=places,
            )
        estimated |= {item: found[base_name] for item, base_name in base_name_of.items()}
    return estimated


def _score_queries(
    queries: Queries, metrics: Sequence[Metric], estimated: Mapping[str, QueryValues]
) -> dict[str, Array]:
    """Values of each query by metric."""
    exact = [item for item in metrics if item.name not in estimated]
    values = score_all(queries, exact) if exact else {}
    values |= {name: of.values for name, of in estimated.items()}
    return {item.name: values[item.name] for item in metrics}


def _notes_of(scored: Mapping[str, Evaluated]) -> list[str]:
    """Which metrics of a sample have no interval, or no value, and why: metrics of one reason
    together."""
    metrics_of: dict[tuple[str, str], list[str]] = {}
    for direction, evaluated in scored.items():
        for name, one in evaluated.estimates.items():
            if one.note and (evaluated.drawn.samples or np.isnan(one.value)):
                metrics_of.setdefault((direction, one.note), []).append(name)
    return [
        f"{', '.join(names)}, {DIRECTION_WORDS[direction]}: {note}"
        for (direction, note), names in metrics_of.items()
    ]


def _with_extensions(
    directions: dict[str, Queries], metrics: Iterable[Metric]
) -> dict[str, Queries]:
    """The extending images of every sr_authors metric, m the largest asked for, cut to each m, as
    lists."""
    sizes = sorted({item.m for item in metrics if item.family.needs == "extension"})
    rows, owner = directions["i2t"].query_group, directions["i2t"].candidate_group
    if not sizes or rows is None or owner is None:
        return directions
    lists: dict[str, dict[str, Positives]] = {
        direction: dict(directions[direction].positives) for direction in DIRECTIONS
    }
    for name, matrix in directions["i2t"].relevance.items():
        images = extension_images(matrix, owner, m=sizes[-1], depth=max(30, sizes[-1] + 1))
        for m in sizes:
            lists["i2t"][extension_name(name, m)] = extension_set(images[:, :m], rows, owner)
            lists["t2i"][extension_name(name, m)] = extension_set(images[:, :m], owner, rows)
    return {
        direction: replace(directions[direction], positives=lists[direction])
        for direction in DIRECTIONS
    }


def _count_cells(
    whole: Queries,
    scored: Mapping[str, Evaluated],
    folds: int,
    samples: Mapping[str, Pairs],
) -> dict[str, Any]:
    images, captions = whole.similarity.shape
    out: dict[str, Any] = {"images": images, "captions": captions, "folds": folds}
    out["zero_ideal"] = {}  # queries that score 0 in NDCG and NCS, whatever is retrieved
    for name, matrix in whole.relevance.items():
        positive = matrix > 0
        of_images, of_captions = positive.any(axis=1), positive.any(axis=0)
        zeros = {"i2t": int((~of_images).sum()), "t2i": int((~of_captions).sum())}
        out["zero_ideal"][name] = zeros
    if samples:  # the share of all pairs that is known
        out["known"] = {name: len(s) / (images * captions) for name, s in samples.items()}
    for direction, evaluated in scored.items():
        out[f"{direction}_not_annotated"] = {}
        for name, values in evaluated.values.items():
            if unscored := int(np.isnan(values).sum()):
                out[f"{direction}_not_annotated"][name] = unscored
    return out


def _usable_names(
    names: Sequence[str] | None,
    i2t: Queries,
    given: Mapping[str, bool],
    fold: int | None,
    *,
    sampled: bool,
) -> list[str]:
    """The metrics to score, each of which can be. InputError that lists those that can."""
    available = {
        **given,
        "groups": i2t.candidate_group is not None,
        "own": i2t.candidate_group is not None,
        "cosines": may_be_cosines(i2t.similarity),
        "classes": i2t.codes is not None,
    }
    can = set(i2t.positives) | {name for name, is_available in available.items() if is_available}
    if names is None:
        graded = [name for name in _OF_RELEVANCE if not sampled or family_of(name) in FROM_SAMPLE]
        names = [*(RECALL if "own" in can else ()), *(graded if "relevance" in can else ())]
    if not names:
        raise InputError(
            "nothing to score against",
            remedy="give owner, relevance, or metrics with what they need",
        )
    usable = [base for base, family in CATALOGUE.items() if family.required_inputs <= can]
    for name in names:
        base = family_of(name)
        if base is None:
            raise InputError(
                f"metric {name!r} is not known",
                remedy=choose_metric(name, usable),
            )
        required = CATALOGUE[base].required_inputs
        lack = next((need for need in LACKS if need in required - can), None)
        if lack is not None:
            what, remedy = LACKS[lack]
            raise InputError(f"metric {name!r} needs {what}", remedy=remedy, keys=_ARGUMENTS)
        if sampled and "relevance" in required:
            if base not in FROM_SAMPLE:
                raise InputError(
                    f"metric {name!r} needs the relevance of every pair, and a sample is given",
                    remedy=(
                        f"use one of: {', '.join(map(usage, FROM_SAMPLE))}; or give"
                        " {relevance} of every pair"
                    ),
                    keys=_ARGUMENTS,
                )
            if fold is not None:
                raise InputError(
                    f"metric {name!r} in folds: the sample is of the whole gallery",
                    remedy="leave {fold} away",
                    keys=_ARGUMENTS,
                )
        if fold is not None and required & {*LIST_NAMES, "relevant"}:
            raise InputError(
                f"metric {name!r} in folds: its positives are of the whole gallery",
                remedy="leave {fold} away",
                keys=_ARGUMENTS,
            )
    return list(names)


def _require_shape(labels: GradedLabels, shape: tuple[int, ...]) -> None:
    images, captions = len(labels.image_ids), labels.n_captions
    if shape != (images, captions):
        problem = f"scores are {list(shape)}, the labels {images} images x {captions} captions"
        remedy = "score them all, or give labels.block(...).relevance of those scored"
        if shape == (captions, images):
            remedy = "give scores.T: rows are images, and both directions are evaluated"
        raise InputError(problem, remedy=remedy)


def _with_interval(value: float, interval: tuple[float, float] | None, digits: int) -> str:
    between = "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return f"{value:.{digits}f}{between}"
