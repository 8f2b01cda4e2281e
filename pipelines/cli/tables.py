"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from capgrade.agreement.coefficients import COEFFICIENTS
from capgrade.comparison import Comparison, tested_rows
from capgrade.metrics.uncertainty import Interval, PairedTest
from capgrade.pipelines.show import Match
from capgrade.schemas.console import console, print_table
from capgrade.schemas.judges import CHOSEN, RANDOM
from capgrade.schemas.own_files import signed, starting
from capgrade.schemas.tables import ENDINGS, WRITERS

if TYPE_CHECKING:
    from capgrade.trainer.search.index import Hit


def print_agreement(result: dict[str, Any]) -> None:
    """Pearson, Spearman and Kendall of each measure, over all judged pairs and over other captions
    alone; below them, where pairs have several ratings, one rater against the others."""
    heads, rows = _agreement_rows(result, others := "other\ncaptions")
    also = ": of all pairs, and of other captions alone" if others in heads else ""
    print_table(f"Agreement with human judgements{also}", heads, rows)
    if judged := _judged_rows(result):
        pairs = ("all\npairs", "chosen\npairs", "random\npairs")
        heads = [
            "measure",
            *(f"tau-b, {scope}" for scope in pairs),
            "another\ngrade",
            "another\nverdict",
        ]
        print_table("Judges beside measures and people", heads, judged)
        note = (
            "another grade, another verdict: the share of pairs on which two prompts of a judge"
            " disagree"
        )
        console().print(note)
    halves = {
        name: row["spearman_bootstrap"]
        for name, row in result.items()
        if "spearman_bootstrap" in row
    }
    if halves:
        means = ", ".join(
            f"{name} {spread['mean']:.3f} ± {spread['sd']:.3f}" for name, spread in halves.items()
        )
        console().print(
            f"Spearman of CxC's protocol (a pair of each of half the images, 1,000 draws): {means}"
        )
    if "mixture" in result:
        weights = ", ".join(
            f"{name}: {weight:.3g}" for name, weight in result["mixture"]["weights"].items()
        )
        console().print(
            f"weights of the mixture, for measures.mixtures: {{{weights}}}",
            markup=False,
            soft_wrap=True,
        )


# How a file is recognised as a table of ours. Other people's LaTeX begins with a tabular too.
AGREEMENT_TEXTS = {
    ".md": starting(b"| measure | pearson "),
    ".tex": signed(rb"\begin{tabular}{l", "\\toprule\nmeasure & pearson "),
}


def agreement_text(result: dict[str, Any], suffix: str) -> str:
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


# How a file is recognised as a table of scores of ours.
SCORES_TEXTS = {
    ".md": starting(b"| score | "),
    ".tex": signed(rb"\begin{tabular}{l", "\\toprule\nscore & "),
}


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


def print_pointing(result: Mapping[str, Mapping[str, Any]]) -> None:
    """How often phrases point at the right region, by kind of object, beside chance."""
    columns = (
        "phrases about",
        "phrases",
        "centre in the box",
        "chance",
        "IoU at least 0.5",
        "chance",
    )
    shares = ("centre", "centre_chance", "iou", "iou_chance")
    rows = [
        [kind, f"{row['phrases']:,}", *(f"{row[name]:.1%}" for name in shares)]
        for kind, row in result.items()
    ]
    print_table("Pointing game", columns, rows)
