"""Recipes, the folders of research/recipes: a table of a paper in two files. `params.yaml` has its
runs as presets, for `capgrade train --params` too; `published.yaml` has the paper's numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from capgrade.measures import MeasuresParams
from capgrade.params import load_params
from capgrade.schemas.block import ParamsBlock, validated
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.params import read_yaml
from capgrade.trainer.stages.train import TrainParams

_FOLDER = Path(__file__).parents[1] / "recipes"
_COLUMN = re.compile(
    r"(?:(?P<direction>i2t|t2i) )?(?P<metric>[a-z_0-9]+(?:@r)?)(?:@(?P<ks>[\d,]+))?(?:"
    r" (?P<scope>all|non_original))?"
    r"(?: x(?P<times>\d+))?(?: \[(?P<relevance>\w+)\])?"
)
# Sums over both directions at 1, 5 and 10, in percent.
SUM_METRICS = {"rsum": "recall", "nsum": "ncs", "nsum_other": "ncs_other"}
Need = Literal["captions", "regions", "resnet152", "spice", "judgements", "bert", "eccv", "people"]
# Errors describe each need by these words.
NEEDS: dict[str, str] = {
    "captions": "captions of `capgrade captions`",
    "regions": "regions of 36 boxes per picture, 2,048 numbers each, by the bottom-up detector",
    "resnet152": "one feature of 2,048 numbers per picture by a ResNet-152, as a regions folder",
    "spice": "Java and the jars of SPICE; without them its columns stay empty",
    "judgements": "cxc_sits_test.csv of Crisscrossed Captions",
    "bert": "bert-base-uncased, from the hub or a folder",
    "eccv": "the package eccv-caption",
    "people": "people who judge",
}


# How our network of this name differs from the paper's, where the rows cannot be compared for it.
DISTANT: dict[str, str] = {
    "single_stream": (
        "not the paper's network: five residual blocks on 32 x 32 pixels that are drawn from region"
        " features, learned from scratch; the paper's is an InceptionResNet-V1 on 256 x 256 pixels"
        " of the picture, with Word2Vec"
    ),
}
SMALL = Path(__file__).with_name("small.yaml")


class Column(ParamsBlock):
    """A column of numbers: a metric, its direction and relevance, and a factor."""

    direction: str | None = None  # i2t or t2i; None for a sum of both, or a correlation
    metric: str  # recall@1, asp, rsum, pearson
    scope: str | None = None  # of a correlation: all, or non_original
    times: float = 100  # the factor that makes a value the paper's number
    relevance: str | None = None

    @property
    def name(self) -> str:
        relevance = f"[{self.relevance}]" if self.relevance else None
        words = (self.direction, self.metric, self.scope, relevance)
        return " ".join(word for word in words if word)

    @property
    def metrics(self) -> list[str]:
        """The metrics of an evaluation that the number is made of."""
        base = SUM_METRICS.get(self.metric)
        return [f"{base}@{k}" for k in (1, 5, 10)] if base else [self.metric]


def _parse_columns(text: str) -> list[Column]:
    """The columns that a text such as "i2t recall@1,5,10" or "t2i ndcg_exp@25 x1 [spice]" stands
    for."""
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"'{text}' is not a column, such as 'i2t recall@1,5,10' or 't2i ndcg@25 x1 [spice]'"
        )
    shared: dict[str, Any] = {name: match[name] for name in ("direction", "scope", "relevance")}
    shared["times"] = 1.0 if match["metric"] in SUM_METRICS else float(match["times"] or 100)
    ks = [f"@{k}" for k in match["ks"].split(",")] if match["ks"] else [""]
    return [Column(metric=match["metric"] + k, **shared) for k in ks]


class Row(ParamsBlock):
    """A row of a table: of runs, whose similarities are averaged, or of a measure, or of neither,
    where only the paper has numbers."""

    row: str
    runs: tuple[str, ...] = ()
    pooling: str | None = None  # the alignment that scores a TERN or TERAN run, instead of its own
    measure: str | None = None
    published: tuple[float | None, ...]


class Section(ParamsBlock):
    """Rows under the same columns, scored alike."""

    title: str
    fold: int | None = None  # images of a fold, over which numbers are averaged
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    rows: tuple[Row, ...]

    @property
    def parsed_columns(self) -> list[Column]:
        return [column for text in self.columns for column in _parse_columns(text)]

    @model_validator(mode="after")
    def _every_row_is_full(self) -> Section:
        for row in self.rows:
            if len(row.published) != len(self.parsed_columns):
                count = len(self.parsed_columns)
                raise ValueError(
                    f"row '{row.row}' has {len(row.published)} numbers for {count} columns"
                )
        return self


class Recipe(ParamsBlock):
    """A table of a paper, or the part of it that one data set makes."""

    paper: str
    table: str
    title: str
    data: str
    needs: tuple[Need, ...]
    verified: Literal["here", "scenes", "not run"]
    notes: tuple[str, ...] = ()
    sections: tuple[Section, ...]
    params: Path | None = None
    """the params.yaml whose presets are its runs; None for a table of measures"""

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for row in section.rows]

    @property
    def runs(self) -> list[str]:
        """The presets that its rows are of."""
        return [*dict.fromkeys(run for row in self.rows for run in row.runs)]

    @property
    def relevance(self) -> list[str]:
        """The measures that its rows are scored by."""
        columns = [column for section in self.sections for column in section.parsed_columns]
        names = (column.relevance for column in columns if column.relevance is not None)
        return [*dict.fromkeys(names)]

    @property
    def distance(self) -> str | None:
        """How the networks of its runs differ from the paper's; None where they do not."""
        models = (_train_params(self.params, run).model.name for run in self.runs)
        return "; ".join(dict.fromkeys(DISTANT[name] for name in models if name in DISTANT)) or None


