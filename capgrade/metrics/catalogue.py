"""Every metric by name, and many of them over one ranking of the same queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from capgrade.metrics.asp import asp_average_of, asp_of
from capgrade.metrics.base import Queries, QueryBlock, Score, score_queries
from capgrade.metrics.gains import ncs_of, ndcg_of
from capgrade.metrics.kendall import cs_of, tau_of
from capgrade.metrics.pmrp import pmrp_of
from capgrade.metrics.recall import any_in_top, first_of, map_of, share_in_top
from capgrade.metrics.semantic_map import lambda_of
from capgrade.metrics.semantic_recall import sr_authors_of, sr_of
from capgrade.schemas.arrays import Array
from capgrade.schemas.errors import InputError, choose_from


@dataclass(frozen=True)
class Family:
    """A metric of the catalogue before its cut-off: the function of a block, and what the task must
    hold."""

    function: Score
    # own, relevance, relevant, several, extension, eccv, cxc, accepted, classes or cosines
    needs: str
    arguments: str = ""  # "", "k" or "km"
    unit: str = "fraction"  # or rank, tau, cosine
    options: Mapping[str, Any] = field(default_factory=dict)  # of the function

    @property
    def required_inputs(self) -> set[str]:
        """What the task must hold. To take own items out needs the image of each caption."""
        needs = {
            "extension": {"relevance"},
            "several": {"relevance", "several"},
            "relevant": {"relevance", "relevant"},
        }.get(self.needs, {self.needs})
        return needs | ({"groups"} if self.options.get("remove_own") else set())


@dataclass(frozen=True)
class Metric:
    """A named metric, ready to score a block: ncs@5 has k = 5, sr@5(m=10) also m = 10; 0 where it
    has none."""

    name: str
    family: Family
    score: Score
    k: int = 0
    m: int = 0
    relevance: str = ""  # whose matrix it reads


def reduce_values(name: str, values: Array) -> float:
    """The number that is reported: the mean over queries that have a value, for medr the floored
    median (VSE++)."""
    if np.isnan(values).all():
        return float("nan")
    return float(np.floor(np.nanmedian(values)) if is_median(name) else np.nanmean(values))


def is_median(name: str) -> bool:
    """Is a metric no mean over queries, but their floored median?"""
    return name.startswith("medr")


def _zero_without_value(function: Score, block: QueryBlock, **options: Any) -> Array:
    """A metric whose query without a relevant candidate scores 0, not NaN, as in `estimate`."""
    return np.nan_to_num(function(block, **options))


_OTHER = {"remove_own": True}
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
    "sr_soft_authors": Family(
        sr_authors_of, "extension", "km", options={"weight": "soft", **_OTHER}
    ),
    "ncs": Family(ncs_of, "relevance", "k"),
    "ncs_other": Family(ncs_of, "relevance", "k", options=_OTHER),
    "ncs_eq5": Family(ncs_of, "relevance", "k", options={"form": "eq5"}),
    "ncs_authors": Family(ncs_of, "relevance", "k", options={"form": "authors", **_OTHER}),
    "ncs_ordered": Family(ncs_of, "relevance", "k", options={"form": "ordered"}),
    "ndcg": Family(ndcg_of, "relevance", "k"),
    "ndcg_exp": Family(ndcg_of, "relevance", "k", options={"gain": "exponential"}),
    "relevant_recall": Family(partial(_zero_without_value, any_in_top), "relevant", "k"),
    "relevant_r": Family(partial(_zero_without_value, share_in_top), "relevant", "k"),
    "relevant_map@r": Family(partial(_zero_without_value, map_of), "relevant"),
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

_NAME = re.compile(r"(?P<base>[a-z_0-9]+(?:@r)?)(?:@(?P<k>\d+))?(?:\(m=(?P<m>\d+)\))?")


# A line on each, for people who look for one; docs/metrics.md defines them.
MEANINGS: dict[str, str] = {
    "recall": "1 if an own item is among the first K, else 0",
    "r": "share of the own items that are among the first K",
    "medr": "floored median of the rank of the first own item",
    "meanr": "mean rank of the first own item",
    "sr": "share of the M most relevant items that are among the first K",
    "sr_other": "sr with own items taken out",
    "sr_soft": "sr with hits weighted by relevance",
    "sr_soft_other": "sr_soft with own items taken out",
    "sr_authors": "sr as Biten et al.'s code has it, of the captions of the M nearest images",
    "sr_soft_authors": "sr_soft as Biten et al.'s code has it",
    "ncs": "relevance of the first K, divided by that of the K most relevant",
    "ncs_other": "ncs with own items taken out",
    "ncs_eq5": "ncs where only items among the K most relevant count",
    "ncs_authors": "ncs as Biten et al.'s code has it",
    "ncs_ordered": "ncs with places weighted",
    "ndcg": "discounted relevance of the first K, divided by that of the best order",
    "ndcg_exp": "ndcg with the gain 2^relevance - 1",
    "relevant_recall": "recall where every pair over a limit of relevance is right",
    "relevant_r": "r where every pair over a limit of relevance is right",
    "relevant_map@r": "map@r where every pair over a limit of relevance is right",
    "asp": "mean agreement of ranks by similarity and by relevance, over all items",
    "kendall_tau_a": "Kendall's tau-a of similarity and relevance, over all items",
    "kendall_tau_b": "Kendall's tau-b of similarity and relevance, over all items",
    "cs": "coherence, Kendall's tau-b among the first K",
    "cs_tau_a": "coherence, Kendall's tau-a among the first K",
    "pmrp": "R-precision where images with nearly the same object classes are right",
    "map@r": "mean precision up to place R, by the lists of ECCV Caption",
    "r_precision": "precision of the first R, by the lists of ECCV Caption",
    "eccv_recall": "recall by the lists of ECCV Caption",
    "cxc_recall": "recall by the lists of Crisscrossed Captions",
    "accepted_recall": "recall where likely positives are right too",
    "lambda": "mean cosine of the first K",
    "lambda_other": "lambda with own items taken out",
    "asp_a": "asp by the mean of several relevances",
}


def choose_metric(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown metric, of those of the catalogue that are `known`."""
    return choose_from(re.sub(r"\d+", "K", name), map(usage, known), "capgrade list metrics")


