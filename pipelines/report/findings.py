"""Section: what the numbers below come to, in up to three sentences: the labels, the judgements, the runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from capgrade.pipelines.report.data import AGREEMENT, EVALUATION, ReportData
from capgrade.pipelines.report.metric_names import said as told
from capgrade.pipelines.report.parts import Note, PageSection, percent
from capgrade.schemas.files import read_json
from capgrade.schemas.judges import PEOPLE, TRUTH, VALUES
from capgrade.trainer.evaluation.tables import first_measure

WHO = {PEOPLE: "people", TRUTH: "the truth of the scenes", VALUES: "the other matrix"}
INTRO = "What the numbers below come to."
GRADED = ("nsum", "ndcg@25", "ncs@10")  # the first that all runs have stands for graded labels


def findings(data: ReportData) -> PageSection:
    """Sentences on what is there; where there is nothing but captions, their number."""
    found = [*_labels(data), *_agreement(data), *_runs(data)]
    one = data.captions
    counted = f"Split {one.split} has {one.n_captions:,} captions of {one.n_images:,} images."
    return PageSection("findings", "Findings", INTRO, [Note(sentence) for sentence in found or [counted]])


def _labels(data: ReportData) -> Iterator[str]:
    """How many captions have an image as relevant as their own, by the last measure, by which answers are graded."""
    if not data.graded:
        return
    name = list(data.relevance_manifest["params"]["measures"])[-1]
    found = data.own_and_other[name]
    if not found.equalled:
        yield f"By {name}, no caption has another image that is as relevant to it as its own."
    elif found.equalled > 0:  # else it is not known: no image has a second caption
        yield (
            f"By {name}, {percent(found.equalled)} of captions have another image that is as relevant to them as their "
            f"own or more. The median of these captions has {found.images:,.0f} such images. A benchmark counts them "
            "all as wrong."
        )


def _agreement(data: ReportData) -> Iterator[str]:
    """Which measure agrees best where binary relevance says nothing."""
    if not data.has(AGREEMENT):
        return
    found = read_json(data.at(AGREEMENT))
    known = {
        name: row["pearson"]["non_original"]
        for name, row in found["measures"].items()
        if row["pearson"].get("non_original") is not None
    }
    if not known:
        return
    best = max(known, key=known.__getitem__)
    judged = found["judgements"]
    yield (
        f"Of the {len(known)} measures, {best} agrees best with {WHO[judged['by']]} ({judged['pairs']:,} pairs): "
        f"Pearson's r is {known[best]:.3f} over pairs that do not belong together, where binary relevance has none."
    )


def _runs(data: ReportData) -> Iterator[str]:
    """Whether binary and graded metrics put the same run first."""
    runs: dict[str, dict[str, Any]] = {
        name: read_json(at / "metrics.json") for name, at in data.folders(EVALUATION, "metrics.json").items()
    }
    graded = next((m for m in GRADED if runs and all(_mean(run, m) is not None for run in runs.values())), None)
    binary = next((m for m in ("rsum", "recall@1") if all(_mean(run, m) is not None for run in runs.values())), None)
    if len(runs) < 2 or binary is None:
        return
    first = _first(runs, binary)
    said = f"By {binary} {first} is first of {len(runs)} runs ({told(binary, _value(runs[first], binary))})"
    if graded is None:
        yield f"{said}; no graded metric is there."
        return
    second = _first(runs, graded)
    same = "and also" if second == first else f"but {second} is"
    value = told(graded, _value(runs[second], graded))
    measures = dict.fromkeys(measure for run in runs.values() if (measure := first_measure(run)))
    if len(measures) > 1:  # values by two measures have no order
        yield f"{said}; their {graded} is by different measures: {', '.join(measures)}."
        return
    by = f" by {next(iter(measures))}" if measures else ""
    yield f"{said}, {same} first by {graded}, which counts graded relevance{by} ({value})."


def _mean(run: dict[str, Any], name: str) -> float | None:
    """Of both directions where a metric has two."""
    if name in run:
        return float(run[name])
    both = [run.get(way, {}).get(name) for way in ("i2t", "t2i")]
    return None if None in both else float(sum(both)) / 2


def _value(run: dict[str, Any], name: str) -> float:
    value = _mean(run, name)
    assert value is not None  # `_runs` asks for what all runs have
    return value


def _first(runs: dict[str, dict[str, Any]], name: str) -> str:
    return max(runs, key=lambda label: _value(runs[label], name))
