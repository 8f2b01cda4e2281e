"""How often 95 % intervals of metrics from a judged sample hold the truth, in worlds that are drawn
by rules of their own.

    python -m research.studies.judged --worlds 500 --out judged.md

Every world has 500 candidates and queries whose number of relevant ones, and what is known of them
without a judge, follow one of `KINDS`. Gains are 1/3, 2/3 and 1. Two systems see the gains through
one noise in common and one of their own. From their pool a share of all pairs is judged by the
truth. The truth is what 50,000 queries of the kind have when every pair is judged, by the formulas
of the papers, written here anew. About 25 minutes of one core.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.metrics import Pairs, Positives, draw_pool
from capgrade.metrics.judged_sample import query_values
from research.studies import arguments, write_rows

HEAD = "| world | queries | judged |"  # how the table begins
METRICS = ("recall@5", "r@5", "precision@10", "map@r", "ndcg@10", "ncs@5")
CANDIDATES, TRUTH = 500, 50_000  # candidates of a query; queries that tell the truth
LEVEL = 0.95
# The share of pairs that is judged: how many of each system's first are certain.
TOP = {0.01: 1, 0.02: 3, 0.06: 5, 0.2: 15}
_BLOCK = 2_000  # queries at a time


@dataclass(frozen=True)
class Drawn:
    """Gains and two systems' scores, [queries, candidates]; the own item of each query, which needs
    no judge, or none; and the group of each query, or none."""

    gains: np.ndarray
    systems: tuple[np.ndarray, np.ndarray]
    own: np.ndarray | None
    groups: np.ndarray | None


def _few(n: int, random: np.random.Generator) -> np.ndarray:
    return random.integers(1, 4, n)


def _wide(n: int, random: np.random.Generator) -> np.ndarray:
    return np.exp(random.uniform(0, np.log(67), n)).astype(int)


def _dense(n: int, random: np.random.Generator) -> np.ndarray:
    return random.integers(60, 141, n)


def _skewed(n: int, random: np.random.Generator) -> np.ndarray:
    most = random.random(n) < 0.85
    return np.where(most, random.integers(1, 3, n), random.integers(40, 67, n))


def _clustered(n: int, random: np.random.Generator) -> np.ndarray:
    return np.minimum(random.geometric(0.1, n), 66)


# How many candidates are relevant to each query: 1 to 3, none of them known; 1 to 66, fewer the
# more; 60 to 140; 1 or 2 of most and 40 to 66 of others; about 10, five queries having the same.
KINDS = {
    "few": _few,
    "wide": _wide,
    "dense": _dense,
    "skewed": _skewed,
    "clustered": _clustered,
}
# World, queries and the share that is judged. Of `rare` pairs, those below the first five of a
# system have one probability alone.
ROWS = (
    *((kind, 60, share) for kind in ("few", "wide") for share in TOP),
    *((kind, 60, share) for kind in ("dense", "skewed", "clustered") for share in (0.06, 0.2)),
    *((kind, queries, 0.2) for kind in ("few", "wide") for queries in (20, 200)),
    *((f"{kind}, rare", 60, 0.06) for kind in ("few", "wide")),
)


def draw(kind: str, queries: int, random: np.random.Generator) -> Drawn:
    """Queries of a kind."""
    sets = -(-queries // 5) if kind == "clustered" else queries
    place = random.random((sets, CANDIDATES)).argsort(axis=1).argsort(axis=1)
    gains = random.integers(1, 4, place.shape) / 3
    gains[place >= KINDS[kind](sets, random)[:, None]] = 0
    own = place.argmin(axis=1)
    if kind != "few":
        gains[np.arange(sets), own] = 1
    seen = np.where(gains > 0, 1.2 + 1.2 * gains, 0) + 0.6 * random.standard_normal(place.shape)
    groups = None
    if kind == "clustered":
        groups = np.arange(queries) // 5
        gains, seen, own = gains[groups], seen[groups], own[groups]
    first, second = (seen + noise * random.standard_normal(seen.shape) for noise in (0.6, 0.9))
    systems = first.astype(np.float32), second.astype(np.float32)
    return Drawn(gains, systems, None if kind == "few" else own, groups)


def dense(scores: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """`METRICS` of each query when every pair is judged, float64 [queries, metrics]."""
    ranked = np.take_along_axis(gains, np.argsort(-scores, axis=1), axis=1)
    best = -np.sort(-gains, axis=1)
    relevant, place = ranked > 0, np.arange(1, CANDIDATES + 1)
    number = np.maximum(relevant.sum(axis=1), 1)
    discount = 1 / np.log2(place[:10] + 1)
    at_r = relevant * (relevant.cumsum(axis=1) / place) * (place <= number[:, None])
    columns = [
        relevant[:, :5].any(axis=1),
        relevant[:, :5].sum(axis=1) / number,
        relevant[:, :10].mean(axis=1),
        at_r.sum(axis=1) / number,
        (ranked[:, :10] @ discount) / (best[:, :10] @ discount),
        ranked[:, :5].sum(axis=1) / best[:, :5].sum(axis=1),
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def truth(kind: str) -> np.ndarray:
    """`METRICS` of all queries of a kind."""
    random, total = np.random.default_rng(0), np.zeros(len(METRICS))
    for _ in range(TRUTH // _BLOCK):
        world = draw(kind, _BLOCK, random)
        total += dense(world.systems[0], world.gains).mean(axis=0)
    return total / (TRUTH // _BLOCK)


def judge(world: Drawn, share: float, *, rare: bool, seed: int) -> Pairs:
    """A judged sample of a world's pairs: of a pool, or of one certain and one rare stratum."""
    gains, own = world.gains, None
    if world.own is not None:
        own = Positives.from_lists([[item] for item in world.own])
    if rare:
        best = np.minimum(*(np.argsort(np.argsort(-S, axis=1), axis=1) for S in world.systems))
        chance = np.where(best < 5, 1.0, share)
        drawn = np.random.default_rng(seed).random(gains.shape) < chance
        if world.own is not None:
            drawn[np.arange(len(gains)), world.own] = False
        query, item = np.nonzero(drawn)
        pool = Pairs(query, item, 1 / chance[query, item])
    else:
        budget = round(share * gains.size)
        pool = draw_pool(world.systems, budget, top=TOP[share], own=own, seed=seed)
    sample = pool.valued(gains[pool.image, pool.caption])
    return sample if own is None else Pairs.concatenate([sample, own.pairs()])


