"""Every metric by name, and many of them over one ranking of the same queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from capgrade.metrics.asp import asp_average_of, asp_of
from capgrade.metrics.base import Block, Queries, Score, per_query
from capgrade.metrics.coherence import cs_of
from capgrade.metrics.eccv import map_of
from capgrade.metrics.kendall import tau_of
from capgrade.metrics.ncs import ncs_of
from capgrade.metrics.ndcg import ncs_ordered_of, ndcg_of
from capgrade.metrics.pmrp import pmrp_of
from capgrade.metrics.ranking import Array
from capgrade.metrics.recall import any_in_top, first_of, longest, median_rank, share_in_top
from capgrade.metrics.semantic_map import lambda_of
from capgrade.metrics.semantic_recall import sr_authors_of, sr_of
from capgrade.schemas.errors import InputError


@dataclass(frozen=True)
class Cut:
    """What a name holds beside the metric: ncs@5 has k = 5, sr@5(m=10) also m = 10; 0 where it has none."""

    k: int = 0
    m: int = 0
    relevance: str = ""


@dataclass(frozen=True)
class Family:
    """A metric of the catalogue before its cut-off: how a block is scored, and what the task must hold."""

    build: Callable[[Cut], Score]
    needs: str  # own, relevance, extension, eccv, cxc, accepted, classes or cosines
    arguments: str = ""  # "", "k" or "km"
    unit: str = "fraction"  # or rank, tau, cosine
    removes: bool = False  # own items, by the image of each caption


@dataclass(frozen=True)
class Metric:
    """A named metric, ready to score a block."""

    name: str
    family: Family
    score: Score
    cut: Cut = Cut()


def reduced(name: str, values: Array) -> float:
    """The number that is reported: the mean over queries that have a value, for medr the floored median."""
    if np.isnan(values).all():
        return float("nan")
    return median_rank(values) if name.startswith("medr") else float(np.nanmean(values))


def _ncs(form: str, removes: bool) -> Callable[[Cut], Score]:
    return lambda cut: partial(ncs_of, relevance=cut.relevance, k=cut.k, form=form, removes=removes)


def _ndcg(gain: str) -> Callable[[Cut], Score]:
    return lambda cut: partial(ndcg_of, relevance=cut.relevance, k=cut.k, gain=gain)


def _sr(weight: str, removes: bool) -> Callable[[Cut], Score]:
    return lambda cut: partial(sr_of, relevance=cut.relevance, k=cut.k, m=cut.m, weight=weight, removes=removes)


def extension_name(relevance: str, m: int) -> str:
    """What the lists of the m extending images are called among a task's positives."""
    return f"{relevance} extended by {m}"


def _sr_authors(weight: str) -> Callable[[Cut], Score]:
    return lambda cut: partial(
        sr_authors_of,
        lists=extension_name(cut.relevance, cut.m),
        k=cut.k,
        weight=weight,
        relevance=cut.relevance,
    )


def _cs(variant: str) -> Callable[[Cut], Score]:
    return lambda cut: partial(cs_of, relevance=cut.relevance, k=cut.k, variant=variant)


def _tau(variant: str) -> Callable[[Cut], Score]:
    return lambda cut: partial(tau_of, relevance=cut.relevance, variant=variant)


