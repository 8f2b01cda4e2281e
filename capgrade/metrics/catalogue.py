"""Every metric by name, and many of them over one ranking of the same queries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from capgrade.metrics.asp import asp_average_of, asp_of
from capgrade.metrics.base import Queries, QueryBlock, Score, per_query
from capgrade.metrics.eccv import map_of
from capgrade.metrics.kendall import cs_of, tau_of
from capgrade.metrics.ncs import ncs_of
from capgrade.metrics.ndcg import ndcg_of
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
    """A metric of the catalogue before its cut-off: the function of a block, and what the task must hold."""

    function: Score
    needs: str  # own, relevance, several, extension, eccv, cxc, accepted, classes or cosines
    arguments: str = ""  # "", "k" or "km"
    unit: str = "fraction"  # or rank, tau, cosine
    options: Mapping[str, Any] = field(default_factory=dict)  # of the function

    @property
    def required(self) -> set[str]:
        """What the task must hold: own items that leave are known by the image of each caption."""
        needs = {"extension": {"relevance"}, "several": {"relevance", "several"}}.get(self.needs, {self.needs})
        return needs | ({"groups"} if self.options.get("removes") else set())


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


_OTHER = {"removes": True}
CATALOGUE: dict[str, Family] = {
    "recall": Family(any_in_top, "own", "k"),
    "r": Family(share_in_top, "own", "k"),
    "medr": Family(first_of, "own", unit="rank"),
    "meanr": Family(first_of, "own", unit="rank"),
    "sr": Family(sr_of, "relevance", "km"),
    "sr_other": Family(sr_of, "relevance", "km", options=_OTHER),
    "sr_soft": Family(sr_of, "relevance", "km", options={"weight": "soft"}),
    "sr_soft_other": Family(sr_of, "relevance", "km", options={"weight": "soft", **_OTHER}),
    "sr_authors": Family(sr_authors_of, "extension", "km", options=_OTHER),
    "sr_soft_authors": Family(sr_authors_of, "extension", "km", options={"weight": "soft", **_OTHER}),
    "ncs": Family(ncs_of, "relevance", "k"),
    "ncs_other": Family(ncs_of, "relevance", "k", options=_OTHER),
    "ncs_eq5": Family(ncs_of, "relevance", "k", options={"form": "eq5"}),
    "ncs_authors": Family(ncs_of, "relevance", "k", options={"form": "authors", **_OTHER}),
    "ncs_ordered": Family(ncs_of, "relevance", "k", options={"form": "ordered"}),
    "ndcg": Family(ndcg_of, "relevance", "k"),
    "ndcg_exp": Family(ndcg_of, "relevance", "k", options={"gain": "exponential"}),
    "asp": Family(asp_of, "relevance"),
    "kendall_tau_a": Family(tau_of, "relevance", unit="tau", options={"variant": "a"}),
    "kendall_tau_b": Family(tau_of, "relevance", unit="tau", options={"variant": "b"}),
    "cs": Family(cs_of, "relevance", "k", unit="tau"),
    "cs_tau_a": Family(cs_of, "relevance", "k", unit="tau", options={"variant": "a"}),
    "pmrp": Family(pmrp_of, "classes"),
    "map@r": Family(map_of, "eccv", options={"lists": "eccv"}),
    "r_precision": Family(share_in_top, "eccv", options={"lists": "eccv"}),
    "eccv_recall": Family(any_in_top, "eccv", "k", options={"lists": "eccv"}),
    "cxc_recall": Family(any_in_top, "cxc", "k", options={"lists": "cxc"}),
    "accepted_recall": Family(any_in_top, "accepted", "k", options={"lists": "accepted"}),
    "lambda": Family(lambda_of, "cosines", "k", unit="cosine"),
    "lambda_other": Family(lambda_of, "cosines", "k", unit="cosine", options=_OTHER),
    "asp_a": Family(asp_average_of, "several"),
}

WHOLE = (asp_of, asp_average_of, tau_of, pmrp_of)  # read the whole ranking, others its head
_NAME = re.compile(r"(?P<base>[a-z_0-9]+(?:@r)?)(?:@(?P<k>\d+))?(?:\(m=(?P<m>\d+)\))?")


def metric(name: str, relevance: str = "", *, label: str = "", **options: Any) -> Metric:
    """The metric of a name such as recall@5, sr@5(m=10), ncs_other@1, map@r; unknown names list the catalogue.

    `relevance` is the matrix it reads, `label` what is put in brackets after its name: ndcg@25[rouge_l]. `options` are
    the function's, beside those of the catalogue: asp_a has names and weights of its matrices.
    """
    base = family_of(name)
    if base is None:
        raise InputError(f"metric {name!r} is not known", remedy=f"use one of: {', '.join(map(usage, CATALOGUE))}")
    family, given = CATALOGUE[base], {letter: int(text) for letter, text in _cuts(name).items() if text}
    if "".join(given) != family.arguments or 0 in given.values():
        raise InputError(f"metric {name!r} is not complete", remedy=f"write {usage(base)}")
    read = {"relevance": relevance} if family.needs in ("relevance", "extension") else {}
    score = partial(family.function, **given, **read, **family.options, **options)
    return Metric(f"{name}[{label}]" if label else name, family, score, Cut(**given, relevance=relevance))


def _cuts(name: str) -> dict[str, str | None]:
    match = _NAME.fullmatch(name)
    return {letter: match[letter] if match else None for letter in "km"}


def family_of(name: str) -> str | None:
    """The metric of the catalogue that a name is of: ncs of ncs@5. None for an unknown one."""
    match = _NAME.fullmatch(name)
    return match["base"] if match and match["base"] in CATALOGUE else None


def usage(base: str) -> str:
    """How a metric is written, with what it takes: ncs@K."""
    return base + {"": "", "k": "@K", "km": "@K(m=M)"}[CATALOGUE[base].arguments]


def score_all(queries: Queries, metrics: Sequence[Metric]) -> dict[str, Array]:
    """Per-query values of many metrics from one ranking of each block, (n_queries,) float64 each."""
    whole = any(item.family.function in WHOLE for item in metrics)
    cut = max((max(item.cut.k, item.cut.m) for item in metrics), default=1)

    def score(block: QueryBlock) -> Array:
        depth = None if whole else max([cut, *(longest(block.positives(name)) for name in queries.positives)])
        removes = queries.query_group is not None  # some may remove own items
        block.ranking(depth, removes)  # first and deepest, so that every metric reads the same one
        for name in {item.cut.relevance for item in metrics} & set(queries.relevance):
            block.graded(name, depth, removes)
        return np.stack([item.score(block) for item in metrics], axis=1)

    table = per_query(queries, score)
    return {item.name: table[:, column] for column, item in enumerate(metrics)}
