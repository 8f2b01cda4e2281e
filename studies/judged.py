"""How often 95 % intervals of metrics from a judged sample hold the truth, on scenes, where every
pair is known.

    python -m studies.judged --captions DIR --out judged.md

A world is 200 images of the test split, drawn with replacement, and a gallery of 2,000 of its
captions. Two systems rank it by the words of each image's first caption: tf-idf, and tf-idf of
every other word. From their pool a share of all pairs is judged by the truth. The interval should
hold what all images have when every pair is judged.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from capgrade.metrics import (
    JudgedSample,
    draw_pool,
    estimate,
    map_at_r,
    ncs,
    ndcg,
    recall,
    recall_share,
)
from capgrade.metrics.base import Positives, lists_of, own_positives
from capgrade.metrics.judged_sample import Estimate
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from studies import arguments, write_rows
from studies.ranks import tfidf

HEAD = "| judged | first |"  # how the table begins
METRICS = ("recall@1", "recall@5", "r@5", "map@r", "ndcg@10", "ncs@5")
RELEVANT = 0.8  # gain from which a pair is relevant
GALLERY, QUERIES = 2_000, 200
# of the pairs judged, and how many of each system's first for certain
SHARES = (
    (0.01, 3),
    (0.05, 10),
    (0.2, 15),
)


def truth(scores: np.ndarray, gains: np.ndarray) -> list[float]:
    """Of `METRICS` when every pair is judged."""
    right = lists_of(gains >= RELEVANT, gains.shape)
    found = [recall(scores, right, 1), recall(scores, right, 5), recall_share(scores, right, 5)]
    return [
        float(v.mean())
        for v in (*found, map_at_r(scores, right), ndcg(scores, gains, 10), ncs(scores, gains, 5))
    ]


def world(
    systems: list[np.ndarray], gains: np.ndarray, own: Positives, share: float, top: int, seed: int
) -> tuple[np.ndarray, JudgedSample]:
    """Scores of the first system for images drawn with replacement, and a judged sample of their
    pairs."""
    drawn = np.random.default_rng(seed).integers(0, len(gains), QUERIES)
    lists = own.lists()
    known = Positives.from_lists([lists[image] for image in drawn])
    drawn_systems = [system[drawn] for system in systems]
    budget = round(share * QUERIES * gains.shape[1])
    pool = draw_pool(drawn_systems, budget, top=top, own=known, seed=seed)
    judged = JudgedSample(
        pool.query, pool.item, gains[drawn[pool.query], pool.item], pool.probability
    )
    return drawn_systems[0], judged + JudgedSample.certain(known)


def table(
    systems: list[np.ndarray], gains: np.ndarray, own: Positives, worlds: int
) -> Iterator[str]:
    """Row by row."""
    yield head(HEAD, METRICS)
    right = truth(systems[0], gains)
    yield "| 100% | all |" + "".join(f" {value:.3f} |" for value in right)
    for share, top in SHARES:
        found = []
        for seed in range(worlds):
            scores, sample = world(systems, gains, own, share, top, seed)
            given = estimate(scores, sample, METRICS, above=RELEVANT - 1e-9, seed=seed)
            found.append([given[name] for name in METRICS])
        yield f"| {share:.0%} | {top} |" + cells(right, found)


def head(start: str, metrics: Sequence[str]) -> str:
    """The first two lines of a table: two columns of its own, then the metrics."""
    names = "".join(f" {name} |" for name in metrics)
    return f"{start}{names}\n|---:|---:{'|---:' * len(metrics)}|"


def cells(right: Sequence[float], found: Sequence[Sequence[Estimate]]) -> str:
    """Of each metric how many of 100 intervals held, the mean value, and the mean half width;
    estimates [worlds][metrics]."""
    low, value, high = np.array(
        [[(one.low, one.value, one.high) for one in world] for world in found]
    ).transpose(2, 0, 1)
    held = 100 * ((low <= right) & (right <= high)).mean(axis=0)
    columns = zip(held, value.mean(axis=0), ((high - low) / 2).mean(axis=0), strict=True)
    return "".join(f" {h:.0f}: {v:.3f} ± {w:.3f} |" for h, v, w in columns)


def main() -> None:
    given = arguments(__doc__, HEAD, "captions", worlds={"type": int, "default": 100})
    captions = read_captions(given.captions, "test")
    first = captions.refs[captions.ref_ptr[:-1]]
    others = np.setdiff1d(np.arange(captions.n_captions), first)
    others = others[:: max(1, len(others) // GALLERY)][:GALLERY]
    words = tfidf(captions)
    halves = (words, words[:, ::2])
    systems = [(some[first] @ some[others].T).toarray().astype(np.float32) for some in halves]
    gains = (
        read_relevance(given.captions / "truth-test.arrow").matrix()[:, others].astype(np.float64)
    )
    own = own_positives(np.arange(len(first)), captions.owner[others])
    write_rows(table(systems, gains, own, given.worlds), given.out)


if __name__ == "__main__":
    main()
