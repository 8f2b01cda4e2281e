"""Stage: a similarity matrix, captions and labels in; every metric, with intervals and curves, out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, read_manifest, write_json, write_manifest
from capgrade.schemas.inputs import require_unchanged
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import EvaluateParams
from capgrade.trainer.evaluation.curves import curves
from capgrade.trainer.evaluation.task import DIRECTIONS, Task, queries_of
from capgrade.trainer.metrics.catalogue import Metric, asp_a, extension_name, metric, score_all
from capgrade.trainer.metrics.ndcg import zero_ideal
from capgrade.trainer.metrics.ranking import Array, Ties
from capgrade.trainer.metrics.semantic_map import Collapse, collapse
from capgrade.trainer.metrics.semantic_recall import extension_images
from capgrade.trainer.metrics.uncertainty import PairedTest, paired_test, resampled_means, resampled_medians

RSUM = (1, 5, 10)  # the cut-offs of rsum and nsum, sums of six values in percent: 0 to 600


@dataclass(frozen=True)
class Settings:
    """What to compute; the defaults are the field's."""

    ks: tuple[int, ...] = RSUM
    p: int = 25  # depth of NDCG
    ms: tuple[int, ...] = (5, 10)  # sizes of the extension set of semantic recall
    folds: tuple[int, ...] = ()  # also average over folds of so many images: 1000 is COCO 1K
    ties: Ties = "expected"
    metrics: tuple[str, ...] = ()  # names instead of the whole set
    level: float = 0.95
    samples: int = 1000  # bootstrap draws; 0: no intervals
    seed: int = 0

    @classmethod
    def of(cls, params: EvaluateParams) -> Settings:
        """The settings of a block of params.yaml."""
        return cls(
            ks=params.k, p=params.p, ms=params.m, folds=params.fold, ties=params.ties, metrics=params.metric,
            samples=params.samples, seed=params.seed,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if not 0 < self.level < 1 or self.samples < 0:
            problem = f"level {self.level} and {self.samples} samples"
            raise InputError(problem, remedy="a level between 0 and 1, such as 0.95; samples 0 for no intervals")


@dataclass(frozen=True)
class Scored:
    """One direction: per-query values of every metric, fold by fold (one fold: the whole set)."""

    metrics: Sequence[Metric]
    folds: Sequence[Mapping[str, Array]]
    images: Sequence[Array]  # of each fold: the image that each query is or belongs to

    def values(self, name: str) -> Array:
        """Per-query values of a metric, folds one after the other."""
        return np.concatenate([fold[name] for fold in self.folds])

    def summary(self) -> dict[str, float]:
        """Each metric, averaged over folds."""
        return {
            item.name: float(np.mean([item.reduce(fold[item.name]) for fold in self.folds])) for item in self.metrics
        }

    def draws(self, settings: Settings) -> dict[str, Array]:
        """Bootstrap draws of each metric, (samples,): images drawn within each fold, with all their captions where
        these are the queries; folds averaged."""
        means = [item for item in self.metrics if not item.name.startswith("medr")]
        total: dict[str, Array] = {item.name: np.zeros(settings.samples) for item in self.metrics}
        for number, (fold, images) in enumerate(zip(self.folds, self.images, strict=True)):
            table = np.stack([fold[item.name] for item in means], axis=1)
            seed = settings.seed + number
            drawn = resampled_means(table, samples=settings.samples, seed=seed, groups=images)
            for column, item in enumerate(means):
                total[item.name] += drawn[:, column] / len(self.folds)
            for item in self.metrics:
                if item not in means:
                    medians = resampled_medians(fold[item.name], groups=images, samples=settings.samples, seed=seed)
                    total[item.name] += medians / len(self.folds)
        return total


@dataclass(frozen=True)
class Evaluation:
    """Both directions of one protocol."""

    protocol: str  # "whole" or "folds of N"
    scored: Mapping[str, Scored]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]  # direction -> metric -> (low, high)
    sums: Mapping[str, float]  # rsum, nsum, 0 to 600
    sum_intervals: Mapping[str, tuple[float, float]]
    counts: Mapping[str, Any]
    collapse: Mapping[str, Collapse] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def json(self) -> dict[str, Any]:
        """Fractions, except rsum and nsum of 0 to 600; `intervals` under the same keys; null where no query has a
        value."""
        values = {
            way: {name: None if np.isnan(value) else value for name, value in scored.summary().items()}
            for way, scored in self.scored.items()
        }
        intervals: dict[str, Any] = {
            way: {name: pair for name, pair in found.items() if not np.isnan(pair).any()}
            for way, found in self.intervals.items()
        }
        state = {name: {"contrast": c.contrast, "collapsed": c.collapsed} for name, c in self.collapse.items()}
        return {
            **values,
            **self.sums,
            "intervals": {**intervals, **self.sum_intervals},
            "protocol": self.protocol,
            "counts": dict(self.counts),
            "collapse": state,
            "notes": list(self.notes),
        }


