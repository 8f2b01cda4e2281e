"""The metrics beside their peers, in one process: seconds, ratio, largest difference; or the parity tables.

    capgrade bench metrics --captions DIR            times, at 1K and 5K images (--large: 25K too)
    capgrade bench metrics --captions DIR --parity   agreement with eccv_caption, scikit-learn and scipy

Peers are timed on as many queries as fit a few seconds and the time scaled to all: `peer_queries` says how many.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np

from capgrade.benchmarks.timing import ROUNDS, timed
from capgrade.metrics import Positives, human_lists, kendall_tau, map_at_r, ndcg
from capgrade.metrics.base import Queries
from capgrade.metrics.catalogue import metric, score_all
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


def sorting_limit(similarity: Array) -> float:
    """Milliseconds a query of numpy sorting the gallery on one core: what a metric over a full ranking cannot beat."""
    rows = np.array(similarity[:50])
    return timed(lambda: np.sort(rows, axis=1))[0] / len(rows) * 1000


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
    return {**line, "peer_ranking_seconds": ranked, "parity": {name: [ours[name], values[name]] for name in values}}


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


def growth(vectors: Array, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Milliseconds per query as the gallery grows, image queries, 200 of them, five captions per image."""
    random = np.random.default_rng(0)
    for images in sizes:
        count = 5 * images
        gallery = vectors[random.integers(0, len(vectors), count)]
        gallery = gallery + 0.1 * random.standard_normal(gallery.shape, dtype=np.float32) / gallery.shape[1] ** 0.5
        similarity = vectors[:200] @ gallery.T
        relevance = np.maximum(vectors[200:400] @ gallery.T, 0)
        line: dict[str, Any] = {"images": images, "candidates": count}
        for name in ("recall@10", "ndcg@25", "ncs@10", "kendall_tau_b", "asp"):
            queries = Queries(similarity, np.arange(200), np.arange(count) // 5, relevance={"": relevance})
            line[f"{name}_ms"] = timed(lambda n=name, q=queries: score_all(q, [metric(n)]))[0] / 200 * 1000  # type: ignore[misc]
        yield line


def matrices(captions: Captions, seed: int = 0) -> tuple[Array, dict[str, Array], Array]:
    """A similarity like a good model's, three relevance matrices, and the caption embeddings they come from."""
    from capgrade.pipelines.measures.embeddings import EMBEDDED, embed

    vectors = embed(captions.texts, EMBEDDED)
    random = np.random.default_rng(seed)
    starts = captions.ref_ptr[:-1]
    means = np.add.reduceat(vectors[captions.refs], starts) / np.diff(captions.ref_ptr)[:, None]
    images = vectors[captions.refs[starts]] + 0.05 * random.standard_normal(means.shape, dtype=np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    sbert = means.astype(np.float32) @ vectors.T
    labels = {"sbert": sbert, "sparse": np.maximum(sbert - np.float32(0.3), 0), "rounded": np.round(sbert, 2)}
    return images @ vectors.T, labels, vectors


def parity(similarity: Array, labels: dict[str, Array], captions: Captions, queries: int = 40) -> list[dict[str, Any]]:
    """Largest differences from the peers for several kinds of similarity, ties and near-constant ones included."""
    from scipy.stats import kendalltau
    from sklearn.metrics import ndcg_score

    random, rows = np.random.default_rng(1), []
    head = similarity[:queries]
    kinds = {
        "random": random.standard_normal(head.shape),
        "sbert": head,
        "many ties": np.round(head, 1),
        "nearly constant": 1 + 1e-9 * random.standard_normal(head.shape),
        "constant": np.ones_like(head),
    }
    for kind, scores in kinds.items():
        for label, relevance in labels.items():
            graded = np.maximum(relevance[:queries], 0).astype(np.float64)
            gains = [float(ndcg_score(graded[q : q + 1], scores[q : q + 1], k=25)) for q in range(queries)]
            taus = [float(np.nan_to_num(kendalltau(scores[q], graded[q]).statistic)) for q in range(queries)]
            rows.append(
                {
                    "similarity": kind,
                    "relevance": label,
                    "ndcg@25 - sklearn": float(np.abs(ndcg(scores, graded) - gains).max()),
                    "tau-b - scipy": float(np.abs(kendall_tau(scores, graded, variant="b") - taus).max()),
                }
            )
    lists = human_lists("eccv", captions.image_ids, captions.caption_ids)[0]
    plain = float(np.nanmean(map_at_r(similarity, lists)))
    rows.append({"similarity": "sbert", "relevance": "ECCV Caption", "mAP@R of tied expectation": plain})
    return rows


def run(captions: Path, *, large: bool = False, with_parity: bool = False, split: str | None = None) -> dict[str, Any]:
    """Everything `capgrade bench metrics` prints, as one dictionary; captions must be MS-COCO 5K for `eccv`."""
    table = read_captions(captions, split)
    similarity, labels, vectors = matrices(table)
    if with_parity:
        return {"parity": parity(similarity, labels, table), "eccv": bench_eccv(similarity, table)}
    head = slice(0, 1000)
    human = {name: human_lists(name, table.image_ids, table.caption_ids) for name in ("eccv", "cxc")}
    total = bench_total(Task(similarity, table.owner, labels, human))  # first: its peak memory is the process's
    return {
        "threads": numba.get_num_threads(),
        "sort_limit_ms": sorting_limit(similarity),
        "ndcg": bench_ndcg(similarity[head], np.maximum(labels["sbert"][head], 0)),
        "kendall": bench_kendall(similarity[head], labels["sbert"][head]),
        "eccv": bench_eccv(similarity, table),
        "growth": list(growth(vectors, (1000, 5000, 25000) if large else (1000, 5000))),
        "total": total,
    }


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show(found: dict[str, Any]) -> None:
    """One readable table of `run`."""
    from rich.table import Table

    on = console()
    lines = Table("metric", "seconds", "peer", "peer seconds", "ratio", "largest difference", title="beside peers")
    for name in ("ndcg", "kendall", "eccv"):
        if name in found:
            line = found[name]
            cells = (f"{line['seconds']:.3f}", line["peer"], f"{line['peer_seconds']:.2f}", f"{line['ratio']:.1f}")
            lines.add_row(name, *cells, f"{line['max_abs_diff']:.1e}")
    on.print(lines)
    for name in ("parity", "growth"):
        if found.get(name):
            keys = list(found[name][0])
            rows = Table(*keys, title=name)
            for row in found[name]:
                rows.add_row(*(_cell(row.get(key, "")) for key in keys))
            on.print(rows)
    for name, (ours, theirs) in found.get("eccv", {}).get("parity", {}).items():
        on.print(f"{name:24s} {ours:.9f} {theirs:.9f} {abs(ours - theirs):.1e}", highlight=False)
    for name in ("total", "sort_limit_ms", "threads"):
        if name in found:
            on.print(name, found[name])