@cache
def recipe_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/published.yaml")))


@cache
def load_recipe(name: str) -> Recipe:
    """A recipe by its name. InputError for an unknown one, with the nearest names, and for a file
    that is not a recipe."""
    if name not in recipe_names():
        remedy = choose_from(name, recipe_names(), "python -m research.recipes")
        raise InputError(f"no recipe '{name}'", remedy=remedy)
    path, params = (_FOLDER / name / file for file in ("published.yaml", "params.yaml"))
    tree = {**read_yaml(path), "params": params if params.is_file() else None}
    return validated(Recipe, tree, file=path)


def _train_params(params: Path | None, run: str, sets: Sequence[str] = ()) -> TrainParams:
    """The block `train` of a run, a preset of a params.yaml, changed by `sets`."""
    return load_params(params, [*sets, f"train.preset={run}"]).train


def list_recipes() -> dict[str, dict[str, Any]]:
    """Every recipe: its paper and table, what it needs, what was verified, and how its network
    differs from the paper's (null if it does not)."""
    recipes = {name: load_recipe(name) for name in recipe_names()}
    shown = {"paper", "table", "needs", "verified"}
    return {
        name: {**recipe.model_dump(include=shown, mode="json"), "network": recipe.distance}
        for name, recipe in recipes.items()
    }


@dataclass(frozen=True)
class RunSettings:
    """The parameters of a reproduction."""

    runs: Mapping[str, TrainParams]  # of the recipe, by name
    measures: MeasuresParams
    small: bool


def settings_of(
    recipe: Recipe, params: Path | None, sets: Sequence[str], small: bool
) -> RunSettings:
    """The recipe's parameters, changed by `sets`: `presets.RUN.KEY=VALUE` for one run,
    `train.KEY=VALUE` for every one, `measures.KEY=VALUE` for measures, upon those of `params`.
    `small` takes sizes and steps that only show that everything runs.

    InputError for another key, a run that the recipe does not have, and a value that does not fit.
    """
    for text in sets:
        block, _, rest = text.partition("=")[0].partition(".")
        if block not in ("train", "presets", "measures"):
            problem = f"--set {text}: a recipe's other parameters are the paper's"
            remedy = "train.KEY=VALUE, presets.RUN.KEY=VALUE or measures.KEY=VALUE"
            raise InputError(problem, remedy=remedy)
        if block == "presets" and (run := rest.partition(".")[0]) not in recipe.runs:
            remedy = choose_from(run, recipe.runs)
            raise InputError(f"this recipe has no run '{run}'", remedy=remedy)
    of_measures = [text for text in sets if text.startswith("measures.")]
    of_runs = [text for text in sets if text not in of_measures]
    runs = {}
    for run in recipe.runs:
        sizes = _small_sizes(run, _train_params(recipe.params, run).model.name) if small else []
        runs[run] = _train_params(recipe.params, run, [*sizes, *of_runs])
    return RunSettings(runs, load_params(params, of_measures).measures, small)


def _small_sizes(run: str, model: str) -> list[str]:
    """What makes a run small, as `--set` takes it."""
    small = read_yaml(SMALL)
    values = {f"model.options.{key}": value for key, value in small["models"][model].items()}
    values |= small["train"]
    return [f"presets.{run}.{key}={json.dumps(value)}" for key, value in values.items()]