def row(name: str, queries: int, share: float, right: np.ndarray, worlds: int) -> str:
    """A row of the table; `right` is the truth by metric."""
    kind, _, rare = name.partition(", ")
    ends, errors, plain = [], [], []
    for seed in range(worlds):
        world = draw(kind, queries, np.random.default_rng([seed, queries, len(name)]))
        sample = judge(world, share, rare=bool(rare), seed=seed)
        exact = dense(world.systems[0], world.gains).mean(axis=0)
        found = query_values(world.systems[0], sample, METRICS, seed=seed)
        given = [found[metric].estimate(LEVEL, world.groups) for metric in METRICS]
        ends.append([(one.low, one.high) for one in given])
        errors.append([one.value for one in given] - exact)
        plain.append([found[metric].bias for metric in METRICS] + errors[-1])
    return f"| {name} | {queries} | {share:.0%} |" + cells(right, ends, errors, plain)


def cells(right: np.ndarray, ends: Sequence, errors: Sequence, plain: Sequence) -> str:
    """Of each metric how many of 100 given intervals held, and of how many worlds; the bias; the
    root mean square error, and that of the plug-in; all [worlds, metrics]."""
    low, high = np.transpose(ends, (2, 0, 1))
    has, held = np.isfinite(low), (low <= right) & (right <= high)
    columns = []
    for at in range(len(METRICS)):
        number = int(has[:, at].sum())
        holds = "none"
        if number:
            holds = f"{100 * held[has[:, at], at].mean():.0f} of {100 * has[:, at].mean():.0f}"
        error, of_plain = (
            float(np.sqrt((np.asarray(one)[:, at] ** 2).mean())) for one in (errors, plain)
        )
        bias = float(np.asarray(errors)[:, at].mean())
        columns.append(f" {holds}: {bias:+.3f}, {error:.3f} ({of_plain:.3f})")
    return " |".join(columns) + " |"


def table(worlds: int, rows: Sequence[tuple[str, int, float]] = ROWS) -> Iterator[str]:
    """Row by row."""
    yield f"{HEAD}{''.join(f' {name} |' for name in METRICS)}"
    yield f"|---|---:|---:|{'---:|' * len(METRICS)}"
    right = {kind: truth(kind) for kind in {name.partition(", ")[0] for name, *_ in rows}}
    for kind, values in sorted(right.items()):
        yield f"| {kind} | all | 100% |" + "".join(f" {value:.3f} |" for value in values)
    for name, queries, share in rows:
        yield row(name, queries, share, right[name.partition(", ")[0]], worlds)


def main() -> None:
    given = arguments(__doc__, worlds={"type": int, "default": 500})
    write_rows(table(given.worlds), given.out)


if __name__ == "__main__":
    main()
