"""Stage: captions, regions and a recipe in; the paper's table with our numbers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from capgrade.pipelines.agree import agree
from capgrade.pipelines.measures import choose
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.reproduce.recipe import (
    NEEDS,
    SUMS,
    Column,
    Recipe,
    Row,
    RunSettings,
    Section,
    load_recipe,
    settings_of,
)
from capgrade.pipelines.reproduce.table import Part, as_json, markdown
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest, read_manifest, write_json, write_manifest, write_text
from capgrade.schemas.inputs import given_digests
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import MeasuresParams, RelevanceParams
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import Settings, score
from capgrade.trainer.evaluation.task import Task, load_task
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.search.index import KIND as INDEX
from capgrade.trainer.search.index import SIMILARITY, embed, made_from

Numbers = list[float | None]
LISTS = {"map@r": "eccv", "r_precision": "eccv", "eccv_recall": "eccv", "cxc_recall": "cxc"}  # of people
KIND = "reproduction"
JSON, MARKDOWN = "table.json", "table.md"
SPLIT = "test"


@dataclass(frozen=True)
class Folders:
    """What a reproduction reads, and where its runs and labels lie: recipes with the same `out` share them."""

    captions: Path
    regions: Path | None
    out: Path

    def run(self, name: str) -> Path:
        return self.out / "runs" / name

    def relevance(self, measure: str) -> Path:
        return self.out / "relevance" / measure


def similarity_of(
    name: str,
    pooling: str | None,
    folders: Folders,
    settings: RunSettings,
    captions: Captions,
    say: Callable[[str], None],
) -> Path:
    """similarity.npy of a run on the captions' split. A finished run is left as it is, a stopped one goes on; an index
    of this model, captions and regions is not made again.

    Raises what `train` and `embed` raise.
    """
    assert folders.regions is not None
    run = folders.run(name)
    say(f"run {name}")
    train(Data(folders.captions, folders.regions), run, settings.runs[name], settings.measures)
    index = run / (f"index-{pooling}" if pooling else "index")
    if not _current(index, run, captions, folders.regions):
        embed(run, folders.captions, folders.regions, captions.split, index, pooling)
    return index / SIMILARITY


def _current(index: Path, run: Path, captions: Captions, regions: Path) -> bool:
    try:
        return read_manifest(index, INDEX)["inputs"] == made_from(
            run, captions, {"regions": digest(regions / MANIFEST)}
        )
    except InputError:  # not there, or stopped
        return False


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


def reproduce(
    name: str, captions: Path, regions: Path | None, out: Path, *, judgements: Path | None = None, split: str = SPLIT,
    rows: Sequence[str] = (), params: Path | None = None, sets: Sequence[str] = (), small: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:  # fmt: skip
    """Train what the table's rows need, score them on the split, and write `out`/NAME/table.md and table.json, whose
    content is returned. Runs lie in `out`/runs, labels in `out`/relevance: recipes with one `out` share them, and what
    is finished is not done again. `rows` are those to reproduce (none: all).

    Raises InputError for an unknown recipe or row, for what it needs and was not given, for folders that do not fit
    together, and where a run's folder holds a run of other data or parameters.
    """
    recipe = load_recipe(name)
    settings = settings_of(recipe, params, sets, small)
    _require(recipe, regions, judgements)
    chosen = _chosen(recipe, rows)
    table = read_captions(captions, split)
    folders = Folders(captions, regions, out)
    with output_folder(out / name, KIND):
        if recipe.runs:
            parts, notes = _by_runs(recipe, chosen, table, folders, settings, say)
        else:
            assert judgements is not None
            parts, notes = _by_people(recipe, chosen, table, captions, judgements, settings)
        found = as_json(name, recipe, parts, [*recipe.notes, *notes], small)
        write_json(out / name / JSON, found)
        write_text(out / name / MARKDOWN, markdown(found))
        inputs = given_digests(captions=captions, regions=regions, judgements=judgements, params=params)
        trained = {run: digest(folders.run(run) / MANIFEST) for row in chosen for run in row.runs}
        rows_of = {JSON: 0, MARKDOWN: 0}
        asked = {"recipe": name, "rows": list(rows), "set": list(sets), "small": small, "split": split}
        write_manifest(out / name, KIND, params=asked, inputs={**inputs, **trained}, rows=rows_of)
    return found


def _require(recipe: Recipe, regions: Path | None, judgements: Path | None) -> None:
    given = {"regions": regions, "resnet152": regions, "judgements": judgements}
    for need, path in given.items():
        if need in recipe.needs and path is None:
            option = "--judgements" if need == "judgements" else "--regions"
            raise InputError(f"this recipe needs {NEEDS[need]}", remedy=f"give {option}")


def _chosen(recipe: Recipe, rows: Sequence[str]) -> list[Row]:
    known = {row.row: row for row in recipe.rows}
    if unknown := sorted(set(rows) - known.keys()):
        raise InputError(f"no row '{unknown[0]}'", remedy=f"choose from: {', '.join(known)}")
    return [row for row in recipe.rows if not rows or row.row in rows]


def _by_runs(
    recipe: Recipe,
    chosen: Sequence[Row],
    captions: Captions,
    folders: Folders,
    settings: RunSettings,
    say: Callable[[str], None],
) -> tuple[list[Part], list[str]]:
    labels, notes = labels_of(recipe, captions, folders, settings.measures)
    parts = []

    @cache  # sections and ensembles share runs
    def similarity(run: str, pooling: str | None) -> Path:
        return similarity_of(run, pooling, folders, settings, captions, say)

    for section in recipe.sections:
        fold = None if settings.small else section.fold
        ours: list[Numbers] = []
        for row in section.rows:
            if not row.runs or row not in chosen:
                ours.append([None] * len(row.published))
                continue
            files = [similarity(run, row.pooling) for run in row.runs]
            task, _ = load_task(folders.captions, similarity=files, split=captions.split)
            ours.append(metrics_of(task, section, labels, captions, fold))
        protocol = f"mean of folds of {fold:,} images" if fold else f"all {captions.n_images:,} images"
        parts.append(Part(section, protocol, ours))
    return parts, notes


def _by_people(
    recipe: Recipe, chosen: Sequence[Row], captions: Captions, folder: Path, judgements: Path, settings: RunSettings
) -> tuple[list[Part], list[str]]:
    parts, notes = [], []
    for section in recipe.sections:
        rows = [row for row in section.rows if row in chosen]
        found, left_out = correlations(section, rows, captions, folder, judgements, settings.measures)
        parts.append(Part(section, judgements.name, _of_rows(section, found)))
        notes += left_out
    return parts, notes


def _of_rows(section: Section, found: dict[str, Numbers]) -> list[Numbers]:
    return [found.get(row.row, [None] * len(row.published)) for row in section.rows]
