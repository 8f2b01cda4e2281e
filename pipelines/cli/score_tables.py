"""Scores of captions as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from capgrade.metrics.uncertainty import Interval, PairedTest
from capgrade.schemas.console import console


def scores_table(found: Mapping[str, Interval], images: int, known: int) -> None:
    """Corpus scores with their bootstrap intervals."""
    table = Table(title=f"Scores of {images:,} captions" + (f" of {known:,} images" if known != images else ""))
    table.add_column("measure")
    table.add_column("score", justify="right")
    table.add_column(f"{next(iter(found.values())).level:.0%} interval", justify="right")
    for name, one in found.items():
        table.add_row(name, f"{one.value:.4f}", f"{one.low:.4f} .. {one.high:.4f}")
    console().print(table)


def compared_table(found: Mapping[str, PairedTest], first: Path, second: Path, level: float) -> None:
    """Difference of two systems on each measure, with its interval and p-value."""
    table = Table(title=f"{escape(first.name)} less {escape(second.name)}, the same images")
    for column in ("measure", "difference", f"{level:.0%} interval", "p-value"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for name, test in found.items():
        table.add_row(name, f"{test.difference:+.4f}", f"{test.low:+.4f} .. {test.high:+.4f}", f"{test.p_value:.4f}")
    console().print(table)


def bench_score_table(result: Mapping[str, Mapping[str, Any]]) -> None:
    """Seconds of each measure beside pycocoevalcap's."""
    table = Table(title="Seconds for the same captions, and the largest difference of any value")
    for column in ("measure", "capgrade", "pycocoevalcap", "ratio", "its JVM apart", "ratio", "largest difference"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for name, row in result.items():
        difference = f"{row['max_abs_diff']:.1e}" if "max_abs_diff" in row else ""
        table.add_row(
            name, f"{row['seconds']:.3f}", f"{row['peer_seconds']:.3f}", f"{row['ratio']:,.1f}",
            f"{row['peer_seconds_started']:.3f}", f"{row['ratio_started']:,.1f}", difference,
        )  # fmt: skip
    console().print(table)
