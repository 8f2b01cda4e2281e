"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from capgrade.metrics.uncertainty import PairedTest
from capgrade.pipelines.show import Match
from capgrade.schemas.console import console

if TYPE_CHECKING:
    from capgrade.trainer.search.index import Hit


COEFFICIENTS = ("pearson", "spearman", "kendall", "kendall_c")


def agreement_table(result: dict[str, Any]) -> None:
    """Pearson, Spearman and Kendall of each measure, over all judged pairs and the non-original ones; below them, where
    pairs have several ratings, one rater against the others."""
    table = Table(title="Agreement with human judgements")
    table.add_column("measure", no_wrap=True)
    for coefficient in COEFFICIENTS:
        table.add_column(coefficient.replace("_", " "), justify="right")
        table.add_column("non-own", justify="right")
    for name, row in result.items():
        cells = (row[c].get(scope) for c in COEFFICIENTS for scope in ("all", "non_original"))
        table.add_row(name, *("–" if cell is None else f"{cell:.3f}" for cell in cells))
    console().print(table)
    if "mixture" in result:
        weights = ", ".join(f"{name}: {weight:.3g}" for name, weight in result["mixture"]["weights"].items())
        console().print(f"weights of the mixture, for measures.mixtures: {{{weights}}}")


def bench_table(result: dict[str, Any]) -> None:
    """Speed of each measure beside its peer's."""
    table = Table(title="Image-caption pairs per second")
    for column in ("measure", "capgrade", "peer", "peer's", "ratio", "largest difference"):
        table.add_column(column, justify="left" if column in ("measure", "peer") else "right")
    for name, row in result.items():
        table.add_row(
            name, f"{row['pairs_per_s']:,.0f}", row["peer"], f"{row['peer_pairs_per_s']:,.0f}",
            f"{row['ratio']:,.2f}", f"{row['max_abs_diff']:.1e}",
        )  # fmt: skip
    console().print(table)


def matches_table(text: str, found: Sequence[Match]) -> None:
    """A caption over the images it is relevant to."""
    table = Table(title=f"“{escape(text)}”", title_justify="left", caption="* the image the caption was written for")
    table.add_column("image")
    for name in found[0].relevance:
        table.add_column(name, justify="right")
    table.add_column("one of the image's own captions")
    for match in found:
        values = (f"{value:.2f}" for value in match.relevance.values())
        table.add_row(escape(match.image_id) + (" *" if match.original else ""), *values, escape(match.caption))
    console().print(table)


def hits_table(query: str, found: Sequence[Hit]) -> None:
    """What a trained model ranks first for a caption or an image."""
    table = Table(title=f"“{escape(query)}”", title_justify="left", caption="* belongs to the query")
    for column in ("", "similarity", "relevance", "caption"):
        table.add_column(column, justify="right" if column in ("similarity", "relevance") else "left")
    for hit in found:
        mark = " *" if hit.own else ""
        table.add_row(escape(hit.id) + mark, f"{hit.similarity:.3f}", f"{hit.relevance:.2f}", escape(hit.text))
    console().print(table)


def comparison_table(found: Mapping[str, PairedTest]) -> None:
    """Difference of two systems on each metric, its 95 % interval and p-value."""
    table = Table(title="First less second, over the same queries")
    for column in ("metric", "difference", "95 % interval", "p", "queries"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, test in found.items():
        interval = f"{test.low:+.4f} .. {test.high:+.4f}"
        table.add_row(escape(name), f"{test.difference:+.4f}", interval, f"{test.p_value:.4f}", f"{test.queries:,}")
    console().print(table)


def pointing_table(found: Mapping[str, Mapping[str, Any]]) -> None:
    """How often phrases point at the right region, by kind of object, beside chance."""
    table = Table(title="Pointing game")
    table.add_column("phrases about")
    for column in ("phrases", "centre in the box", "chance", "IoU at least 0.5", "chance"):
        table.add_column(column, justify="right")
    for kind, row in found.items():
        shares = (f"{row[name]:.1%}" for name in ("centre", "centre_chance", "iou", "iou_chance"))
        table.add_row(escape(kind), f"{row['phrases']:,}", *shares)
    console().print(table)


def review_table(found: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
    """A review's agreement, as `explorer.judgements.agreement_rows` says it."""
    table = Table(title=f"Review, protocol {found['protocol']}, {found['items']:,} pairs", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in rows:
        table.add_row(escape(name), value)
    console().print(table)
