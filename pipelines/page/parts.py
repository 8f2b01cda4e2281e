"""What a page is made of: sections of charts, pictures, tables, examples and words. The template
draws each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Headline:
    """A page's answer: a figure, drawn large, and the sentence that it begins."""

    figure: str
    text: str


@dataclass(frozen=True)
class Facts:
    """Numbers that stand for themselves, each under its name."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Note:
    """A paragraph, and a command line to go on with."""

    text: str
    command: str | None = None


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification, drawn in the page by its own script, and as files."""

    name: str  # of its files
    title: str
    alt: str
    spec: dict[str, Any]
    wide: bool = False


@dataclass(frozen=True)
class PagePicture:
    """Pixels: bytes of an image file, and what to say to those who do not see it."""

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


Value = Cell | str | int | float


def cell(value: Value, digits: int = 3) -> Cell:
    """Words as they are, whole numbers with commas, others with so many digits; NaN is a dash and
    sorts last."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value, value)
    if value != value:
        return Cell("–", float("-inf"))
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}", value)


def with_best(
    values: Sequence[float],
    intervals: Sequence[Sequence[float] | None],
    text: Callable[[float], str],
    best_of: Callable[..., float] | None = max,
) -> list[Cell]:
    """A cell of each value, its interval below it. The best (None: none is) is bold if no other
    value is within its interval; without one, if no other prints the same."""
    known = [value for value in values if value == value]
    best = best_of(known) if best_of and known else float("nan")
    cells = []
    for value, between in zip(values, intervals, strict=True):
        low, high = between or (value, value)
        others = [one for one in known if one != value]
        alone = (
            value == best
            and len(known) - len(others) == 1
            and not any(low <= one <= high for one in others)
        )
        alone = alone and text(value) not in [text(one) for one in others]
        note = "–".join(text(end).removesuffix("%") for end in between) if between else ""
        sorted_by = value if value == value else float("-inf")
        cells.append(Cell(text(value), sorted_by, alone and len(known) > 1, note))
    return cells


def percent(share: float) -> str:
    """A share as every page prints it: to one decimal, as Vega's format .1% does."""
    return f"{share:.1%}"


def share(value: float) -> Value:
    """A cell of a share."""
    return value if value != value else Cell(percent(value), value)


@dataclass(frozen=True)
class PageTable:
    """Rows that the reader can sort. `groups` are heads over the columns after the first: text,
    number of columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    folded: bool = False  # long ones are closed at first, and can be filtered
    groups: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ExampleItem:
    """A caption, an image, or both: what is asked, or what is found."""

    id: str
    text: str
    image: str | None = None  # data URI
    own: bool = False
    relevance: float | None = None
    link: str | None = None  # to the whole picture


@dataclass(frozen=True)
class Example:
    """A query and its answers by each run, the best first."""

    query: ExampleItem
    wants: str  # images or captions
    answers: Mapping[str, Sequence[ExampleItem]]


@dataclass(frozen=True)
class Examples:
    """Queries with what was found for them."""

    measure: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Fit:
    """A caption that probably fits another image: P that a person accepts it, by measure; the
    image's own captions; how many captions say the same; `of`, the id of the image that the caption
    was written for, and the caption's."""

    image: ExampleItem
    caption: str
    own: Sequence[str]
    p: Mapping[str, float]
    times: int = 1
    of: str = ""
    caption_id: str = ""


@dataclass(frozen=True)
class Fits:
    """Pairs that readers filter by P of a measure, `most` at a time."""

    fits: Sequence[Fit]
    measures: Sequence[str]
    least: Sequence[float]  # values of P to choose from
    most: int = 20


Part = Headline | Facts | Note | Chart | PagePicture | PageTable | Examples | Fits


@dataclass(frozen=True)
class PageSection:
    """A heading with its parts; `id` is its anchor."""

    id: str
    title: str
    intro: str
    parts: Sequence[Part]
    open: bool = False
