"""Graded losses and models beside their baselines on scenes, whose true relevance is known: means
and standard deviations.

    python -m research.studies.results --captions DIR --regions DIR --out results.md

Each comparison trains a baseline and its challengers on the same data, `--seeds` times, and scores
the test split by the true relevance. With `--runs` the runs are kept, and a stopped command goes
on.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.metrics.formats import SUM_NAMES
from capgrade.params import load_params
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.data.images import open_images
from capgrade.trainer.data.pairs import SplitPairs
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.fit.checkpoint import load_run
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.search.encode import compute_scores, encode_split
from capgrade.trainer.stages.evaluate import EvaluateParams
from research.studies import arguments, write_rows

METRICS = (
    "recall@1",
    "recall@5",
    "recall@10",
    "ncs@1",
    "ncs@5",
    "ncs@10",
    "ndcg@25",
    "asp",
    "kendall_tau_b",
)
PRESETS = Path(__file__).with_suffix(".yaml")
HEAD = "| | run | "  # the beginning of the table
COLUMNS = ("rsum", "nsum", "recall@1", "ndcg@25", "asp", "kendall_tau_b")


@dataclass(frozen=True)
class ComparedLosses:
    """Presets of results.yaml, the baseline first, and values of `train` for all of them."""

    title: str
    presets: tuple[str, ...]
    sets: tuple[str, ...] = ()


SGR = ("_hard", "_sam", "_bcls", "_daa", "", "_sum_sam", "_soft")
SHORT = ("epochs=12", "decay_after=[8]")
COMPARISONS = (
    ComparedLosses("SAM, 10 % of the images", ("small_vse", "small_vse_sam"), ("share=0.1",)),
    ComparedLosses("BCLS, the hardest negative", ("small_saf_hard", "small_saf_bcls")),
    ComparedLosses("BCLS, all negatives", ("small_saf", "small_saf_bcls")),
    ComparedLosses("DAA, the hardest negative", ("small_saf_hard", "small_saf_hard_daa")),
    ComparedLosses("DAA, all negatives", ("small_saf", "small_saf_daa")),
    ComparedLosses("TERAN", ("small_tern", "small_teran")),
    ComparedLosses(
        "on VSE++",
        ("small_vse", "small_vse_sam", "small_vse_bcls", "small_vse_sum", "small_vse_soft"),
        SHORT,
    ),
    ComparedLosses(
        "on VSRN",
        ("small_vsrn", "small_vsrn_sam", "small_vsrn_sum", "small_vsrn_sum_sam", "small_vsrn_soft"),
    ),
    ComparedLosses(
        "on VSE-infinity",
        ("small_vse_infinity", "small_vse_infinity_sum", "small_vse_infinity_soft"),
        SHORT,
    ),
    ComparedLosses(
        "on SAF",
        ("small_saf_hard", "small_saf_bcls", "small_saf_hard_daa", "small_saf", "small_saf_soft"),
    ),
    ComparedLosses("on SGR", tuple(f"small_sgr{kind}" for kind in SGR)),
    ComparedLosses("on SCAN", ("small_scan_hard", "small_scan", "small_scan_soft")),
)


def result(data: Data, runs: Path, preset: str, sets: Sequence[str], seed: int) -> dict[str, float]:
    """Train and score one run, a folder of `runs`: rsum and nsum of 0 to 600, and the other metrics
    as means over both directions."""
    overrides = [f"train.{text}" for text in (f"preset={preset}", f"seed={seed}", *sets)]
    params = load_params(PRESETS, overrides)
    run = runs / "-".join([preset, *sets, f"seed={seed}"])
    train(
        data.captions, run, params.train, params.measures, regions=data.regions, shards=data.shards
    )
    captions = read_captions(data.captions, "test")
    truth = read_relevance(data.captions / "truth-test.arrow").matrix()
    task = Task(scores_of(run, data, captions), captions.owner, {"truth": truth})
    evaluation = score(task, EvaluateParams(samples=0, metric=METRICS))
    directions = [scored.mean for scored in evaluation.scored.values()]
    means = {name: float(np.mean([mean[name] for mean in directions])) for name in METRICS}
    return {**evaluation.sums, **means}


def scores_of(run: Path, data: Data, captions: Captions) -> np.ndarray:
    """The scores of a trained run, float32 [images, captions]."""
    model, tokens, config = load_run(run)
    store = open_images(config["params"]["model"]["name"], config["model"], data.regions, None)
    pairs = SplitPairs(captions, store, tokens.encode(captions))
    return np.asarray(compute_scores(model, *encode_split(model, pairs)))


def rows(
    comparisons: Sequence[ComparedLosses], data: Data, runs: Path, seeds: int
) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """The head of each row, and the numbers of each seed."""
    # Comparisons share baselines, which are trained once.
    done: dict[tuple[str, tuple[str, ...]], list[dict[str, float]]] = {}
    for comparison in comparisons:
        for preset in comparison.presets:
            key = preset, comparison.sets
            if key not in done:
                done[key] = [result(data, runs, *key, seed) for seed in range(seeds)]
            yield f"| {comparison.title} | {preset} | ", done[key]


def table(
    head: str, columns: Sequence[str], rows: Iterable[tuple[str, list[dict[str, float]]]]
) -> Iterator[str]:
    """The lines of a Markdown table of mean ± standard deviation over seeds, in percent."""
    yield head + " | ".join(columns) + " |"
    yield "|" + "---|" * (head.count("|") - 1) + "---:|" * len(columns)
    for first, runs in rows:
        cells = [
            cell(name, [run[name] for run in runs]) if name in runs[0] else "" for name in columns
        ]
        yield first + " | ".join(cells) + " |"


def cell(name: str, values: Sequence[float]) -> str:
    return spread(np.array(values) * (1 if name in SUM_NAMES else 100))


def spread(values: np.ndarray) -> str:
    """Mean ± standard deviation over seeds; one value alone has none."""
    mean = f"{values.mean():.1f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.1f}"


def open_runs(runs: Path | None) -> AbstractContextManager[str | Path]:
    """The folder of the runs: `runs`, or without it a temporary one."""
    if runs is None:
        return tempfile.TemporaryDirectory()
    runs.mkdir(parents=True, exist_ok=True)
    return nullcontext(runs)


RUNS: dict[str, dict[str, Any]] = {
    "runs": {"type": Path, "help": "keep the trained runs here, and go on with what is here"},
    "seeds": {"type": int, "default": 3},
    "only": {"default": "", "help": "rows that begin so"},
}


def main() -> None:
    args = arguments(__doc__, "captions", "regions", **RUNS)
    chosen = [c for c in COMPARISONS if c.title.startswith(args.only)]
    if not chosen:
        remedy = f"the start of one of: {', '.join(c.title for c in COMPARISONS)}"
        raise InputError(f"no comparison begins with '{args.only}'", remedy=remedy)
    with open_runs(args.runs) as runs:
        results = rows(chosen, Data(args.captions, args.regions), Path(runs), args.seeds)
        write_rows(table(HEAD, COLUMNS, results), args.out)


if __name__ == "__main__":
    main()
