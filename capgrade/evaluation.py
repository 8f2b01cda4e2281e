"""`capgrade.evaluate`: many metrics by name, of a score matrix or of ranked lists, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from capgrade.labels import Labels
from capgrade.metrics import as_numpy, lists_of
from capgrade.ranked import score_run
from capgrade.rankings import Qrels, Run
from capgrade.schemas.errors import InputError
from capgrade.trainer.metrics import Metric, Queries, bootstrap, metric, score_all
from capgrade.trainer.metrics.recall import any_in_top, first_of, share_in_top

OWN: dict[str, Any] = {"recall": any_in_top, "r": share_in_top, "medr": first_of, "meanr": first_of}
DEFAULT = ("ndcg@25", "ncs@5", "asp", "kendall_tau_a")
LISTS = ("ndcg@25", "ncs@5", "recall@1", "recall@5", "recall@10")


@dataclass(frozen=True)
class Evaluated:
    """Metrics of one evaluation: each one's value for each query, NaN where the query has none."""

    values: Mapping[str, np.ndarray]  # float64 [queries]
    queries: Sequence[str] | None = None  # their ids, of ranked lists

    @cached_property
    def mean(self) -> dict[str, float]:
        """Each metric over the queries that have a value; of medr the floored median."""
        return {name: metric(name).reduce(found) if name == "medr" else _mean(found)
                for name, found in self.values.items()}  # fmt: skip

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % bootstrap intervals of the means, over queries; medr has none."""
        named = {name: found for name, found in self.values.items() if name != "medr" and not np.isnan(found).all()}
        found = {name: bootstrap(values) for name, values in named.items()}
        return {name: (one.low, one.high) for name, one in found.items()}

    def __str__(self) -> str:
        width = max(map(len, self.values))
        lines = []
        for name, value in self.mean.items():
            low, high = self.intervals.get(name, (np.nan, np.nan))
            lines.append(f"{name:{width}}  {value:.4f}" + ("" if np.isnan(low) else f"  [{low:.4f}, {high:.4f}]"))
        return "\n".join(lines)


def evaluate(
    scores: Any, relevance: Any, metrics: Sequence[str] | None = None, *, own: Any = None, measure: str | None = None,
    above: float | None = None,
) -> Evaluated:  # fmt: skip
    """Every metric for every query; print it for a table.

    A matrix: `scores` [Q, N], numpy or torch, with `relevance` [Q, N] and, for recall@K, r@K, medr and meanr, `own`
    bool [Q, N]; or with `Labels` whose images are the rows and captions the columns, by `measure`, every pair known.
    Metrics are those of `capgrade evaluate` without own items removed: ndcg@25, ncs@5, asp, kendall_tau_a, ... As
    there, relevance below 0 is a gain of 0 (ndcg, ncs, soft sr), and metrics of ranks take it as it is.

    Ranked lists: `scores` is a `Run` and `relevance` `Qrels`, or each a dict of dicts. Metrics: ndcg@K, ndcg_exp@K,
    ncs@K, recall@K (any hit), r@K (share of the relevant), precision@K, mrr@K, map@K, r_precision, map@r; relevant is
    what exceeds `above` (default 0). A judged query without a list scores 0 (a warning says how
    many do); one without judgements does not count.

    Raises InputError for unknown metrics, for an option of the other form, and for shapes and ids that do not fit.

    >>> found = evaluate(np.array([[0.9, 0.2, 0.5]]), np.array([[0.0, 1.0, 2.0]]), ["ndcg@2"])
    >>> round(found.mean["ndcg@2"], 4)
    0.4796
    >>> print(evaluate({"q": {"a": 0.9, "b": 0.1}}, {"q": {"b": 2}}, ["ndcg@2", "mrr@2"]))
    ndcg@2  0.6309  [0.6309, 0.6309]
    mrr@2   0.5000  [0.5000, 0.5000]
    """
    if isinstance(scores, Run | Mapping):
        _without(own=own, measure=measure)
        if isinstance(relevance, Labels):
            raise InputError("ranked lists against Labels", remedy="give Qrels.from_labels(labels, ...)")
        if above is not None and not above >= 0:  # what nobody judged counts as 0, and so does what is below
            raise InputError(f"above {above:g} of judgements that are at least 0", remedy="give 0 or more")
        run = scores if isinstance(scores, Run) else Run.from_dict(scores)
        qrels = relevance if isinstance(relevance, Qrels) else Qrels.from_dict(relevance)
        names = list(LISTS if metrics is None else metrics)
        table = score_run(run, qrels, names, 0.0 if above is None else above)
        return Evaluated({name: table[:, k] for k, name in enumerate(names)}, qrels.queries)
    if above is not None:
        raise InputError("above of a matrix", remedy="above chooses what is relevant in Qrels; give own instead")
    similarity = as_numpy(scores)
    if isinstance(relevance, Labels):
        relevance, own = _from_labels(relevance, measure, similarity.shape, own)
    elif measure is not None:
        raise InputError(f"measure {measure!r} of a matrix", remedy="measure chooses among those of Labels")
    names = list(DEFAULT if metrics is None else metrics)
    positives = {} if own is None else {"own": lists_of(own, similarity.shape)}
    chosen = [metric(name) for name in names]
    for item in chosen:
        if item.family.needs not in ("own", "relevance") or item.name.split("@")[0].endswith("_other"):
            raise InputError(f"metric '{item.name}' needs more than scores and relevance", remedy="capgrade evaluate")
        if item.family.needs == "own" and own is None:
            raise InputError(f"metric '{item.name}' needs the own items", remedy="give own, bool [queries, candidates]")
    queries = Queries(similarity, relevance={"": as_numpy(relevance)}, positives=positives, clip=True)
    return Evaluated(score_all(queries, [_with_lists(item) for item in chosen]))


def _without(**of_matrices: Any) -> None:
    for name, value in of_matrices.items():
        if value is not None:
            raise InputError(f"{name} of ranked lists", remedy=f"{name} is for a score matrix")


def _mean(values: np.ndarray) -> float:
    return float("nan") if np.isnan(values).all() else float(np.nanmean(values))


def _with_lists(item: Metric) -> Metric:
    """A metric of own items reads them from a list, not from groups."""
    if item.family.needs != "own":
        return item
    base, cut = item.name.split("@")[0], {"k": item.cut.k} if item.cut.k else {}
    return replace(item, score=partial(OWN[base], lists="own", **cut))


def _from_labels(labels: Labels, measure: str | None, shape: tuple[int, ...], own: Any) -> tuple[np.ndarray, Any]:
    """The whole matrix, and own items where they are known."""
    images, captions = len(labels.image_ids), labels.n_captions
    if shape != (images, captions):
        problem = f"scores are {list(shape)}, the labels {images} images x {captions} captions"
        raise InputError(problem, remedy="score them all, or give labels.block(...).relevance of those scored")
    values, known, _ = labels.block(range(images), range(captions), labels.chosen(measure))
    if not known.all():
        problem = f"{known.mean():.1%} of the pairs are known"
        raise InputError(problem, file=labels.opened.file, remedy="evaluate by labels.exact(measure)")
    if own is None and labels.opened.owner is not None:
        own = np.arange(images)[:, None] == labels.owner[None, :]
    return values, own
