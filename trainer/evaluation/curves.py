"""Curves of an evaluation as rows for `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capgrade.metrics.catalogue import metric, score_all
from capgrade.metrics.mined import MinedCurve, mined_precision, mined_precision_classes
from capgrade.metrics.ranking import Ties
from capgrade.trainer.evaluation.task import Task

CURVE = (1, 2, 3, 5, 10, 20, 30, 50)


def curves(task: Task, ks: Sequence[int], ties: Ties) -> dict[str, list[dict[str, Any]]]:
    """Rows for plots: recall, NCS and NDCG against K; SR@K against m; precision of mined positives."""
    cuts = [k for k in CURVE if k <= len(task.similarity)]
    names = [f"{base}@{k}" for base in ("recall", "r") for k in cuts]
    sizes = [m for m in CURVE if m < len(task.similarity)] if task.relevance else []
    graded = [f"{base}@{k}" for base in ("ncs", "ndcg") for k in cuts] if task.relevance else []
    graded += [f"sr@{k}(m={m})" for k in ks for m in sizes]
    first = next(iter(task.relevance), "")
    metrics = [metric(name) for name in names] + [metric(name, first) for name in graded]
    by_k: list[dict[str, Any]] = []
    by_m: list[dict[str, Any]] = []
    for way, queries in task.directions(ties).items():
        values = {name: float(np.nanmean(found)) for name, found in score_all(queries, metrics).items()}
        bases = ("recall", "r", "ncs", "ndcg") if task.relevance else ("recall", "r")
        by_k += [{"direction": way, "k": k, **{base: values[f"{base}@{k}"] for base in bases}} for k in cuts]
        by_m += [{"direction": way, "k": k, "m": m, "sr": values[f"sr@{k}(m={m})"]} for k in ks for m in sizes]
    return {"k": by_k, "m": by_m, "mined": _mined(task)}


def _mined(task: Task) -> list[dict[str, Any]]:
    """Precision of mined pairs against human positives, original pairs aside, for every measure and for classes."""
    images, rows = np.arange(len(task.similarity)), []
    for name, (lists, _) in task.human.items():
        found = {
            measure: mined_precision(matrix, lists, query_group=images, candidate_group=task.owner)
            for measure, matrix in task.relevance.items()
        }
        if task.codes is not None:
            found["classes"] = mined_precision_classes(
                task.codes, task.codes[task.owner], lists, query_group=images, candidate_group=task.owner
            )
        rows += [row for measure, curve in found.items() for row in _curve_rows(name, measure, curve)]
    return rows


def _curve_rows(human: str, measure: str, curve: MinedCurve) -> list[dict[str, Any]]:
    columns = zip(curve.thresholds, curve.mined, curve.overlap, curve.precision, curve.recall, strict=True)
    keys = ("threshold", "mined", "overlap", "precision", "recall")
    return [
        {"human": human, "measure": measure, **{key: value.item() for key, value in zip(keys, row, strict=True)}}
        for row in columns
    ]
