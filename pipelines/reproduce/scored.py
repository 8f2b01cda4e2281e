"""The numbers of a table's rows: metrics of a similarity, or the correlation of a measure with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capgrade.pipelines.agree import agree
from capgrade.pipelines.measures import choose
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.reproduce.recipe import SUMS, Column, Recipe, Row, Section
from capgrade.pipelines.reproduce.runs import Folders
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, RelevanceParams
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import Settings, score
from capgrade.trainer.evaluation.task import Task

Numbers = list[float | None]
LISTS = {"map@r": "eccv", "r_precision": "eccv", "eccv_recall": "eccv", "cxc_recall": "cxc"}  # of people


def labels_of(
    recipe: Recipe, captions: Captions, folders: Folders, measures: MeasuresParams
) -> tuple[dict[str, Path], list[str]]:
    """The relevance of the recipe's measures on the captions' split, made where it is not yet; and what cannot be made
    here and why. Only SPICE may be missing: it needs Java and jars that nobody may ship."""
    found, left_out = {}, []
    for name in recipe.relevance:
        try:
            choose([name], measures)[name].fit(captions) if name == "spice" else None
        except InputError as error:
            left_out.append(f"{name} not computed: {error.problem}")
            continue
        params = RelevanceParams(split=captions.split, measures=(name,))
        relevance(folders.captions, folders.relevance(name), params, measures)
        found[name] = folders.relevance(name) / f"{name}.arrow"
    return found, left_out


def metrics_of(
    task: Task, section: Section, labels: Mapping[str, Path], captions: Captions, fold: int | None
) -> Numbers:
    """A number for each column; None where its labels or lists are not there."""
    columns, found = section.parsed, {}
    human = task.human if fold is None else {}  # lists of people are of the whole gallery
    for name in {column.relevance for column in columns}:
        if name is not None and name not in labels:
            continue
        answered = {
            metric for column in columns if column.relevance == name and _has_lists(column, human)
            for metric in column.metrics
        }  # fmt: skip
        if answered:
            known = {} if name is None else {name: _matrix(labels[name], captions)}
            plain = Settings(samples=0, metrics=tuple(sorted(answered)))
            found[name] = score(replace(task, relevance=known, human=human), plain, fold=fold).json()
    return [_number(column, found.get(column.relevance)) for column in columns]


def _has_lists(column: Column, human: Mapping[str, Any]) -> bool:
    needed = LISTS.get(column.metric) or LISTS.get(column.metric.split("@")[0])
    return needed is None or needed in human


def _matrix(path: Path, captions: Captions) -> Any:
    stored = read_relevance(path)
    stored.require(captions)
    return stored.matrix()


def _number(column: Column, found: Mapping[str, Any] | None) -> float | None:
    if found is None:
        return None
    if column.metric in SUMS:
        both = (found[way].get(name) for way in ("i2t", "t2i") for name in column.metrics)
        values = [value for value in both if value is not None]
        return 100 * sum(values) if len(values) == 2 * len(column.metrics) else None
    value = found[column.way or "i2t"].get(column.metric)
    return None if value is None else column.times * value


def correlations(
    section: Section, rows: Sequence[Row], captions: Captions, folder: Path, judgements: Path, measures: MeasuresParams
) -> tuple[dict[str, Numbers], list[str]]:
    """Numbers of these rows of the section, each of a measure, by the row's name; and what cannot be computed here and
    why."""
    found, left_out = {}, []
    computed: dict[str, Any] = {}
    for name in [row.measure for row in rows if row.measure not in (None, "binary")]:
        try:
            computed |= agree(folder, judgements, [str(name)], measures, captions.split)
        except InputError as error:
            if name != "spice":
                raise
            left_out.append(f"{name} not computed: {error.problem}")
    for row in rows:
        if row.measure in computed:
            found[row.row] = [_coefficient(column, computed[row.measure]) for column in section.parsed]
    return found, left_out


def _coefficient(column: Column, found: Mapping[str, Mapping[str, float]]) -> float | None:
    value = found[column.metric].get(column.scope or "all")
    return None if value is None else column.times * value
