"""The metrics beside their peers, in one process: seconds, ratio and the largest difference.

Peers are timed on as many queries as fit a few seconds and the time scaled to all: `peer_queries` says how many.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from capgrade.benchmarks.timing import ROUNDS, timed
from capgrade.metrics import Positives, human_lists, kendall_tau, ndcg
from capgrade.metrics.evaluation import RECALL
from capgrade.metrics.evaluation import evaluate as of_arrays
from capgrade.metrics.ranking import Array
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.console import console
from capgrade.schemas.memory import peak_mb
from capgrade.trainer.evaluation.evaluate import Settings, evaluate
from capgrade.trainer.evaluation.task import Task

PEER_SECONDS = 4.0


def peer_per_query(work: Callable[[int], float], queries: int) -> tuple[float, Array]:
    """Seconds a query of a peer that takes one query at a time, the best of three rounds, and its values."""
    values: list[float] = []
    rates = []
    for share in range(1, ROUNDS + 1):
        first, start = len(values), time.perf_counter()
        while len(values) < queries * share // ROUNDS and time.perf_counter() - start < PEER_SECONDS / ROUNDS:
            values.append(work(len(values)))
        rates.append((time.perf_counter() - start) / (len(values) - first))
    return min(rates), np.array(values)


def compared(
    peer: str, ours: float, theirs: float, queries: int, peer_queries: int, difference: float
) -> dict[str, Any]:
    """One line of the benchmark."""
    return {
        "seconds": ours,
        "queries": queries,
        "peer": peer,
        "peer_seconds": theirs,
        "peer_queries": peer_queries,
        "ratio": theirs / ours,
        "max_abs_diff": difference,
    }


def bench_ndcg(similarity: Array, relevance: Array) -> dict[str, Any]:
    """NDCG@25 of image queries beside sklearn.metrics.ndcg_score, which averages ties as we do."""
    from sklearn.metrics import ndcg_score

    seconds, ours = timed(lambda: ndcg(similarity, relevance, k=25))
    each, theirs = peer_per_query(
        lambda q: float(ndcg_score(relevance[q : q + 1], similarity[q : q + 1], k=25)), len(similarity)
    )
    difference = float(np.abs(ours[: len(theirs)] - theirs).max())
    return compared("sklearn", seconds, each * len(similarity), len(similarity), len(theirs), difference)


def bench_kendall(similarity: Array, relevance: Array) -> dict[str, Any]:
    """tau-b of image queries over the gallery beside scipy.stats.kendalltau."""
    from scipy.stats import kendalltau

    seconds, ours = timed(lambda: kendall_tau(similarity, relevance, variant="b"))
    each, theirs = peer_per_query(lambda q: float(kendalltau(similarity[q], relevance[q]).statistic), len(similarity))
    difference = float(np.abs(ours[: len(theirs)] - np.nan_to_num(theirs)).max())
    return compared("scipy", seconds, each * len(similarity), len(similarity), len(theirs), difference)


def eccv_ours(similarity: Array, human: dict[str, tuple[Positives, Positives]], owner: Array) -> dict[str, float]:
    """What eccv_caption's compute_all_metrics gives, from the matrix, both directions."""
    names = ["map@r", "r_precision", "eccv_recall@1", *(f"cxc_recall@{k}" for k in (1, 5, 10)), *RECALL]
    given: dict[str, Any] = {"owner": owner, "ties": "reference", "samples": 0}
    whole = of_arrays(similarity, metrics=names, positives=human, **given)
    folds = of_arrays(similarity, metrics=RECALL, fold=1000, **given)
    found = {f"{way}/{name}": value for way, one in whole.scored.items() for name, value in one.mean.items()}
    return found | {f"{way}/1k {name}": v for way, one in folds.scored.items() for name, v in one.mean.items()}


def ranked_lists(scores: Array, queries: Array, candidates: Array) -> dict[int, list[int]]:
    """What eccv_caption takes: the ids of all candidates, best first, of every query id."""
    orders = (np.argsort(row, kind="stable")[::-1] for row in scores)
    return {int(query): candidates[order].tolist() for query, order in zip(queries, orders, strict=True)}


