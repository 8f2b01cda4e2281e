"""Stage: captions, regions and a recipe in; the paper's table with our numbers out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from capgrade.measures import choose
from capgrade.metrics.eccv import human_lists
from capgrade.metrics.semantic_map import Collapse
from capgrade.pipelines.agree import agree
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.reproduce.recipe import (
    NEEDS,
    SUM_METRICS,
    Column,
    Recipe,
    Row,
    RunSettings,
    Section,
    load_recipe,
    settings_of,
)
from capgrade.pipelines.reproduce.table import as_json, keep_rows, markdown, section_of
from capgrade.pretrained import load_weights
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    digest,
    read_manifest,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.inputs import found_digests
from capgrade.schemas.lines import read_json
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import EvaluateParams, RelevanceParams
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import tell
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task, load_task
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.fit.train import train
from capgrade.trainer.search.index import INDEX, SIMILARITY, embed, input_digests

_Numbers = list[float | None]
# of people
_LISTS = {
    "map@r": "eccv",
    "r_precision": "eccv",
    "eccv_recall": "eccv",
    "cxc_recall": "cxc",
}
_KIND = "reproduction"
JSON, MARKDOWN = "table.json", "table.md"
_READ = ("captions", "regions", "judgements", "params")
_SPLIT = "test"


def reproduce(
    name: str,
    captions: Path,
    regions: Path | None,
    out: Path,
    *,
    judgements: Path | None = None,
    split: str = _SPLIT,
    rows: Sequence[str] = (),
    params: Path | None = None,
    sets: Sequence[str] = (),
    small: bool = False,
) -> dict[str, Any]:
    """Train what the table's rows need, score them on the split, and write `out`/NAME/table.md and
    table.json, whose content is returned. Runs lie in `out`/runs, labels in `out`/relevance:
    recipes with one `out` share them, and a run that has ended is not trained again. `rows` are
    those to reproduce (none: all); a finished table keeps its others.

    Raises InputError for an unknown recipe or row, for what it needs and was not given, for folders
    that do not fit together, and where a run's folder, or with `rows` a finished table, is of other
    data or parameters.
    """
    recipe = load_recipe(name)
    settings = settings_of(recipe, params, sets, small)
    read = {
        "--regions": (regions, ("regions", "resnet152")),
        "--judgements": (judgements, ("judgements",)),
    }
    for option, (path, kinds) in read.items():
        need = next((need for need in recipe.needs if need in kinds), None)
        if need and path is None:
            raise InputError(f"this recipe needs {NEEDS[need]}", remedy=f"give {option}")
        if path is not None and need is None:
            raise InputError("this recipe reads none", file=path, remedy=f"leave {option} out")
    known = {row.row: row for row in recipe.rows}
    if unknown := sorted(set(rows) - known.keys()):
        raise InputError(f"no row '{unknown[0]}'", remedy=f"choose from: {', '.join(known)}")
    inputs = found_digests(captions=captions, regions=regions, judgements=judgements, params=params)
    asked = {"recipe": name, "set": list(sets), "small": small, "split": split}
    kept = _earlier(out / name, asked, inputs, rows)
    chosen = [row for row in recipe.rows if not rows or row.row in rows]
    given = _Inputs(
        recipe, settings, read_captions(captions, split), captions, regions, judgements, out
    )
    given.require(chosen)
    with output_folder(out / name, _KIND) as folder:
        parts = given.by_runs(chosen) if recipe.runs else given.by_people(chosen)
        table = as_json(name, recipe, parts, given.notes, small)
        keep_rows(table, kept, [row.row for row in chosen])
        write_json(folder / JSON, table)
        write_text(folder / MARKDOWN, markdown(table))
        rows_there = [row for row in recipe.rows if row in chosen or kept]
        made = {run: given.run(run) / MANIFEST for row in rows_there for run in row.runs}
        inputs |= {run: digest(path) for run, path in made.items() if path.is_file()}
        write_manifest(folder, _KIND, params=asked, inputs=inputs, rows={JSON: 0, MARKDOWN: 0})
    return table


@dataclass
class _Inputs:
    """What a table is made of; `missing` says what cannot be computed here and why, `seen` what was
    seen of rows."""

    recipe: Recipe
    settings: RunSettings
    captions: Captions
    captions_dir: Path
    regions: Path | None
    judgements: Path | None
    out: Path
    missing: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    # sections and ensembles share runs
    similarities: dict[tuple[str, str | None], Path] = field(default_factory=dict)

    def run(self, name: str) -> Path:
        return self.out / "runs" / name

    @property
    def notes(self) -> list[str]:
        return [
            *self.recipe.notes,
            *(f"{name} not computed: {why}" for name, why in self.missing.items()),
            *self.seen,
        ]

    def require(self, chosen: Sequence[Row]) -> None:
        """Look for what the chosen rows need, before anything is trained, and say what is not
        there. InputError for a text encoder that cannot be loaded, and where no number is left (but
        with `small`)."""
        sections = [
            section
            for section in self.recipe.sections
            if any(row in section.rows for row in chosen)
        ]
        needed = {
            _needs(column, row)
            for section in sections
            for column in section.parsed
            for row in chosen
        }
        for name, find in {"spice": self._spice, "eccv": self._eccv}.items():
            try:
                find() if name in needed else None
            except InputError as error:
                self.missing[name] = (
                    f"{error.problem}{f' ({error.remedy})' if error.remedy else ''}"
                )
        if self.missing and needed <= self.missing.keys() and not self.settings.small:
            problem = (
                f"no number of these rows can be computed: {next(iter(self.missing.values()))}"
            )
            raise InputError(problem, remedy="choose other rows, or another recipe")
        for run in dict.fromkeys(run for row in chosen for run in row.runs):
            if text_model := self.settings.runs[run].model.options.get("text_model"):
                load_weights("text encoder", text_model)
        for name, why in self.missing.items():
            tell(f"{name} is not computed: {why}")

    def _spice(self) -> None:
        choose(["spice"], self.settings.measures)["spice"].fit(self.captions)

    def _eccv(self) -> None:
        human_lists("eccv", self.captions.image_ids, self.captions.caption_ids)

    def by_runs(self, chosen: Sequence[Row]) -> list[dict[str, Any]]:
        """Numbers of the chosen rows that have runs. Raises what `train` and `embed` raise."""
        labels, parts, images = self._labels(), [], self.captions.n_images
        for section in self.recipe.sections:
            fold = None if self.settings.small else section.fold
            ours: list[_Numbers] = []
            for row in section.rows:
                if not row.runs or row not in chosen:
                    ours.append([None] * len(row.published))
                    continue
                files = [self._similarity(run, row.pooling) for run in row.runs]
                task, _ = load_task(self.captions_dir, similarity=files, split=self.captions.split)
                numbers, states = metrics_of(task, section, labels, self.captions, fold)
                ours.append(numbers)
                self.seen += [f"{row.row}, {way}: {state}" for way, state in states.items()]
            protocol = f"mean of folds of {fold:,} images" if fold else f"all {images:,} images"
            parts.append(section_of(section, protocol, ours))
        return parts

    def _labels(self) -> dict[str, Path]:
        """The relevance of the recipe's measures on the captions' split. Only SPICE may be
        missing: it needs Java and jars that nobody may ship."""
        found = {}
        for name in self.recipe.relevance:
            if name not in self.missing:
                folder = self.out / "relevance" / name
                params = RelevanceParams(split=self.captions.split, measures=(name,))
                relevance(self.captions_dir, folder, params, self.settings.measures)
                found[name] = folder / f"{name}.arrow"
        return found

    def _similarity(self, name: str, pooling: str | None) -> Path:
        """similarity.npy of a run on the captions' split. A finished run is left as it is, a
        stopped one goes on; an index of this model, captions and regions is not made again."""
        assert self.regions is not None
        run, split = self.run(name), self.captions.split
        index = run / (f"index-{pooling}" if pooling else "index")
        if (name, pooling) not in self.similarities:
            tell(f"run {name}")
            train(
                Data(self.captions_dir, self.regions),
                run,
                self.settings.runs[name],
                self.settings.measures,
            )
            wanted = input_digests(run, self.captions, {"regions": digest(self.regions / MANIFEST)})
            try:
                made = read_manifest(index, INDEX)["inputs"]
            except InputError:  # not there, or stopped
                made = None
            if made != wanted:
                embed(run, self.captions_dir, self.regions, split, index, pooling)
            self.similarities[name, pooling] = index / SIMILARITY
        return self.similarities[name, pooling]

    def by_people(self, chosen: Sequence[Row]) -> list[dict[str, Any]]:
        """Correlations of the chosen rows' measures with people's judgements."""
        assert self.judgements is not None
        found: dict[Any, Any] = {None: None}
        for name in dict.fromkeys(row.measure for row in chosen if row.measure):
            if name not in self.missing:
                names = [] if name == "binary" else [name]  # which comes with any, and with none
                found |= agree(
                    self.captions_dir,
                    self.judgements,
                    names,
                    self.settings.measures,
                    self.captions.split,
                )
        parts = []
        for section in self.recipe.sections:
            ours: list[_Numbers] = []
            for row in section.rows:
                of = found.get(row.measure) if row in chosen else None
                values = [
                    (one, of[one.metric].get(one.scope or "all") if of else None)
                    for one in section.parsed
                ]
                ours.append([None if value is None else one.times * value for one, value in values])
            parts.append(section_of(section, self.judgements.name, ours))
        return parts


def metrics_of(
    task: Task, section: Section, labels: Mapping[str, Path], captions: Captions, fold: int | None
) -> tuple[_Numbers, dict[str, Collapse]]:
    """A number for each column, None where its labels or lists are not there; beside lambda@K,
    whether each direction has collapsed."""
    columns, found = section.parsed, {}
    human = task.positives if fold is None else {}  # lists of people are of the whole gallery
    for name in {column.relevance for column in columns if column.relevance in (None, *labels)}:
        asked = [
            column
            for column in columns
            if column.relevance == name and _lists(column) in (None, *human)
        ]
        if asked:
            known = {}
            if name is not None:
                stored = read_relevance(labels[name])
                stored.require(captions)
                known[name] = task.part(stored.matrix())
            plain = EvaluateParams(
                samples=0, metric=tuple(sorted({one for column in asked for one in column.metrics}))
            )
            found[name] = score(
                replace(task, relevance=known, positives=human), plain, fold=fold
            ).json()
    states = found.get(None, {}).get("collapse", {})
    numbers = [_number(column, found.get(column.relevance)) for column in columns]
    return numbers, {way: Collapse(**state) for way, state in states.items()}


def _needs(column: Column, row: Row) -> str | None:
    """What a number needs that may not be there: a measure, or lists of people."""
    return _lists(column) or column.relevance or row.measure


def _earlier(
    folder: Path, asked: Mapping[str, Any], inputs: Mapping[str, str], rows: Sequence[str]
) -> dict[str, Any]:
    """The finished table whose other rows stay; none where all are asked for. InputError for one of
    other data or parameters, beside whose rows no new one may stand."""
    if not rows or not (folder / MANIFEST).is_file():
        return {}
    before = read_manifest(folder, _KIND)
    made = {key: value for key, value in before["params"].items() if key != "rows"}
    if made != asked or any(before["inputs"].get(name) != inputs.get(name) for name in _READ):
        problem = "a table of other data or parameters, of which --row would keep the other rows"
        raise InputError(
            problem, file=folder, remedy="leave --row out to make it anew, or give another --out"
        )
    return dict(read_json(folder / JSON))


def _lists(column: Column) -> str | None:
    return _LISTS.get(column.metric) or _LISTS.get(column.metric.split("@")[0])


def _number(column: Column, found: Mapping[str, Any] | None) -> float | None:
    if found is None:
        return None
    if column.metric in SUM_METRICS:
        values = [found[way].get(name) for way in ("i2t", "t2i") for name in column.metrics]
        return None if None in values else 100 * sum(values)
    value = found[column.way or "i2t"].get(column.metric)
    return None if value is None else column.times * value
