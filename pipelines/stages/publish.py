"""Stage `publish`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WrapValidator, model_validator

from capgrade.schemas.block import Finite, ParamsBlock
from capgrade.schemas.errors import nearest
from capgrade.schemas.licences import OTHER, SPDX, UNKNOWN_LICENCE
from capgrade.schemas.natures import How, PicturesAt, Split, WhereOrName
from capgrade.schemas.stage import Reads, Stage

_BY_P = re.compile(r"P(0?\.\d*[1-9]\d*|1(\.0*)?)")


def _or_p(value: Any, number: Callable[[Any], Any]) -> Any:
    """P0.5 stays as it is; all else is a number."""
    return value if isinstance(value, str) and _BY_P.fullmatch(value) else number(value)


# A value, or the probability that people accept a pair, such as P0.5. A union of types would have
# its arm in the key that an error names.
Grade = Annotated[Finite, WrapValidator(_or_p), PlainSerializer(lambda value: value)]
LanguageTag = Annotated[str, Field(pattern=r"^[A-Za-z]{2,}(-[A-Za-z0-9]+)*$")]


class PublishParams(ParamsBlock):
    """`capgrade publish`: what the dataset card says that the data cannot, and which columns the
    dataset has."""

    name: str | None = None
    """of the dataset; null: the name of the folder that is written"""
    version: Annotated[str, Field(pattern=r"^\w(\.?[\w-])*$", max_length=64)] = "1.0.0"
    """the tag it is published under"""
    license: str | None = None
    """required: as the hub calls it, such as cc-by-4.0"""
    license_name: str | None = None
    """of a licence the hub has no identifier for, `license: other`"""
    license_link: str | None = None
    """of such a licence"""
    language: LanguageTag | tuple[LanguageTag, ...] | None = None
    """of the captions, as the hub names it, or several: en,de; None: en where they are English,
    else required"""
    splits: dict[str, str] = {}
    """names of splits as they are published: all=test; required of captions that have no split"""
    captions: Literal["texts", "ids"] = "texts"
    """what is published of captions; ids: with digests of texts that may not be copied"""
    images: PicturesAt | None = None
    """pictures to publish, too: from every source that `capgrade regions` takes"""
    image_column: str | None = None
    """of pictures in Parquet files or a dataset that has several such columns"""
    image_id: str | None = None
    """the column of ids there; None: image_id, else the picture's path or row"""
    unreadable: Literal["fail", "skip"] = "fail"
    """pictures that are missing or damaged; skip: left out and counted"""
    dry_run: How[bool] = False
    """only print files, sizes, card and what changes"""
    description: str = ""
    """a paragraph of the card"""
    authors: tuple[str, ...] = ()
    """who made it"""
    date: Annotated[str, BeforeValidator(str), Field(pattern=r"^\d{4}-\d\d-\d\d$")] | None = None
    """when it was made, YYYY-MM-DD"""
    citation: str = ""
    """how to cite it"""
    repository: str | None = None
    """USER/NAME on the hub, for the examples of the card"""
    left_out: bool = True
    """own pairs also without the caption among its references, where the shards have that"""
    calibration: WhereOrName | None = None
    """what values mean to people, as columns: a file of `agree --calibrate`, or crisscrossed"""
    layout: Literal["pairs", "mteb"] = "pairs"
    """what is written; mteb: a retrieval benchmark, with grades of one measure"""
    measure: str | None = None
    """of mteb's grades; None: the only one"""
    grades: dict[str, Grade] = {}
    """of mteb: names of rising thresholds; how many a value reaches is its grade. P0.5: the value
    from which people accept a pair with this probability, by the calibration"""
    judgements: WhereOrName | None = None
    """of mteb, in place of a measure's values: scores of pairs, as `agree` reads them, or a folder
    of `regrade`"""
    split: Split | None = None
    """of mteb's judgements: the captions that they are of; None: the only one"""

    @property
    def languages(self) -> tuple[str, ...]:
        """Those given."""
        return (self.language,) if isinstance(self.language, str) else self.language or ()

    @property
    def by_p(self) -> dict[str, float]:
        """The thresholds that are given as probabilities."""
        given: dict[str, Any] = dict(self.grades)
        return {name: float(edge[1:]) for name, edge in given.items() if isinstance(edge, str)}

    @model_validator(mode="after")
    def _a_licence_the_hub_knows(self) -> PublishParams:
        if self.license not in (None, OTHER, UNKNOWN_LICENCE, *SPDX):
            close = nearest(self.license, [OTHER, *SPDX], cutoff=0.4)
            raise ValueError(
                f"licence '{self.license}' is unknown to the hub; near it:"
                f" {', '.join([*close, OTHER])}"
            )
        if self.license == OTHER and not (self.license_name and self.license_link):
            raise ValueError("licence 'other' needs publish.license_name and publish.license_link")
        return self

    @model_validator(mode="after")
    def _grades_that_rise(self) -> PublishParams:
        edges: list[Any] = list(self.grades.values())
        if self.by_p:
            if len(self.by_p) < len(edges):
                raise ValueError(f"publish.grades mixes values and probabilities: {edges}")
            edges = list(self.by_p.values())
        if edges != sorted(set(edges)):
            raise ValueError(f"the thresholds of publish.grades do not rise: {edges}")
        return self


def _line(done: Any, params: PublishParams) -> str:
    return done.text() if params.dry_run else _rows_line(done)


def _rows_line(manifest: Mapping[str, Any]) -> str:
    """How many rows each table has."""
    rows = {file: entry["rows"] for file, entry in manifest["files"].items() if entry["rows"]}
    return ", ".join(f"{file} {count:,}" for file, count in rows.items())


PUBLISH = Stage(
    name="publish",
    about="""Write a Hugging Face dataset folder with its card, ready to be pushed.

`capgrade publish push` uploads it, `capgrade publish check` checks a folder or a repository. With
--layout mteb folders of --relevance are labels, as those of --shards; or --judgements are.""",
    params=PublishParams,
    reads={
        "captions": Reads("captions"),
        "shards": Reads("shards", needed=False, several=True),
        "relevance": Reads("relevance", needed=False, several=True),
        "agreement": Reads("agree", needed=False, file=True, at="agree/agreement.json"),
    },
    function="capgrade.pipelines.publish.folder:publish",
    line=_line,
    example="--captions captions --shards shards --license cc-by-4.0 --out dataset",
    modules=("datasets",),
    place="dataset",
    told=(
        "name",
        "version",
        "license",
        "language",
        "images",
        "calibration",
        "layout",
        "judgements",
        "dry_run",
    ),
)
