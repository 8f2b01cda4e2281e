"""What a page is made of: sections of charts, pictures, tables, examples and words. The template draws each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar


@dataclass(frozen=True)
class Facts:
    """Numbers that stand for themselves, each under its name."""

    kind: ClassVar[str] = "facts"
    values: Mapping[str, str]


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    kind: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True)
class Glossary:
    """Words and what they mean."""

    kind: ClassVar[str] = "terms"
    title: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Missing:
    """What cannot be shown, why, and the command that changes it (none: nothing does)."""

    kind: ClassVar[str] = "missing"
    what: str
    command: str | None = None


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification, drawn in the page by its own script, and as files."""

    kind: ClassVar[str] = "chart"
    name: str  # of its files
    title: str
    alt: str
    spec: dict[str, Any]
    wide: bool = False


@dataclass(frozen=True)
class PagePicture:
    """Pixels: bytes of an image file, and what to say to those who do not see it."""

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    alt: str
    data: bytes
    suffix: str  # png, webp


@dataclass(frozen=True)
class Cell:
    """`value` is what a column is sorted by; `note` stands below, small."""

    text: str
    value: float | str
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class PageTable:
    """Rows that the reader can sort."""

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False  # long ones are closed at first, and can be filtered


@dataclass(frozen=True)
class ExampleItem:
    """A caption, an image, or both: what is asked, or what is found."""

    id: str
    text: str
    image: str | None  # data URI
    own: bool = False
    relevance: float | None = None
    link: str | None = None  # to the whole picture


@dataclass(frozen=True)
class ExampleRanking:
    """A query and what was found for it, best first."""

    query: ExampleItem
    found: Sequence[ExampleItem]
    wants: str  # images or captions
    run: str


@dataclass(frozen=True)
class Examples:
    """Queries with what was found for them."""

    kind: ClassVar[str] = "examples"
    measure: str
    rankings: Sequence[ExampleRanking]

    def by_query(self) -> list[list[ExampleRanking]]:
        """Rankings of one query that follow each other, which the page puts side by side."""
        return [list(some) for _, some in groupby(self.rankings, lambda one: (one.wants, one.query.id))]


Part = Facts | Note | Glossary | Missing | Chart | PagePicture | PageTable | Examples


@dataclass(frozen=True)
class PageSection:
    """A heading with its parts; `id` is its anchor."""

    id: str
    title: str
    intro: str
    parts: Sequence[Part]


def number(value: float, digits: int = 3) -> Cell:
    """A cell of a number; one that is not there sorts last."""
    return Cell("–", float("-inf")) if value != value else Cell(f"{value:.{digits}f}", value)


def count(value: int) -> Cell:
    """A cell of a whole number."""
    return Cell(f"{value:,}", value)


def percent(share: float) -> str:
    """A share as every page prints it: to one decimal, as Vega's format .1% does."""
    return f"{share:.1%}"


def text(value: str) -> Cell:
    """A cell of words."""
    return Cell(value, value)
