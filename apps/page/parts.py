"""What a page is made of: sections of charts, pictures, tables, examples and words. The template
draws each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capgrade.metrics.formats import format_value, scale


@dataclass(frozen=True)
class Headline:
    """A page's answer: a figure, drawn large, and the sentence that it begins."""

    figure: str
    text: str


@dataclass(frozen=True)
class Answers:
    """A page's answers to several questions, each as a headline, beside one another."""

    values: Sequence[tuple[str, str]]  # a figure, and the sentence that it begins


@dataclass(frozen=True)
class Facts:
    """Figures as text, each under its name."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Note:
    """A paragraph, and a command line to go on with."""

    text: str
    command: str | None = None
    small: bool = False


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
    """`value` is what a column is sorted by; `note` stands below, small, after the number of the
    `group` that the row is of in this column, 0 of none. `link` is the address that the text
    leads to, which has to begin with http: or https:."""

    text: str
    value: float | str
    best: bool = False
    note: str = ""
    group: int = 0
    link: str = ""


Value = Cell | str | int | float


def as_cell(value: Value, digits: int = 3) -> Cell:
    """Words as they are, whole numbers with commas, others with `digits` decimals; NaN is a dash
    and sorts last."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value, value)
    if value != value:
        return Cell("–", float("-inf"))
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}", value)


def mark_best(
    values: Sequence[float],
    intervals: Sequence[Sequence[float] | None],
    text: Callable[[float], str],
    best_of: Callable[..., float] | None = max,
) -> list[Cell]:
    """A cell of each value, with its interval below. The best is bold if no other value lies within
    its interval, or, without an interval, if no other prints the same. `best_of` picks the best of
    the values that are not NaN; None where no order makes one better."""
    finite = [value for value in values if value == value]
    best = best_of(finite) if best_of and finite else float("nan")
    cells = []
    for value, interval in zip(values, intervals, strict=True):
        low, high = interval or (value, value)
        others = [other for other in finite if other != value]
        stands_out = (
            value == best
            and len(finite) - len(others) == 1
            and not any(low <= other <= high for other in others)
        )
        stands_out = stands_out and text(value) not in [text(other) for other in others]
        note = "–".join(text(end).removesuffix("%") for end in interval) if interval else ""
        sort_key = value if value == value else float("-inf")
        cells.append(Cell(text(value), sort_key, stands_out and len(finite) > 1, note))
    return cells


def format_percent(share: float | None) -> str:
    """A share as every page prints it: to one decimal, as Vega's format .1% does; a dash for
    None."""
    return "–" if share is None else f"{share:.1%}"


def format_metric(name: str, value: float) -> str:
    """A metric's value with its unit."""
    return (
        "–" if value != value else f"{format_value(name, value)}{'%' if scale(name) == 100 else ''}"
    )


def share_cell(value: float) -> Value:
    """A cell of a share."""
    return value if value != value else Cell(format_percent(value), value)


@dataclass(frozen=True)
class PageTable:
    """Rows that the reader can sort, and that come sorted `by` a column, the highest first.
    `groups` are heads over the columns after the first: text, number of columns. Where cells have
    a group, a line parts the groups of the column that rows are sorted by."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    folded: bool = False  # long ones are closed at first, and can be filtered
    groups: Sequence[tuple[str, int]] = ()
    by: int | None = None


@dataclass(frozen=True)
class ExampleItem:
    """A caption with the image that it was written for, or an image with a caption: what is asked,
    or what is found. The picture is that of the image."""

    id: str
    text: str
    image: str | None = None  # data URI
    own: bool = False
    relevance: float | None = None
    link: str | None = None  # to the whole picture
    image_id: str = ""  # of a caption


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
class ShownImage:
    """An image with its own captions."""

    id: str
    captions: Sequence[str]
    image: str | None = None  # data URI
    link: str | None = None  # to the whole picture


@dataclass(frozen=True)
class LikelyPair:
    """An image, and a caption of another image that probably fits it, with that image."""

    image: ShownImage
    other: ShownImage
    caption_id: str
    caption: str
    p: Mapping[str, float]  # measure -> probability that a person accepts the pair
    times: int = 1  # captions that say the same


@dataclass(frozen=True)
class LikelyPairs:
    """Pairs that readers filter by P of a measure, `most` at a time."""

    pairs: Sequence[LikelyPair]
    measures: Sequence[str]
    least: Sequence[float]  # values of P to choose from
    most: int = 20


Part = Headline | Answers | Facts | Note | Chart | PagePicture | PageTable | Examples | LikelyPairs


@dataclass(frozen=True)
class PageSection:
    """A heading with its parts; `id` is its anchor."""

    id: str
    title: str
    intro: str
    parts: Sequence[Part]
    open: bool = False
