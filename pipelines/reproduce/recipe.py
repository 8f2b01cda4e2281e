"""Recipes, a YAML file each in recipes/: what a table of a paper is made of, its numbers,
parameters of its runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from capgrade.measures.params import MeasuresParams
from capgrade.params import load_params
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import (
    ParamsBlock,
    TrainParams,
    merged,
    override,
    validated,
    with_preset,
)

_FOLDER = Path(__file__).parents[2] / "recipes"
_COLUMN = re.compile(
    r"(?:(?P<way>i2t|t2i) )?(?P<metric>[a-z_0-9]+(?:@r)?)(?:@(?P<ks>[\d,]+))?(?:"
    r" (?P<scope>all|non_original))?"
    r"(?: x(?P<times>\d+))?(?: \[(?P<relevance>\w+)\])?"
)
# of both directions at 1, 5 and 10, in percent
SUM_METRICS = {
    "rsum": "recall",
    "nsum": "ncs",
    "nsum_other": "ncs_other",
}
Need = Literal["captions", "regions", "resnet152", "spice", "judgements", "bert", "eccv", "people"]
# What each need is, for errors and `reproduce --list`.
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


# How far a network of ours is from its paper's, where that decides what a row can tell.
DISTANT: dict[str, str] = {
    "single_stream": (
        "not the paper's network: five residual blocks on 32 x 32 pixels that are drawn from region"
        " features, learned from scratch; the paper's is an InceptionResNet-V1 on 256 x 256 pixels"
        " of the picture, with Word2Vec"
    ),
}
SMALL = Path(__file__).with_name("small.yaml")


class Column(ParamsBlock):
    """A number of a table: which metric, of which direction and relevance, and what it is
    multiplied by."""

    way: str | None = None  # i2t or t2i; None: a sum of both, or a correlation
    metric: str  # recall@1, asp, rsum, pearson
    scope: str | None = None  # of a correlation: all, or non_original
    times: float = 100
    relevance: str | None = None

    @property
    def name(self) -> str:
        words = (
            self.way,
            self.metric,
            self.scope,
            f"[{self.relevance}]" if self.relevance else None,
        )
        return " ".join(word for word in words if word)

    @property
    def metrics(self) -> list[str]:
        """What an evaluation computes for it."""
        base = SUM_METRICS.get(self.metric)
        return [f"{base}@{k}" for k in (1, 5, 10)] if base else [self.metric]


def columns_of(text: str) -> list[Column]:
    """The columns that a text such as "i2t recall@1,5,10" or "t2i ndcg_exp@25 x1 [spice]" stands
    for."""
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise ValueError(
            f"'{text}' is not a column, such as 'i2t recall@1,5,10' or 't2i ndcg@25 x1 [spice]'"
        )
    shared: dict[str, Any] = {name: found[name] for name in ("way", "scope", "relevance")}
    shared["times"] = 1.0 if found["metric"] in SUM_METRICS else float(found["times"] or 100)
    ks = [f"@{k}" for k in found["ks"].split(",")] if found["ks"] else [""]
    return [Column(metric=found["metric"] + k, **shared) for k in ks]


class Row(ParamsBlock):
    """A line of a table: the runs whose similarities are averaged, or a measure, or neither where
    it is not ours."""

    row: str
    runs: tuple[str, ...] = ()
    pooling: str | None = None  # the alignment that scores a TERN or TERAN run, instead of its own
    measure: str | None = None
    published: tuple[float | None, ...]


class Section(ParamsBlock):
    """Rows under the same columns, scored alike."""

    title: str
    fold: int | None = None  # the mean of folds of so many images
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    rows: tuple[Row, ...]

    @property
    def parsed(self) -> list[Column]:
        return [column for text in self.columns for column in columns_of(text)]

    @model_validator(mode="after")
    def _every_row_is_full(self) -> Section:
        for row in self.rows:
            if len(row.published) != len(self.parsed):
                raise ValueError(
                    f"row '{row.row}' has {len(row.published)} numbers for {len(self.parsed)}"
                    " columns"
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
    relevance: tuple[str, ...] = ()  # measures that rows are scored by
    presets: dict[str, dict[str, Any]] = {}  # upon those of schemas/presets.yaml
    runs: dict[str, dict[str, Any]] = {}  # name -> a block `train` of params.yaml
    sections: tuple[Section, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for row in section.rows]

    @property
    def distance(self) -> str | None:
        """How far the networks of its runs are from the paper's; None where they are its."""
        models = [
            with_preset(block, self.presets).get("model") or {} for block in self.runs.values()
        ]
        found = dict.fromkeys(
            DISTANT[model["name"]] for model in models if model.get("name") in DISTANT
        )
        return "; ".join(found) or None

    @model_validator(mode="after")
    def _all_is_known(self) -> Recipe:
        for row in self.rows:
            if unknown := sorted(set(row.runs) - self.runs.keys()):
                raise ValueError(
                    f"row '{row.row}' is of a run '{unknown[0]}' that the recipe does not have"
                )
        asked = {column.relevance for section in self.sections for column in section.parsed} - {
            None
        }
        if missing := sorted(asked - set(self.relevance)):  # type: ignore[type-var]
            raise ValueError(
                f"a column is of '{missing[0]}', which is not among the recipe's relevance"
            )
        return self


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def load_recipe(name: str) -> Recipe:
    """InputError for an unknown recipe, with the nearest names, and for a file that is none."""
    if name not in names():
        near = [known for known in names() if known.startswith(name)]
        near = near or get_close_matches(name, names(), n=4, cutoff=0.3)
        remedy = (
            f"near it: {', '.join(near)}; all: capgrade reproduce --list"
            if near
            else "capgrade reproduce --list"
        )
        raise InputError(f"no recipe '{name}'", remedy=remedy)
    path = _FOLDER / f"{name}.yaml"
    return validated(Recipe, yaml.safe_load(path.read_text(encoding="utf-8")), file=path)


