"""The metrics beside their peers on MS-COCO 5K, in one process: seconds, ratio and the largest difference.

Peers are timed on as many queries as fit a few seconds and the time scaled to all: `peer_queries` says how many.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from capgrade.benchmarks.harness import ROUNDS, Asked, Rows, best, once
from capgrade.metrics import Positives, human_lists, kendall_tau, ndcg
from capgrade.metrics.evaluation import RECALL
from capgrade.metrics.evaluation import evaluate as of_arrays
from capgrade.metrics.ranking import Array
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.memory import peak_mb
from capgrade.trainer.evaluation.evaluate import Settings, evaluate
from capgrade.trainer.evaluation.task import Task

PEER_SECONDS = 4.0
QUERIES = 1000  # images, of ndcg and kendall


def bench(asked: Asked) -> Rows:
    """`ndcg` and `kendall` of 1,000 image queries, `eccv` and `total` of all; captions must be MS-COCO 5K."""
    table = read_captions(asked.captions, asked.bench.split)
    similarity, labels = matrices(table)
    human = {name: human_lists(name, table.image_ids, table.caption_ids) for name in ("eccv", "cxc")}
    total = whole_set(Task(similarity, table.owner, labels, human))  # first: its peak memory is the process's
    head = slice(0, QUERIES)
    return {
        "ndcg": ndcg_row(similarity[head], np.maximum(labels["sbert"][head], 0)),
        "kendall": kendall_row(similarity[head], labels["sbert"][head]),
        "eccv": eccv_row(similarity, table),
        "total": total,
    }


def ndcg_row(similarity: Array, relevance: Array) -> dict[str, Any]:
    """NDCG@25 of image queries beside sklearn.metrics.ndcg_score, which averages ties as we do."""
    from sklearn.metrics import ndcg_score

    def theirs(q: int) -> float:
        return float(ndcg_score(relevance[q : q + 1], similarity[q : q + 1], k=25))

    return _beside_one_by_one("sklearn", lambda: ndcg(similarity, relevance, k=25), theirs)


def kendall_row(similarity: Array, relevance: Array) -> dict[str, Any]:
    """tau-b of image queries over the gallery beside scipy.stats.kendalltau."""
    from scipy.stats import kendalltau

    def theirs(q: int) -> float:
        return float(np.nan_to_num(kendalltau(similarity[q], relevance[q]).statistic))

    return _beside_one_by_one("scipy", lambda: kendall_tau(similarity, relevance, variant="b"), theirs)


def _beside_one_by_one(peer: str, ours: Callable[[], Array], theirs: Callable[[int], float]) -> dict[str, Any]:
    """A peer that takes one query at a time: the best rate of three rounds."""
    seconds, mine = best(ours)
    values: list[float] = []
    rates = []
    for share in range(1, ROUNDS + 1):
        first, start = len(values), time.perf_counter()
        while len(values) < len(mine) * share // ROUNDS and time.perf_counter() - start < PEER_SECONDS / ROUNDS:
            values.append(theirs(len(values)))
        rates.append((time.perf_counter() - start) / (len(values) - first))
    difference = float(np.abs(mine[: len(values)] - values).max())
    return _row(peer, seconds, min(rates) * len(mine), len(mine), len(values), difference)


def _row(
    peer: str, seconds: float, theirs: float, queries: int, peer_queries: int, difference: float
) -> dict[str, Any]:
    return {
        "seconds": seconds, "queries": queries, "peer": peer, "peer_seconds": theirs, "peer_queries": peer_queries,
        "ratio": theirs / seconds, "max_abs_diff": difference,
    }  # fmt: skip


def eccv_row(similarity: Array, captions: Captions) -> dict[str, Any]:
    """ECCV Caption, CxC, COCO 5K and 1K recalls beside the package; its time without making its ranked lists."""
    ids = captions.image_ids, captions.caption_ids
    human = {name: human_lists(name, *ids) for name in ("eccv", "cxc")}
    seconds, ours = best(lambda: eccv_ours(similarity, human, captions.owner))
    images, texts = (np.array([int(item) for item in each]) for each in ids)
    ranked, lists = once(lambda: (_best_first(similarity, images, texts), _best_first(similarity.T, texts, images)))
    theirs, values = eccv_theirs(*lists)
    difference = float(max(abs(values[name] - ours[name]) for name in values))
    queries = len(similarity) * 6
    row = _row("eccv_caption", seconds, theirs, queries, queries, difference)
    return {**row, "peer_ranking_seconds": ranked.seconds}


def eccv_ours(similarity: Array, human: dict[str, tuple[Positives, Positives]], owner: Array) -> dict[str, float]:
    """What eccv_caption's compute_all_metrics gives, from the matrix, both directions."""
    names = ["map@r", "r_precision", "eccv_recall@1", *(f"cxc_recall@{k}" for k in (1, 5, 10)), *RECALL]
    given: dict[str, Any] = {"owner": owner, "ties": "reference", "samples": 0}
    whole = of_arrays(similarity, metrics=names, positives=human, **given)
    folds = of_arrays(similarity, metrics=RECALL, fold=1000, **given)
    return {
        f"{way}/{prefix}{name}": value
        for prefix, evaluation in (("", whole), ("1k ", folds))
        for way, one in evaluation.scored.items()
        for name, value in one.mean.items()
    }


