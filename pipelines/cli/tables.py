"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from capgrade.comparison import Comparison, tested_rows
from capgrade.metrics.uncertainty import Interval, PairedTest
from capgrade.pipelines.show import Match
from capgrade.schemas.console import print_table
from capgrade.schemas.tables import ENDINGS, WRITERS

if TYPE_CHECKING:
    from capgrade.trainer.search.index import Hit


def print_matches(text: str, matches: Sequence[Match]) -> None:
    """A caption over the images it is relevant to."""
    columns = ("image", *matches[0].relevance, "one of the image's own captions")
    rows = [
        [
            _mark_own(match.image_id, match.original),
            *(f"{value:.2f}" for value in match.relevance.values()),
            match.caption,
        ]
        for match in matches
    ]
    beside: dict[str, Any] = {
        "title_justify": "left",
        "caption": "* the image the caption was written for",
    }
    print_table(f"“{text}”", columns, rows, texts=(0, len(columns) - 1), **beside)


def print_hits(query: str, hits: Sequence[Hit]) -> None:
    rows = [
        [_mark_own(hit.id, hit.own), f"{hit.similarity:.3f}", f"{hit.relevance:.2f}", hit.text]
        for hit in hits
    ]
    beside: dict[str, Any] = {"title_justify": "left", "caption": "* belongs to the query"}
    print_table(
        f"“{query}”", ("", "similarity", "relevance", "caption"), rows, texts=(0, 3), **beside
    )


def _mark_own(name: str, own: bool) -> str:
    return f"{name} *" if own else name


def print_comparison(comparison: Comparison) -> None:
    """Evaluations side by side, with tests of the first against each other one."""
    first, *others = comparison.labels
    against = "" if len(others) == 1 else f"; corrected p: {first} against each other run"
    title = (
        f"Paired {comparison.method} tests{against}\npercent; tau and ranks as they are;"
        f" corrected for {comparison.tested} tests (Holm)"
    )
    print_table(title, *comparison.cells(), texts=(0, 1), title_justify="left")


def scores_rows(
    intervals: Mapping[str, Mapping[str, Interval]],
    tests: Mapping[str, Mapping[str, PairedTest]],
    level: float,
) -> tuple[list[str], list[list[str]]]:
    """Heads and a row for each measure: intervals of one system, or values of several with tests of
    the first against each other one. `intervals` and `tests` are by system and measure."""
    first = next(iter(intervals.values()))
    if not tests:
        rows = [
            [name, f"{interval.value:.4f}", f"{interval.low:.4f} .. {interval.high:.4f}"]
            for name, interval in first.items()
        ]
        return ["score", "value", f"{level:.0%} interval"], rows
    cells = [
        (
            [f"{by_measure[name].value:.4f}" for by_measure in intervals.values()],
            [by_measure[name] for by_measure in tests.values()],
            "{:+.4f}".format,
        )
        for name in first
    ]
    heads, values = tested_rows(list(intervals), cells, level, of="captions")
    return ["score", *heads], [[name, *row] for name, row in zip(first, values, strict=True)]


def scores_text(heads: Sequence[str], rows: Sequence[Sequence[str]], suffix: str) -> str:
    """The same as Markdown (`.md`) or LaTeX (`.tex`)."""
    return WRITERS[ENDINGS[suffix]](heads, rows)


def print_scores(
    heads: Sequence[str], rows: Sequence[Sequence[str]], images: int, known: int
) -> None:
    title = f"Scores of {images:,} captions" + (f" of {known:,} images" if known != images else "")
    several = (
        f"; corrected p: {heads[1]} against each other system"
        if len(heads) > 3 and "p" not in heads
        else ""
    )
    print_table(title + several, heads, rows)