def listing() -> dict[str, dict[str, Any]]:
    """Every recipe: its paper and table, what it needs, what was verified, and how far its network
    is from the paper's (null: it is the paper's)."""
    recipes = {name: load_recipe(name) for name in names()}
    shown = {"paper", "table", "needs", "verified"}
    return {
        name: {**one.model_dump(include=shown, mode="json"), "network": one.distance}
        for name, one in recipes.items()
    }


@dataclass(frozen=True)
class RunSettings:
    """What a reproduction computes with."""

    runs: Mapping[str, TrainParams]  # of the recipe, by name
    measures: MeasuresParams
    small: bool


def settings_of(
    recipe: Recipe, params: Path | None, sets: Sequence[str], small: bool
) -> RunSettings:
    """`train.KEY=VALUE` changes every run, `runs.NAME.KEY=VALUE` one; `measures.KEY=VALUE` as
    anywhere. `small`: sizes and steps to see that everything runs.

    InputError for another key, a run that the recipe does not have, and a value that does not fit.
    """
    above: dict[str, Any] = {}
    for one in sets:
        if one.partition(".")[0] not in ("train", "runs", "measures"):
            remedy = "train.KEY=VALUE, runs.NAME.KEY=VALUE or measures.KEY=VALUE"
            raise InputError(
                f"--set {one}: a recipe's other parameters are the paper's", remedy=remedy
            )
        override(above, one)
    of_runs = above.get("runs", {})
    if unknown := sorted(of_runs.keys() - recipe.runs.keys()):
        raise InputError(
            f"this recipe has no run '{unknown[0]}'",
            remedy=f"choose from: {', '.join(recipe.runs)}",
        )
    if values := [name for name, block in of_runs.items() if not isinstance(block, dict)]:
        raise InputError(f"run '{values[0]}' is {of_runs[values[0]]}", remedy="runs.NAME.KEY=VALUE")
    less = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    runs = {}
    for name, block in recipe.runs.items():
        whole = with_preset(block, recipe.presets)
        if small:
            options = less["models"].get((whole.get("model") or {}).get("name", "vse"), {})
            whole = merged(merged(whole, less["train"]), {"model": {"options": options}})
        runs[name] = validated(
            TrainParams, merged(merged(whole, above.get("train", {})), of_runs.get(name, {}))
        )
    measures = load_params(params, [one for one in sets if one.startswith("measures.")]).measures
    return RunSettings(runs, measures, small)