def default_names(task: Task, settings: Settings) -> tuple[list[str], list[str]]:
    """Names of the whole set that this task can answer: those of no relevance, those of each."""
    at = settings.ks
    plain = [f"{name}@{k}" for name in ("recall", "r") for k in at] + ["medr", "meanr"]
    if task.cosines:
        plain += [f"{name}@{k}" for name in ("lambda", "lambda_other") for k in at]
    if "eccv" in task.human:
        plain += ["map@r", "r_precision", "eccv_recall@1"]
    if "cxc" in task.human:
        plain += [f"cxc_recall@{k}" for k in at]
    if task.accepted is not None:
        plain += [f"accepted_recall@{k}" for k in at]
    if task.codes is not None:
        plain.append("pmrp")
    graded = [f"{name}@{k}" for name in ("ncs", "ncs_other", "ncs_eq5", "ncs_authors") for k in at]
    graded += [f"{name}@{settings.p}" for name in ("ndcg", "ndcg_exp")] + ["asp", "kendall_tau_a", "kendall_tau_b"]
    graded += [f"{name}@{k}" for name in ("cs", "cs_tau_a") for k in at if k > 1]
    sizes = [m for m in settings.ms if m < len(task.similarity)]
    kinds = ("sr", "sr_other", "sr_soft", "sr_soft_other", "sr_authors", "sr_soft_authors")
    graded += [f"{name}@{k}(m={m})" for name in kinds for m in sizes for k in at]
    return plain, graded if task.relevance else []


def chosen_metrics(task: Task, settings: Settings) -> list[Metric]:
    """The metrics of an evaluation: of several relevances the first has plain names, the others [brackets]."""
    if settings.metrics:
        needs = {name: metric(name).family.needs for name in settings.metrics}
        plain = [name for name in settings.metrics if needs[name] not in ("relevance", "extension")]
        graded = [name for name in settings.metrics if name not in plain]
    else:
        plain, graded = default_names(task, settings)
    if graded and not task.relevance:
        raise InputError(f"{graded[0]} needs relevance labels", remedy="give --relevance, from capgrade relevance")
    found = [metric(name) for name in plain]
    for number, name in enumerate(task.relevance):
        found += [metric(item, name, label=name if number else "") for item in graded]
    if len(task.relevance) > 1 and not settings.metrics:
        weights = [1 / max(float(matrix.max()), 1e-12) for matrix in task.relevance.values()]
        found.append(asp_a(list(task.relevance), weights))
    return found


def _extensions(task: Task, metrics: Iterable[Metric]) -> dict[str, Array]:
    """The extending images of every sr_authors metric, m the largest asked for, cut to each m."""
    names = [item.name for item in metrics if item.family.needs == "extension"]
    sizes = sorted({int(name.split("(m=")[1].split(")")[0]) for name in names})
    if not sizes:
        return {}
    found = {}
    for name, matrix in task.relevance.items():
        images = extension_images(matrix, task.owner, m=sizes[-1], depth=max(30, sizes[-1] + 1))
        found.update({extension_name(name, m): images[:, :m] for m in sizes})
    return found


def score(task: Task, settings: Settings, *, fold: int | None = None, notes: Sequence[str] = ()) -> Evaluation:
    """Every metric of both directions, over the whole set or averaged over folds of `fold` images."""
    parts = [task] if fold is None else _folds(task, fold)
    metrics = chosen_metrics(parts[0], settings)
    results: dict[str, list[Mapping[str, Array]]] = {name: [] for name in DIRECTIONS}
    state = {}
    for part in parts:
        for name, queries in queries_of(part, settings.ties, _extensions(part, metrics)).items():
            results[name].append(score_all(queries, metrics))
            if fold is None and part.cosines:
                state[name] = collapse(queries.similarity)
    images = {"i2t": [np.arange(len(part.similarity)) for part in parts], "t2i": [part.owner for part in parts]}
    scored = {name: Scored(metrics, found, images[name]) for name, found in results.items()}
    draws = {name: found.draws(settings) for name, found in scored.items()} if settings.samples else {}
    sums, sum_draws = _sums({name: found.summary() for name, found in scored.items()}), _sums(draws)
    return Evaluation(
        "whole" if fold is None else f"folds of {fold}",
        scored,
        {name: {key: _interval(values, settings) for key, values in found.items()} for name, found in draws.items()},
        {name: float(value) for name, value in sums.items()},
        {name: _interval(values, settings) for name, values in sum_draws.items()},
        _counts(task, scored, len(parts)),
        state,
        list(notes),
    )


def _folds(task: Task, size: int) -> list[Task]:
    images = len(task.similarity)
    if size < 1 or images % size:
        raise InputError(f"folds of {size} do not divide {images} images", remedy="use a divisor, such as 1000 of 5000")
    return [task.fold(first, size) for first in range(0, images, size)]