def _best_first(scores: Array, queries: Array, candidates: Array) -> dict[int, list[int]]:
    """What eccv_caption takes: the ids of all candidates, best first, of every query id."""
    orders = (np.argsort(row, kind="stable")[::-1] for row in scores)
    return {int(query): candidates[order].tolist() for query, order in zip(queries, orders, strict=True)}


def eccv_theirs(i2t: dict[int, list[int]], t2i: dict[int, list[int]]) -> tuple[float, dict[str, float]]:
    """Seconds of eccv_caption on ranked id lists, and its numbers by our names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from eccv_caption import Metrics

    targets = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_map_at_r", "eccv_rprecision")
    given: dict[str, Any] = {"target_metrics": targets, "Ks": (1, 5, 10), "verbose": False}
    took, metrics = once(lambda: Metrics().compute_all_metrics(i2t, t2i, **given))
    names = {"eccv_map_at_r": "map@r", "eccv_rprecision": "r_precision", "eccv_r1": "eccv_recall@1"}
    for k in (1, 5, 10):
        names |= {f"coco_1k_r{k}": f"1k recall@{k}", f"coco_5k_r{k}": f"recall@{k}", f"cxc_r{k}": f"cxc_recall@{k}"}
    return took.seconds, {f"{way}/{names[key]}": v for key, both in metrics.items() for way, v in both.items()}


def whole_set(task: Task) -> dict[str, Any]:
    """Both directions, three relevance matrices, 5K and five folds of 1K, intervals left out."""
    took, evaluated = once(lambda: evaluate(task, Settings(folds=(len(task.similarity) // 5,), samples=0)))
    count = sum(len(scored.metrics) for item in evaluated for scored in item.scored.values())
    return {"seconds": took.seconds, "numbers": count, "peak_rss_mb": peak_mb()}


def matrices(captions: Captions) -> tuple[Array, dict[str, Array]]:
    """A similarity like a good model's, and three relevance matrices."""
    from capgrade.measures.embeddings import EMBEDDED, embed

    vectors = embed(captions.texts, EMBEDDED)
    random = np.random.default_rng(0)
    starts = captions.ref_ptr[:-1]
    means = np.add.reduceat(vectors[captions.refs], starts) / np.diff(captions.ref_ptr)[:, None]
    images = vectors[captions.refs[starts]] + 0.05 * random.standard_normal(means.shape, dtype=np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    sbert = means.astype(np.float32) @ vectors.T
    labels = {"sbert": sbert, "sparse": np.maximum(sbert - np.float32(0.3), 0), "rounded": np.round(sbert, 2)}
    return images @ vectors.T, labels