def eccv_theirs(similarity: Array, images: Array, captions: Array) -> tuple[float, float, dict[str, float]]:
    """Seconds to make the ranked id lists, seconds of eccv_caption on them, and its numbers by our names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from eccv_caption import Metrics

    start = time.perf_counter()
    i2t, t2i = ranked_lists(similarity, images, captions), ranked_lists(similarity.T, captions, images)
    ranked = time.perf_counter() - start
    targets = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_map_at_r", "eccv_rprecision")
    start = time.perf_counter()
    found = Metrics().compute_all_metrics(i2t, t2i, target_metrics=targets, Ks=(1, 5, 10), verbose=False)
    seconds = time.perf_counter() - start
    names = {"eccv_map_at_r": "map@r", "eccv_rprecision": "r_precision", "eccv_r1": "eccv_recall@1"}
    for k in (1, 5, 10):
        names |= {f"coco_1k_r{k}": f"1k recall@{k}", f"coco_5k_r{k}": f"recall@{k}", f"cxc_r{k}": f"cxc_recall@{k}"}
    return ranked, seconds, {f"{way}/{names[key]}": v for key, both in found.items() for way, v in both.items()}


def bench_eccv(similarity: Array, captions: Captions) -> dict[str, Any]:
    """ECCV Caption, CxC, COCO 5K and 1K recalls beside the package; its time without making its ranked lists."""
    ids = captions.image_ids, captions.caption_ids
    human = {name: human_lists(name, *ids) for name in ("eccv", "cxc")}
    seconds, ours = timed(lambda: eccv_ours(similarity, human, captions.owner))
    numbers = [np.array([int(item) for item in each]) for each in ids]
    ranked, theirs, values = eccv_theirs(similarity, *numbers)
    difference = float(max(abs(values[name] - ours[name]) for name in values))
    line = compared("eccv_caption", seconds, theirs, len(similarity) * 6, len(similarity) * 6, difference)
    return {**line, "peer_ranking_seconds": ranked}


def bench_total(task: Task) -> dict[str, Any]:
    """The whole set: both directions, three relevance matrices, 5K and five folds of 1K, intervals left out."""
    folds = (len(task.similarity) // 5,)
    start = time.perf_counter()
    found = evaluate(task, Settings(folds=folds, samples=0))
    seconds = time.perf_counter() - start
    count = sum(len(scored.metrics) for item in found for scored in item.scored.values())
    peak = peak_mb()
    return {
        "seconds": seconds,
        "peak_rss_mb": peak,
        "numbers": count,
    }


def matrices(captions: Captions) -> tuple[Array, dict[str, Array]]:
    """A similarity like a good model's, and three relevance matrices."""
    from capgrade.pipelines.measures.embeddings import EMBEDDED, embed

    vectors = embed(captions.texts, EMBEDDED)
    random = np.random.default_rng(0)
    starts = captions.ref_ptr[:-1]
    means = np.add.reduceat(vectors[captions.refs], starts) / np.diff(captions.ref_ptr)[:, None]
    images = vectors[captions.refs[starts]] + 0.05 * random.standard_normal(means.shape, dtype=np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    sbert = means.astype(np.float32) @ vectors.T
    labels = {"sbert": sbert, "sparse": np.maximum(sbert - np.float32(0.3), 0), "rounded": np.round(sbert, 2)}
    return images @ vectors.T, labels


def bench(captions: Path, split: str | None = None) -> dict[str, Any]:
    """`ndcg` and `kendall` of 1,000 image queries, `eccv` and `total` of all; captions must be MS-COCO 5K."""
    table = read_captions(captions, split)
    similarity, labels = matrices(table)
    head = slice(0, 1000)
    human = {name: human_lists(name, table.image_ids, table.caption_ids) for name in ("eccv", "cxc")}
    total = bench_total(Task(similarity, table.owner, labels, human))  # first: its peak memory is the process's
    return {
        "threads": numba.get_num_threads(),
        "ndcg": bench_ndcg(similarity[head], np.maximum(labels["sbert"][head], 0)),
        "kendall": bench_kendall(similarity[head], labels["sbert"][head]),
        "eccv": bench_eccv(similarity, table),
        "total": total,
    }


def show(found: dict[str, Any]) -> None:
    """One readable table of `bench`."""
    from rich.table import Table

    on = console()
    lines = Table("metric", "seconds", "peer", "peer seconds", "ratio", "largest difference", title="beside peers")
    for name in ("ndcg", "kendall", "eccv"):
        line = found[name]
        cells = (f"{line['seconds']:.3f}", line["peer"], f"{line['peer_seconds']:.2f}", f"{line['ratio']:.1f}")
        lines.add_row(name, *cells, f"{line['max_abs_diff']:.1e}")
    on.print(lines)
    for name in ("total", "threads"):
        on.print(name, found[name])