def _sums(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """rsum and nsum, 0 to 600, where both directions have all three cut-offs; of numbers or of draws."""
    out = {}
    for name, base in (("rsum", "recall"), ("nsum", "ncs")):
        keys = [f"{base}@{k}" for k in RSUM]
        if found and all(key in values for values in found.values() for key in keys):
            out[name] = 100 * sum(values[key] for values in found.values() for key in keys)
    return out


def _interval(draws: Array, settings: Settings) -> tuple[float, float]:
    tail = (1 - settings.level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail]) if not np.isnan(draws).all() else (np.nan, np.nan)
    return float(low), float(high)


def _counts(task: Task, scored: Mapping[str, Scored], folds: int) -> dict[str, Any]:
    out: dict[str, Any] = {"images": len(task.similarity), "captions": len(task.owner), "folds": folds}
    out["zero_ideal"] = {
        name: {"i2t": zero_ideal(matrix), "t2i": zero_ideal(matrix.T)} for name, matrix in task.relevance.items()
    }
    for name, found in scored.items():
        unscored = {item.name: int(np.isnan(found.values(item.name)).sum()) for item in found.metrics}
        out[f"{name}_not_annotated"] = {key: count for key, count in unscored.items() if count}
    return out


def evaluate(
    task: Task,
    settings: Settings,
    *,
    notes: Sequence[str] = (),
    out: Path | None = None,
    inputs: Mapping[str, str] | None = None,
    now: Callable[[], Mapping[str, str]] | None = None,
) -> list[Evaluation]:
    """Score the whole set and then each size of folds; with `out`, write what `write` writes. `inputs` are the digests
    of what the task was read from, before it was read; `now` takes them again when all is scored.

    InputError for an `out` that another stage wrote, and for an input that changed meanwhile."""
    with nullcontext() if out is None else output_folder(out, "evaluation"):
        found = [score(task, settings, notes=notes)]
        found += [score(task, settings, fold=size) for size in settings.folds]
        if now is not None:
            require_unchanged(inputs or {}, now())
        if out is not None:
            write(out, task, settings, found, inputs or {})
    return found


def as_json(found: Sequence[Evaluation]) -> dict[str, Any]:
    """The whole set at the top, other protocols under `folds`."""
    return {**found[0].json(), "folds": {item.protocol.split()[-1]: item.json() for item in found[1:]}}


def write(
    out: Path, task: Task, settings: Settings, found: Sequence[Evaluation], inputs: Mapping[str, str] | None = None
) -> None:
    """metrics.json for `dvc metrics`, curves_*.json for `dvc plots`, per_query.npz for paired tests; in `out`."""
    with atomic(out / "per_query.npz") as temporary, temporary.open("wb") as file:
        values = found[0].scored
        np.savez_compressed(
            file,
            allow_pickle=False,
            **{
                f"{way}/{item.name}": values[way].values(item.name)
                for way in DIRECTIONS
                for item in values[way].metrics
            },
        )
    drawn = curves(task, settings.ks, settings.ties)
    for name, points in drawn.items():
        write_json(out / f"curves_{name}.json", points)
    write_json(out / "metrics.json", as_json(found))
    names = ("metrics.json", "per_query.npz", *(f"curves_{name}.json" for name in drawn))
    write_manifest(out, "evaluation", params=asdict(settings), inputs=dict(inputs or {}), rows=dict.fromkeys(names, 0))


def similarity_names(files: Sequence[Path]) -> list[str]:
    """What the similarities of an evaluation are called among its inputs."""
    return ["similarity"] if len(files) == 1 else [f"similarity {k + 1}" for k in range(len(files))]


def averaged(inputs: Mapping[str, str]) -> int:
    """How many similarities were averaged: 1 for one, or for embeddings."""
    return max(1, sum(name.startswith("similarity ") for name in inputs))


def _compared(name: str) -> bool:
    """Is this input what two evaluations are compared on?"""
    return name in ("similarity", "image_embeddings", "caption_embeddings") or name.startswith("similarity ")


def _require_same(manifests: Sequence[Mapping[str, Any]], second: Path) -> None:
    """Two evaluations answer for the same queries, by the same labels and the same rule of ties."""
    one, other = ({**found["inputs"], "ties": found["params"].get("ties")} for found in manifests)
    differing = sorted(k for k in one.keys() | other.keys() if not _compared(k) and one.get(k) != other.get(k))
    if differing:
        problem = f"evaluated with other {', '.join(differing)} than the first"
        raise InputError(problem, file=second, remedy="evaluate both alike")


def compare(a: Path, b: Path, *, method: str = "permutation", samples: int = 10_000) -> dict[str, PairedTest]:
    """Paired tests of two evaluation folders, for every metric that both have: a minus b, query by query.

    InputError for a folder that is not finished, and for two of other captions or labels."""
    _require_same([read_manifest(folder, "evaluation") for folder in (a, b)], b)
    runs = [np.load(folder / "per_query.npz") for folder in (a, b)]
    shared = [name for name in runs[0].files if name in runs[1].files]
    return {name: paired_test(runs[0][name], runs[1][name], method=method, samples=samples) for name in shared}
