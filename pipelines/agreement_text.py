"""Figures of agreement as tables: for a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from capgrade.agreement.coefficients import COEFFICIENTS
from capgrade.schemas.console import console, print_table
from capgrade.schemas.judges import CHOSEN, RANDOM
from capgrade.schemas.tables import ENDINGS, WRITERS


def agreement_text(result: dict[str, Any]) -> str:
    """Pearson, Spearman and Kendall of each measure, over all judged pairs and over other captions
    alone; below them, where pairs have several ratings, one rater against the others. For a
    terminal."""
    on = console()
    with on.capture() as captured:
        _print(result, on)
    return captured.get().rstrip("\n")


def _print(result: dict[str, Any], on: Console) -> None:
    heads, rows = _agreement_rows(result, others := "other\ncaptions")
    also = ": of all pairs, and of other captions alone" if others in heads else ""
    print_table(f"Agreement with human judgements{also}", heads, rows, on=on)
    if judged := _judged_rows(result):
        pairs = ("all\npairs", "chosen\npairs", "random\npairs")
        heads = [
            "measure",
            *(f"tau-b, {scope}" for scope in pairs),
            "another\ngrade",
            "another\nverdict",
        ]
        print_table("Judges beside measures and people", heads, judged, on=on)
        note = (
            "another grade, another verdict: the share of pairs on which two prompts of a judge"
            " disagree"
        )
        on.print(note)
    halves = {
        name: row["spearman_bootstrap"]
        for name, row in result.items()
        if "spearman_bootstrap" in row
    }
    if halves:
        means = ", ".join(
            f"{name} {spread['mean']:.3f} ± {spread['sd']:.3f}" for name, spread in halves.items()
        )
        on.print(
            f"Spearman of CxC's protocol (a pair of each of half the images, 1,000 draws): {means}"
        )
    if "mixture" in result:
        weights = ", ".join(
            f"{name}: {weight:.3g}" for name, weight in result["mixture"]["weights"].items()
        )
        on.print(
            f"weights of the mixture, for measures.mixtures: {{{weights}}}",
            markup=False,
            soft_wrap=True,
        )


def agreement_table(result: dict[str, Any], suffix: str) -> str:
    """The same as Markdown (`.md`) or LaTeX (`.tex`)."""
    return WRITERS[ENDINGS[suffix]](*_agreement_rows(result, "other captions"))


def _agreement_rows(result: dict[str, Any], others: str) -> tuple[list[str], list[list[str]]]:
    """Heads and a row for each measure. `others` is the head of columns over other captions, which
    are left out where there are none."""
    scopes = {"all": None, "non_original": others}
    if not any("non_original" in row[c] for row in result.values() for c in COEFFICIENTS):
        del scopes["non_original"]
    heads = [
        "measure",
        *(label or c.replace("_", " ") for c in COEFFICIENTS for label in scopes.values()),
    ]
    cells = {
        name: [row[c].get(scope) for c in COEFFICIENTS for scope in scopes]
        for name, row in result.items()
    }
    return heads, [
        [name, *("–" if cell is None else f"{cell:.3f}" for cell in row)]
        for name, row in cells.items()
    ]


def _judged_rows(result: dict[str, Any]) -> list[list[str]]:
    """A row for each measure: Kendall's tau-b over all, chosen and random pairs, and the shares of
    a judge's pairs on which two prompts disagree in grade or verdict. No rows where neither chosen
    pairs nor such shares are known."""
    rows = []
    for name, row in result.items():
        taus = [row["kendall"].get(scope) for scope in ("all", CHOSEN, RANDOM)]
        shares = [row.get("contradictions", {}).get(kind) for kind in ("grade", "verdict")]
        cells = ["–" if tau is None else f"{tau:.3f}" for tau in taus]
        rows.append([name, *cells, *("–" if share is None else f"{share:.1%}" for share in shares)])
    return rows if any(cell != "–" for row in rows for cell in row[2:]) else []
