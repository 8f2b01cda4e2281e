"""Stage: captions, regions and a recipe in; the paper's table with our numbers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from capgrade.pipelines.reproduce.recipe import NEEDS, Recipe, Row, Section, load_recipe
from capgrade.pipelines.reproduce.runs import Folders, similarity_of
from capgrade.pipelines.reproduce.scored import Numbers, correlations, labels_of, metrics_of
from capgrade.pipelines.reproduce.settings import Settings, settings_of
from capgrade.pipelines.reproduce.table import Part, as_json, markdown
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest, write_json, write_manifest, write_text
from capgrade.schemas.inputs import given_digests
from capgrade.schemas.output import output_folder
from capgrade.trainer.evaluation.task import load_task

KIND = "reproduction"
JSON, MARKDOWN = "table.json", "table.md"
SPLIT = "test"


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
    settings: Settings,
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
    recipe: Recipe, chosen: Sequence[Row], captions: Captions, folder: Path, judgements: Path, settings: Settings
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