CATALOGUE: dict[str, Family] = {
    "recall": Family(lambda cut: partial(any_in_top, k=cut.k), "own", "k"),
    "r": Family(lambda cut: partial(share_in_top, k=cut.k), "own", "k"),
    "medr": Family(lambda cut: first_of, "own", unit="rank"),
    "meanr": Family(lambda cut: first_of, "own", unit="rank"),
    "sr": Family(_sr("hard", False), "relevance", "km"),
    "sr_other": Family(_sr("hard", True), "relevance", "km", removes=True),
    "sr_soft": Family(_sr("soft", False), "relevance", "km"),
    "sr_soft_other": Family(_sr("soft", True), "relevance", "km", removes=True),
    "sr_authors": Family(_sr_authors("hard"), "extension", "km", removes=True),
    "sr_soft_authors": Family(_sr_authors("soft"), "extension", "km", removes=True),
    "ncs": Family(_ncs("paper", False), "relevance", "k"),
    "ncs_other": Family(_ncs("paper", True), "relevance", "k", removes=True),
    "ncs_eq5": Family(_ncs("eq5", False), "relevance", "k"),
    "ncs_authors": Family(_ncs("authors", True), "relevance", "k", removes=True),
    "ncs_ordered": Family(lambda cut: partial(ncs_ordered_of, relevance=cut.relevance, k=cut.k), "relevance", "k"),
    "ndcg": Family(_ndcg("linear"), "relevance", "k"),
    "ndcg_exp": Family(_ndcg("exponential"), "relevance", "k"),
    "asp": Family(lambda cut: partial(asp_of, relevance=cut.relevance), "relevance"),
    "kendall_tau_a": Family(_tau("a"), "relevance", unit="tau"),
    "kendall_tau_b": Family(_tau("b"), "relevance", unit="tau"),
    "cs": Family(_cs("b"), "relevance", "k", unit="tau"),
    "cs_tau_a": Family(_cs("a"), "relevance", "k", unit="tau"),
    "pmrp": Family(lambda cut: pmrp_of, "classes"),
    "map@r": Family(lambda cut: partial(map_of, lists="eccv"), "eccv"),
    "r_precision": Family(lambda cut: partial(share_in_top, k=0, lists="eccv"), "eccv"),
    "eccv_recall": Family(lambda cut: partial(any_in_top, k=cut.k, lists="eccv"), "eccv", "k"),
    "cxc_recall": Family(lambda cut: partial(any_in_top, k=cut.k, lists="cxc"), "cxc", "k"),
    "accepted_recall": Family(lambda cut: partial(any_in_top, k=cut.k, lists="accepted"), "accepted", "k"),
    "lambda": Family(lambda cut: partial(lambda_of, k=cut.k, removes=False), "cosines", "k", unit="cosine"),
    "lambda_other": Family(
        lambda cut: partial(lambda_of, k=cut.k, removes=True), "cosines", "k", unit="cosine", removes=True
    ),
}

WHOLE = {"asp", "asp_a", "kendall_tau_a", "kendall_tau_b", "pmrp"}  # read the whole ranking, others its head
_NAME = re.compile(r"(?P<base>[a-z_0-9]+(?:@r)?)(?:@(?P<k>\d+))?(?:\(m=(?P<m>\d+)\))?")


def metric(name: str, relevance: str = "", *, label: str = "") -> Metric:
    """The metric of a name such as recall@5, sr@5(m=10), ncs_other@1, map@r; unknown names list the catalogue.

    `relevance` is the matrix it reads, `label` what is put in brackets after its name: ndcg@25[rouge_l].
    """
    match = _NAME.fullmatch(name)
    family = CATALOGUE.get(match["base"]) if match else None
    if match is None or family is None:
        raise InputError(f"metric {name!r} is not known", remedy=f"use one of: {', '.join(map(usage, CATALOGUE))}")
    given = "".join(letter for letter in "km" if match[letter])
    if given != family.arguments or (match["k"] or match["m"]) == "0":
        raise InputError(f"metric {name!r} is not complete", remedy=f"write {usage(match['base'])}")
    cut = Cut(int(match["k"] or 0), int(match["m"] or 0), relevance)
    return Metric(f"{name}[{label}]" if label else name, family, family.build(cut), cut)


def family_of(name: str) -> str | None:
    """The metric of the catalogue that a name is of: ncs of ncs@5; asp_a too. None for an unknown one."""
    match = _NAME.fullmatch(name)
    return match["base"] if match and (match["base"] in CATALOGUE or name == "asp_a") else None


def usage(base: str) -> str:
    """How a metric is written, with what it takes: ncs@K."""
    return base if base == "asp_a" else base + {"": "", "k": "@K", "km": "@K(m=M)"}[CATALOGUE[base].arguments]


def asp_a(names: Sequence[str], weights: Sequence[float]) -> Metric:
    """ASP(A) as a metric: ASP with the weighted mean of the named matrices."""
    score = partial(asp_average_of, names=list(names), weights=list(weights))
    return Metric("asp_a", CATALOGUE["asp"], score)


def score_all(queries: Queries, metrics: Sequence[Metric]) -> dict[str, Array]:
    """Per-query values of many metrics from one ranking of each block, (n_queries,) float64 each."""
    whole = any(item.name.split("[")[0] in WHOLE for item in metrics)
    cut = max((max(item.cut.k, item.cut.m) for item in metrics), default=1)

    def score(block: Block) -> Array:
        depth = None if whole else max([cut, *(longest(block.positives(name)) for name in queries.positives)])
        if depth is not None and queries.query_group is not None:
            depth += longest(block.positives())  # own items may be removed
        block.ranking(depth)  # first and deepest, so that every metric reads the same one
        for name in {item.cut.relevance for item in metrics} & set(queries.relevance):
            block.graded(name, depth)
        return np.stack([item.score(block) for item in metrics], axis=1)

    table = per_query(queries, score)
    return {item.name: table[:, column] for column, item in enumerate(metrics)}
