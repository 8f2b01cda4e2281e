"""Stage `reproduce`: from captions, regions and a recipe to the paper's table with our numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from capgrade.measures import choose
from capgrade.metrics import Collapse, human_lists
from capgrade.pipelines.agree import agree
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pretrained import load_weights
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import (
    MANIFEST,
    digest,
    found_digests,
    read_manifest,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.output import output_folder
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import tell
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task, load_task
from capgrade.trainer.fit.train import train
from capgrade.trainer.search.index import SIMILARITY, embed, input_digests
from capgrade.trainer.stages.embed import EMBED, EmbedParams
from capgrade.trainer.stages.evaluate import EvaluateParams
from research.reproduce.recipe import (
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
from research.reproduce.table import keep_rows, section_of, table_json, table_markdown

_Numbers = list[float | None]
# The lists of people's positives that a metric needs.
_LISTS = {"map@r": "eccv", "r_precision": "eccv", "eccv_recall": "eccv", "cxc_recall": "cxc"}
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
    """Train the runs of a table's rows, score them on the split, and write `out`/NAME/table.md and
    table.json; returns the latter's content. Recipes with one `out` share its runs and relevance,
    and finished runs are not trained again. With `rows` a finished table keeps its other rows.

    Raises InputError for an unknown recipe or row, an input that it needs, folders that do not fit
    together, and where a run, or with `rows` the table, is of other data or parameters.
    """
    recipe = load_recipe(name)
    settings = settings_of(recipe, params, sets, small)
    options = {
        "--regions": (regions, ("regions", "resnet152")),
        "--judgements": (judgements, ("judgements",)),
    }
    for option, (path, kinds) in options.items():
        need = next((need for need in recipe.needs if need in kinds), None)
        if need and path is None:
            raise InputError(f"this recipe needs {NEEDS[need]}", remedy=f"give {option}")
        if path is not None and need is None:
            raise InputError("this recipe reads none", file=path, remedy=f"leave {option} out")
    names = [row.row for row in recipe.rows]
    if unknown := sorted(set(rows) - set(names)):
        raise InputError(f"no row '{unknown[0]}'", remedy=choose_from(unknown[0], names))
    inputs = found_digests(captions=captions, regions=regions, judgements=judgements, params=params)
    used = {"recipe": name, "set": list(sets), "small": small, "split": split}
    earlier = _read_earlier(out / name, used, inputs, rows)
    chosen = [row for row in recipe.rows if not rows or row.row in rows]
    split_captions = read_captions(captions, split)
    reproduction = _Reproduction(
        recipe, settings, split_captions, captions, regions, judgements, out
    )
    reproduction.require(chosen)
    with output_folder(out / name, _KIND) as folder:
        compute = reproduction.score_runs if recipe.runs else reproduction.correlate_measures
        sections = compute(chosen)
        table = table_json(name, recipe, sections, reproduction.notes, small)
        keep_rows(table, earlier, [row.row for row in chosen])
        write_json(folder / JSON, table)
        write_text(folder / MARKDOWN, table_markdown(table))
        filled = [row for row in recipe.rows if row in chosen or earlier]
        runs = {run: reproduction.run(run) / MANIFEST for row in filled for run in row.runs}
        inputs |= {run: digest(path) for run, path in runs.items() if path.is_file()}
        write_manifest(folder, _KIND, params=used, inputs=inputs, rows={JSON: 0, MARKDOWN: 0})
    return table


@dataclass
class _Reproduction:
    """The inputs of a table, and what is computed from them. `missing` has what cannot be computed
    here, with the reason; `remarks` has notes on rows."""

    recipe: Recipe
    settings: RunSettings
    captions: Captions
    captions_dir: Path
    regions: Path | None
    judgements: Path | None
    out: Path
    missing: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    # By run and pooling, because sections and ensembles share runs.
    similarities: dict[tuple[str, str | None], Path] = field(default_factory=dict)

    def run(self, name: str) -> Path:
        return self.out / "runs" / name

    @property
    def notes(self) -> list[str]:
        return [
            *self.recipe.notes,
            *(f"{name} not computed: {reason}" for name, reason in self.missing.items()),
            *self.remarks,
        ]

    def require(self, chosen: Sequence[Row]) -> None:
        """Look for what the chosen rows need before anything is trained, and say what is missing.
        InputError for a text encoder that cannot be loaded and, without `small`, where no number
        can be computed."""
        sections = [
            section
            for section in self.recipe.sections
            if any(row in section.rows for row in chosen)
        ]
        needed = {
            _needs(column, row)
            for section in sections
            for column in section.parsed_columns
            for row in chosen
        }
        for name, try_need in {"spice": self._try_spice, "eccv": self._try_eccv}.items():
            if name not in needed:
                continue
            try:
                try_need()
            except InputError as error:
                remedy = f" ({error.remedy})" if error.remedy else ""
                self.missing[name] = f"{error.problem}{remedy}"
        if self.missing and needed <= self.missing.keys() and not self.settings.small:
            reason = next(iter(self.missing.values()))
            problem = f"no number of these rows can be computed: {reason}"
            raise InputError(problem, remedy="choose other rows, or another recipe")
        for run in dict.fromkeys(run for row in chosen for run in row.runs):
            if text_model := self.settings.runs[run].model.options.get("text_model"):
                load_weights("text encoder", text_model)
        for name, reason in self.missing.items():
            tell(f"{name} is not computed: {reason}")

    def _try_spice(self) -> None:
        choose(["spice"], self.settings.measures)["spice"].fit(self.captions)

    def _try_eccv(self) -> None:
        human_lists("eccv", self.captions.image_ids, self.captions.caption_ids)

    def score_runs(self, chosen: Sequence[Row]) -> list[dict[str, Any]]:
        """Numbers of the chosen rows that have runs. Raises what `train` and `embed` raise."""
        labels, sections, images = self._write_relevance(), [], self.captions.n_images
        for section in self.recipe.sections:
            fold = None if self.settings.small else section.fold
            ours: list[_Numbers] = []
            for row in section.rows:
                if not row.runs or row not in chosen:
                    ours.append([None] * len(row.published))
                    continue
                files = [self._compute_similarity(run, row.pooling) for run in row.runs]
                task, _ = load_task(self.captions_dir, similarity=files, split=self.captions.split)
                numbers, states = metrics_of(task, section, labels, self.captions, fold)
                ours.append(numbers)
                self.remarks += [
                    f"{row.row}, {direction}: {state}" for direction, state in states.items()
                ]
            protocol = f"mean of folds of {fold:,} images" if fold else f"all {images:,} images"
            sections.append(section_of(section, protocol, ours))
        return sections

    def _write_relevance(self) -> dict[str, Path]:
        """The files of the recipe's measures on the captions' split. SPICE may be missing, because
        it needs Java and jars that nobody may ship."""
        files = {}
        for name in self.recipe.relevance:
            if name not in self.missing:
                folder = self.out / "relevance" / name
                params = RelevanceParams(split=self.captions.split, measures=(name,))
                relevance(self.captions_dir, folder, params, self.settings.measures)
                files[name] = folder / f"{name}.arrow"
        return files

    def _compute_similarity(self, name: str, pooling: str | None) -> Path:
        """similarity.npy of a run on the captions' split. A finished run is not trained again, a
        stopped one goes on, and an index of the same model, captions and regions is kept."""
        assert self.regions is not None
        run, split = self.run(name), self.captions.split
        index = run / (f"index-{pooling}" if pooling else "index")
        if (name, pooling) not in self.similarities:
            tell(f"run {name}")
            train(
                self.captions_dir,
                run,
                self.settings.runs[name],
                self.settings.measures,
                regions=self.regions,
            )
            read = {"regions": digest(self.regions / MANIFEST)}
            inputs = input_digests(run, self.captions, read)
            try:
                index_inputs = read_manifest(index, EMBED.name)["inputs"]
            except InputError:  # There is no index, or it was stopped.
                index_inputs = None
            if index_inputs != inputs:
                params = EmbedParams(split=split, pooling=pooling)
                embed(self.captions_dir, index, params, run=run, regions=self.regions)
            self.similarities[name, pooling] = index / SIMILARITY
        return self.similarities[name, pooling]

    def correlate_measures(self, chosen: Sequence[Row]) -> list[dict[str, Any]]:
        """Correlations of the chosen rows' measures with people's judgements."""
        assert self.judgements is not None
        correlations: dict[Any, Any] = {None: None}
        for name in dict.fromkeys(row.measure for row in chosen if row.measure):
            if name not in self.missing:
                asked = AgreeParams(judgements=str(self.judgements), split=self.captions.split)
                # `agree` always adds "binary", which is no measure that can be asked for.
                names = () if name == "binary" else (name,)
                asked = asked.model_copy(update={"measures": names})
                measures = self.settings.measures
                found = agree(self.captions_dir, None, asked, measures=measures)
                correlations |= found.measures
        sections = []
        for section in self.recipe.sections:
            ours: list[_Numbers] = []
            for row in section.rows:
                of_row = correlations.get(row.measure) if row in chosen else None
                numbers: _Numbers = []
                for column in section.parsed_columns:
                    value = of_row[column.metric].get(column.scope or "all") if of_row else None
                    numbers.append(None if value is None else column.times * value)
                ours.append(numbers)
            sections.append(section_of(section, self.judgements.name, ours))
        return sections


def metrics_of(
    task: Task, section: Section, labels: Mapping[str, Path], captions: Captions, fold: int | None
) -> tuple[_Numbers, dict[str, Collapse]]:
    """A number for each column, None where its labels or lists are missing; and by direction
    whether scores have collapsed, where lambda@K is a column."""
    columns, results = section.parsed_columns, {}
    human = task.positives if fold is None else {}  # People's lists are of the whole gallery.
    for name in {column.relevance for column in columns if column.relevance in (None, *labels)}:
        computable = [
            column
            for column in columns
            if column.relevance == name and _lists_of(column) in (None, *human)
        ]
        if not computable:
            continue
        matrices = {}
        if name is not None:
            stored = read_relevance(labels[name])
            stored.require(captions)
            matrices[name] = task.part(stored.matrix())
        metrics = {metric for column in computable for metric in column.metrics}
        params = EvaluateParams(samples=0, metric=tuple(sorted(metrics)))
        task_of_name = replace(task, relevance=matrices, positives=human)
        results[name] = score(task_of_name, params, fold=fold).json()
    states = results.get(None, {}).get("collapse", {})
    numbers = [_number_of(column, results.get(column.relevance)) for column in columns]
    return numbers, {direction: Collapse(**state) for direction, state in states.items()}


def _needs(column: Column, row: Row) -> str | None:
    """The measure or the lists of people that a number needs and that may be missing."""
    return _lists_of(column) or column.relevance or row.measure


def _read_earlier(
    folder: Path, used: Mapping[str, Any], inputs: Mapping[str, str], rows: Sequence[str]
) -> dict[str, Any]:
    """The finished table, whose rows other than `rows` are kept; empty where all are asked for.
    InputError for a table of other data or parameters, whose rows cannot be compared with ours."""
    if not rows or not (folder / MANIFEST).is_file():
        return {}
    manifest = read_manifest(folder, _KIND)
    params = {key: value for key, value in manifest["params"].items() if key != "rows"}
    if params != used or any(manifest["inputs"].get(name) != inputs.get(name) for name in _READ):
        problem = "a table of other data or parameters, of which --row would keep the other rows"
        remedy = "leave --row out to make it anew, or give another --out"
        raise InputError(problem, file=folder, remedy=remedy)
    return dict(read_json(folder / JSON))


def _lists_of(column: Column) -> str | None:
    return _LISTS.get(column.metric) or _LISTS.get(column.metric.split("@")[0])


def _number_of(column: Column, result: Mapping[str, Any] | None) -> float | None:
    if result is None:
        return None
    if column.metric in SUM_METRICS:
        values = [result[name].get(metric) for name in ("i2t", "t2i") for metric in column.metrics]
        return None if None in values else 100 * sum(values)
    value = result[column.direction or "i2t"].get(column.metric)
    return None if value is None else column.times * value
