"""The gates of speed and memory: each figure beside that of November 2026 and beside its limit.

Speeds are those of MS-COCO's 5K test captions. Large figures are of a corpus of `corpus` with
an eighth of COCO-train's size and stand-ins for sentence embeddings.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from research.benchmarks import corpus, relevance, score, shards, start
from research.benchmarks.harness import Asked, BenchParams, Rows

EIGHTH = 14_161  # images of an eighth of COCO-train
_FEW = 200  # images of a first run, most of whose time is compiling
_PLAN = ("shards.top=64", "shards.windows.among=0.01")  # the best 64, and windows drawn from 1 %
_DENSE = ("cider", "rouge_l", "sbert")
AT_LEAST, AT_MOST = "at least", "at most"

# Each figure, in the order of `_figures` -> its value in November 2026, and its limit.
GATES: dict[str, tuple[float, str, float]] = {
    "CIDEr-D, COCO 5K, times pycocoevalcap": (145_000, AT_LEAST, 90_000),
    "ROUGE-L, COCO 5K, times pycocoevalcap": (38_700, AT_LEAST, 19_000),
    "score, COCO 5K, times pycocoevalcap with Java": (81, AT_LEAST, 50),
    "import of shards, modules": (158, AT_MOST, 79),
    "import of shards, seconds": (4.5, AT_MOST, 2.25),
    "first use of relevance, seconds": (6.0, AT_MOST, 25),
    "first use of shards, seconds": (9.4, AT_MOST, 40),
    "all pairs, an eighth of COCO-train, times the product": (0.95, AT_MOST, 1.3),
    "best 64 and 1 %, an eighth of COCO-train, times the default plan": (9, AT_MOST, 1),
    "memory of shards, an eighth of COCO-train, MB": (786, AT_MOST, 1200),
    "Flickr30K train, default plan, seconds": (109, AT_MOST, 153),
}


def bench(asked: Asked) -> Rows:
    """For each gate: the figure before, the figure now, the limit, and whether it holds.
    `bench.flickr` names a captions folder of Flickr30K; without it the last gate is left out."""
    result = {}
    for (name, (before, side, limit)), now in zip(GATES.items(), _figures(asked), strict=False):
        holds = now >= limit if side == AT_LEAST else now <= limit
        result[name] = {
            "before": before,
            "now": now,
            "gate": f"{side} {limit:,g}",
            "holds": bool(holds),
        }
    return result


def _figures(asked: Asked) -> Iterator[float]:
    peers = relevance.bench(replace(asked, measures=("cider", "rouge_l")))
    yield from (peers[name]["ratio"] for name in ("cider", "rouge_l"))
    yield score.bench(asked)["total"]["ratio"]
    # The corpus is small, because the time of writing much would hide that of compiling.
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "corpus"
        corpus.bench(_with(asked, out=str(out), images=_FEW))
        stages = start.bench(_with(replace(asked, captions=out), split=None))
    yield from (stages["shards"][name] for name in ("modules", "import_seconds"))
    yield from (stages[name]["first_seconds"] for name in ("relevance", "shards"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "corpus"
        corpus.bench(_with(asked, out=str(out), images=EIGHTH, vectors=True))
        large = replace(asked, captions=out, measures=_DENSE)
        large = _with(large, embeddings=str(out / "vectors.npy"), split=None)
        yield relevance.all_pairs(large)["times_the_product"]
        default, best = (
            shards.bench(replace(large, sets=[*asked.sets, *plan]))["shards"]
            for plan in ((), _PLAN)
        )
        yield best["seconds"] / default["seconds"]
        yield default["peak_mb"]
    if asked.bench.flickr is not None:
        flickr = replace(asked, captions=Path(asked.bench.flickr), measures=_DENSE)
        yield shards.bench(flickr)["shards"]["seconds"]


def _with(asked: Asked, **changed: Any) -> Asked:
    """The same request with other values of the block `bench`."""
    return replace(asked, bench=BenchParams.model_validate(asked.bench.model_dump() | changed))