def find_metric(name: str, relevance: str = "", *, label: str = "", **options: Any) -> Metric:
    """The metric of a name such as recall@5, sr@5(m=10), ncs_other@1, map@r; an unknown name is
    refused with those near it.

    `relevance` is the matrix it reads, `label` what is put in brackets after its name:
    ndcg@25[rouge_l]. `options` are the function's, beside those of the catalogue: asp_a has names
    and weights of its matrices.
    """
    match = _NAME.fullmatch(name)
    if match is None or (base := match["base"]) not in CATALOGUE:
        raise InputError(
            f"metric {name!r} is not known",
            remedy=choose_metric(name, CATALOGUE),
        )
    family = CATALOGUE[base]
    numbers = {letter: int(match[letter]) for letter in "km" if match[letter]}
    if "".join(numbers) != family.arguments or 0 in numbers.values():
        raise InputError(f"metric {name!r} is not complete", remedy=f"write {usage(base)}")
    source = {"relevance": relevance} if family.needs in ("relevance", "extension") else {}
    source |= {"lists": relevant_name(relevance)} if family.needs == "relevant" else {}
    score = partial(family.function, **numbers, **source, **family.options, **options)
    return Metric(
        f"{name}[{label}]" if label else name, family, score, **numbers, relevance=relevance
    )


def family_of(name: str) -> str | None:
    """The metric of the catalogue that a name is of: ncs of ncs@5 and of ncs@5[sbert]. None for an
    unknown one, and for a sum."""
    match = _NAME.fullmatch(name.partition("[")[0])
    return match["base"] if match and match["base"] in CATALOGUE else None


SUMMED = (1, 5, 10)  # the cut-offs of rsum and nsum, sums of six values in percent: 0 to 600
RECALL = tuple(f"recall@{k}" for k in SUMMED)
SUM_OF = {"rsum": RECALL, "nsum": tuple(f"ncs@{k}" for k in SUMMED)}


def is_graded(name: str) -> bool:
    """Whether a metric reads relevance, of whichever measure, or a sum is of such metrics."""
    if parts := SUM_OF.get(name.partition("[")[0]):
        return any(map(is_graded, parts))
    base = family_of(name)
    return base is not None and "relevance" in CATALOGUE[base].required_inputs


def with_measure(name: str, measure: str | None) -> str:
    """ndcg@25[cider]: a graded metric without a measure in brackets gets this one. asp_a is of all
    measures."""
    of_one = is_graded(name) and not name.endswith("]") and family_of(name) != "asp_a"
    return f"{name}[{measure}]" if measure and of_one else name


def relevant_name(relevance: str) -> str:
    """What the lists of what is right by a relevance are called among those of a task."""
    return f"relevant {relevance}"


def needs_of(name: str) -> str:
    """`Family.needs` of a metric; empty of an unknown one."""
    base = family_of(name)
    return CATALOGUE[base].needs if base else ""


def usage(base: str) -> str:
    """How a metric is written, with what it takes: ncs@K."""
    return base + {"": "", "k": "@K", "km": "@K(m=M)"}[CATALOGUE[base].arguments]


def score_all(queries: Queries, metrics: Sequence[Metric]) -> dict[str, Array]:
    """Per-query values of many metrics from one ranking of each block, (n_queries,) float64
    each."""
    table = score_queries(
        queries, lambda block: np.stack([item.score(block) for item in metrics], axis=1)
    )
    return {item.name: table[:, column] for column, item in enumerate(metrics)}
