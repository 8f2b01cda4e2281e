"""How often 95 % intervals of metrics from sampled shards hold the dense value, on scenes, where
every pair is known.

    python -m research.studies.from_shards --captions DIR --out from_shards.md

Image to text a world is 200 images of the test split, drawn with replacement, and a gallery of
2,000 of its captions; text to image the captions of 50 of its first 600 images, over these.
Words of each image's first caption rank them. Each world has shards of its own, by the sampler of
`capgrade shards`. The interval should hold what all queries have when every pair is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.metrics import Pairs, Positives, estimate, map_at_r, ncs, ndcg, recall, recall_share
from capgrade.metrics.base import lists_of
from capgrade.metrics.judged_sample import Estimate
from capgrade.pipelines.sampling.sampler import Plan, keep, reason_names
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.relevance import read_relevance
from research.studies import arguments, write_rows
from research.studies.ranks import tfidf

HEAD = "| direction | known |"  # how the table begins
METRICS = ("ndcg@25", "ndcg_exp@25", "ncs@5", "recall@5", "r@5", "map@r")
RELEVANT = 0.8  # gain from which a pair is relevant
GALLERY, QUERIES = 2_000, 200  # captions of the gallery of images to text, and images of a world
IMAGES, DRAWN = 600, 50  # of the gallery of images, and images whose captions are queries
# (top, uniform, per_window) of the shards; the last are the defaults
PLANS = ((16, 16, 1), (64, 64, 4))


def dense(scores: np.ndarray, gains: np.ndarray) -> list[float]:
    """Of `METRICS` when every pair is known."""
    right = lists_of(gains > RELEVANT - 1e-9, gains.shape)
    found = [
        ndcg(scores, gains, 25),
        ndcg(scores, gains, 25, gain="exponential"),
        ncs(scores, gains, 5),
        *(np.nan_to_num(one) for one in _of_lists(scores, right)),
    ]
    return [float(values.mean()) for values in found]


def _of_lists(scores: np.ndarray, right: Positives) -> tuple[np.ndarray, ...]:
    return recall(scores, right, 5), recall_share(scores, right, 5), map_at_r(scores, right)


def shards(
    gains: np.ndarray, own: Sequence[np.ndarray], plan: tuple[int, int, int], seed: int
) -> Pairs:
    """What images keep of captions, gains [images, captions]: as a judged sample."""
    top, uniform, per_window = plan
    highest = float(gains.max())
    random = np.random.default_rng(seed)
    images, captions = (random.integers(0, 2**63, (size,), dtype=np.uint64) for size in gains.shape)
    kept = keep(
        Plan((0.0,), (highest,), top, 0.1, 0.05, per_window, uniform, seed),
        images,
        captions,
        own,
        {"truth": gains.astype(np.float32)},
    )
    stored = Sampled(["truth"], gains.shape[1], [kept], reason_names(["truth"]))
    ids = [f"{image}" for image in range(len(gains))]
    return Labels("shards", stored, ids, gains.shape[1]).sample()


def of_images(
    scores: np.ndarray,
    gains: np.ndarray,
    own: list[np.ndarray],
    plan: tuple[int, int, int],
    seed: int,
) -> tuple[float, list[Estimate]]:
    """The share of pairs that is known, and estimates, of images that are drawn."""
    drawn = np.random.default_rng(seed).integers(0, len(gains), QUERIES)
    sample = shards(gains[drawn], [own[image] for image in drawn], plan, seed)
    found = estimate(scores[drawn], sample, METRICS, above=RELEVANT - 1e-9, seed=seed)
    return len(sample) / (QUERIES * gains.shape[1]), [found[name] for name in METRICS]


def of_captions(
    scores: np.ndarray,
    gains: np.ndarray,
    own: list[np.ndarray],
    plan: tuple[int, int, int],
    seed: int,
) -> tuple[float, list[Estimate]]:
    """The same of the captions of images that are drawn: queries are columns."""
    drawn = np.random.default_rng(seed).integers(0, len(gains), DRAWN)
    sample = shards(gains, own, plan, seed).transposed()
    captions = [own[image] for image in drawn]
    query = np.concatenate(captions)
    groups = np.repeat(np.arange(DRAWN), [len(some) for some in captions])
    # An image that is drawn twice has its pairs twice.
    order = np.argsort(sample.image, kind="stable")
    first = np.searchsorted(sample.image[order], [query, query + 1])
    pairs = [order[start:stop] for start, stop in first.T]
    rows = np.repeat(np.arange(len(query)), np.diff(first, axis=0)[0])
    chosen = replace(sample.take(np.concatenate(pairs)), image=rows)
    found = estimate(
        scores.T[query], chosen, METRICS, above=RELEVANT - 1e-9, seed=seed, groups=groups
    )
    return len(sample) / gains.size, [found[name] for name in METRICS]


def table(captions: Captions, gains: np.ndarray, worlds: int) -> Iterator[str]:
    """Row by row; gains [images, captions]."""
    yield head(HEAD, METRICS)
    words, first = tfidf(captions), captions.refs[captions.ref_ptr[:-1]]
    others = np.setdiff1d(np.arange(captions.n_captions), first)
    few = others[:: max(1, len(others) // GALLERY)][:GALLERY]
    some = others[captions.owner[others] < IMAGES]
    for direction, images, columns, of in (
        ("image to text", captions.n_images, few, of_images),
        ("text to image", min(IMAGES, captions.n_images), some, of_captions),
    ):
        scores = (words[first[:images]] @ words[columns].T).toarray().astype(np.float32)
        # Ties have an order of their own in each system, as those of a model would.
        scores += 1e-6 * np.random.default_rng(0).random(scores.shape, np.float32)
        part = gains[:images, columns]
        own = [np.flatnonzero(captions.owner[columns] == image) for image in range(images)]
        right = dense(scores, part) if of is of_images else dense(scores.T, part.T)
        yield f"| {direction} | 100% |" + "".join(f" {value:.3f} |" for value in right)
        for plan in PLANS:
            known, found = zip(
                *(of(scores, part, own, plan, seed) for seed in range(worlds)), strict=True
            )
            yield f"| {direction} | {np.mean(known):.1%} |" + cells(right, found)


def head(start: str, metrics: Sequence[str]) -> str:
    """The first two lines of a table: two columns of its own, then the metrics."""
    names = "".join(f" {name} |" for name in metrics)
    return f"{start}{names}\n|---:|---:{'|---:' * len(metrics)}|"


def cells(right: Sequence[float], found: Sequence[Sequence[Estimate]]) -> str:
    """Of each metric how many of 100 given intervals held, and of how many worlds one was given,
    the mean value, and the mean half width; estimates [worlds][metrics]."""
    low, value, high = np.array(
        [[(one.low, one.value, one.high) for one in world] for world in found]
    ).transpose(2, 0, 1)
    columns = []
    for at, true in enumerate(right):
        given = np.isfinite(low[:, at])
        mean = value[:, at].mean()
        if not given.any():
            columns.append(f" none: {mean:.3f} |")
            continue
        ends = low[given, at], high[given, at]
        held = ((ends[0] <= true) & (true <= ends[1])).mean()
        half = (ends[1] - ends[0]).mean() / 2
        columns.append(f" {100 * held:.0f} of {100 * given.mean():.0f}: {mean:.3f} ± {half:.3f} |")
    return "".join(columns)


def main() -> None:
    given = arguments(__doc__, "captions", worlds={"type": int, "default": 100})
    captions = read_captions(given.captions, "test")
    gains = read_relevance(given.captions / "truth-test.arrow").matrix().astype(np.float64)
    write_rows(table(captions, gains, given.worlds), given.out)


if __name__ == "__main__":
    main()
