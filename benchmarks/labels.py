"""How long a batch's labels take from sampled shards, and ranked lists beside ranx and ir_measures."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.benchmarks.timing import timed
from capgrade.labels import Labels
from capgrade.metrics.evaluation import evaluate
from capgrade.metrics.runs import Qrels, Run

SIZES = (128, 4096)  # a batch of the papers, a batch of CLIP
QUERIES, LISTED, JUDGED = 2000, 100, 20
NAMES = {  # ours: ranx's, ir_measures'
    "ndcg@10": ("ndcg@10", "nDCG@10"),
    "recall@10": ("hit_rate@10", "Success@10"),
    "r@10": ("recall@10", "R@10"),
    "precision@10": ("precision@10", "P@10"),
    "mrr@10": ("mrr@10", "RR@10"),
    "map@10": ("map@10", "AP@10"),
}


def bench(shards: Path, captions: Path) -> dict[str, Any]:
    """Milliseconds of `Labels.block` for random batches of each size, asked for by ids; rows repeat where the shards
    have fewer."""
    labels, rng = Labels.load(shards, captions=captions), np.random.default_rng(0)
    measure, found = labels.measures[0], {}
    for size in SIZES:
        captions_of = rng.integers(0, labels.n_captions, size)
        ids = [labels.caption_ids[c] for c in captions_of]
        images = [labels.image_ids[i] for i in labels.owner[captions_of]]
        seconds, block = timed(lambda images=images, ids=ids: labels.block(images, ids, measure))  # type: ignore[misc]
        found[str(size)] = {"ms": round(1000 * seconds, 3), "known": round(float(block.known.mean()), 5)}
    return found


def show(found: dict[str, Any]) -> str:
    return "\n".join(f"{n:>6} x {n:<6} {row['ms']:8.2f} ms, {row['known']:.2%} known" for n, row in found.items())


def rankings() -> dict[str, Any]:
    """Ranked lists by us and by the peers that are installed: seconds of all metrics at once, on data that each has
    read, and the largest difference of a query's value by metric."""
    run, qrels = _lists()
    ours, judged = Run.from_dict(run), Qrels.from_dict(qrels)
    seconds, found = timed(lambda: evaluate(ours, judged, list(NAMES)))
    peers = {name: peer(run, qrels) for name, peer in PEERS.items() if find_spec(name)}
    result: dict[str, Any] = {"queries": QUERIES, "listed": LISTED, "seconds": seconds, "peers": {}}
    for peer, (took, values) in peers.items():
        apart = {name: float(np.abs(found.values[name] - values[name]).max()) for name in NAMES}
        row = {"version": version(peer), "seconds": took, "ratio": took / seconds, "max_abs_diff": apart}
        result["peers"][peer] = row
    return result


def show_rankings(result: dict[str, Any]) -> str:
    head = f"{result['queries']} queries of {result['listed']} documents: {1000 * result['seconds']:.1f} ms"
    lines = [head, *(f"  {peer} {row['version']}: {1000 * row['seconds']:.1f} ms, {row['ratio']:.1f} times as long; "
                     f"largest difference {max(row['max_abs_diff'].values()):.1e}"
                     for peer, row in result["peers"].items())]  # fmt: skip
    return "\n".join(lines if result["peers"] else [*lines, "  no peer installed: pip install ranx ir_measures"])


def _lists() -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """A run without ties, and grades 1..3, about half of them of documents that are listed. Ids in sorted order."""
    rng, run, qrels = np.random.default_rng(0), {}, {}
    for q in range(QUERIES):
        documents = rng.choice(10_000, LISTED + JUDGED // 2, replace=False)
        scores = np.sort(rng.choice(10**6, LISTED, replace=False))[::-1] / 10**6
        run[f"q{q:05}"] = {f"d{d}": float(s) for d, s in zip(documents[:LISTED], scores, strict=True)}
        chosen = rng.permutation(documents[LISTED - JUDGED // 2 :])
        qrels[f"q{q:05}"] = {f"d{d}": int(g) for d, g in zip(chosen, rng.integers(1, 4, JUDGED), strict=True)}
    return run, qrels


def _ranx(run: dict, qrels: dict) -> tuple[float, dict[str, np.ndarray]]:
    import ranx

    read = ranx.Qrels(qrels), ranx.Run(run)
    names = [theirs for theirs, _ in NAMES.values()]
    seconds, found = timed(lambda: ranx.evaluate(*read, names, return_mean=False))
    return seconds, {name: found[theirs] for name, (theirs, _) in NAMES.items()}


def _ir_measures(run: dict, qrels: dict) -> tuple[float, dict[str, np.ndarray]]:
    import ir_measures

    parsed = {name: ir_measures.parse_measure(theirs) for name, (_, theirs) in NAMES.items()}
    evaluator = ir_measures.evaluator(list(parsed.values()), qrels)
    seconds, found = timed(lambda: list(evaluator.iter_calc(run)))
    values = {(str(one.measure), one.query_id): one.value for one in found}
    return seconds, {name: np.array([values[str(m), q] for q in qrels]) for name, m in parsed.items()}


PEERS = {"ranx": _ranx, "ir_measures": _ir_measures}
