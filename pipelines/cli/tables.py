"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from capgrade.metrics.uncertainty import Interval, PairedTest
from capgrade.pipelines.show import Match
from capgrade.schemas.console import console, print_table
from capgrade.schemas.judges import CHOSEN, RANDOM
from capgrade.schemas.output import signed, starting

if TYPE_CHECKING:
    from capgrade.trainer.evaluation.compare import Comparison
    from capgrade.trainer.search.index import Hit

COEFFICIENTS = ("pearson", "spearman", "kendall", "kendall_c")


def agreement_table(result: dict[str, Any]) -> None:
    """Pearson, Spearman and Kendall of each measure, over all judged pairs and over other captions
    alone; below them, where pairs have several ratings, one rater against the others."""
    heads, rows = _agreement_rows(result, others := "other\ncaptions")
    also = ": of all pairs, and of other captions alone" if others in heads else ""
    print_table(f"Agreement with human judgements{also}", heads, rows)
    if judged := _judged_rows(result):
        pairs = ("all\npairs", "chosen\npairs", "random\npairs")
        heads = ["measure", *(f"tau-b, {of}" for of in pairs), "another\ngrade", "another\nverdict"]
        print_table("Judges beside measures and people", heads, judged)
        said = (
            "another grade, another verdict: the share of pairs on which two prompts of a judge"
            " disagree"
        )
        console().print(said)
    halves = {
        name: row["spearman_bootstrap"]
        for name, row in result.items()
        if "spearman_bootstrap" in row
    }
    if halves:
        each = ", ".join(
            f"{name} {one['mean']:.3f} ± {one['sd']:.3f}" for name, one in halves.items()
        )
        console().print(
            f"Spearman of CxC's protocol (a pair of each of half the images, 1,000 draws): {each}"
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


# How a table in a file is known as ours: others' begin with a tabular too.
AGREEMENT_TEXTS = {
    ".md": starting(b"| measure | pearson "),
    ".tex": signed(rb"\begin{tabular}{l", "\\toprule\nmeasure & pearson "),
}


def agreement_text(result: dict[str, Any], suffix: str) -> str:
    """The same as Markdown (`.md`) or LaTeX (`.tex`)."""
    from capgrade.trainer.evaluation.tables import latex, markdown

    return (latex if suffix == ".tex" else markdown)(*_agreement_rows(result, "other captions"))


def _agreement_rows(result: dict[str, Any], others: str) -> tuple[list[str], list[list[str]]]:
    """The heads, of which `others` stands over what is of other captions, where there are any, and
    a row a measure."""
    scopes = {"all": None, "non_original": others}
    if not any("non_original" in row[c] for row in result.values() for c in COEFFICIENTS):
        del scopes["non_original"]
    heads = [
        "measure",
        *(of or c.replace("_", " ") for c in COEFFICIENTS for of in scopes.values()),
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
    """Of each measure Kendall's tau-b with all, chosen and random pairs, and the shares of a
    judge's pairs on which two prompts have another grade or verdict. No row where neither chosen
    pairs nor such a share is known."""
    rows = []
    for name, row in result.items():
        taus = [row["kendall"].get(scope) for scope in ("all", CHOSEN, RANDOM)]
        shares = [row.get("contradictions", {}).get(kind) for kind in ("grade", "verdict")]
        cells = ["–" if tau is None else f"{tau:.3f}" for tau in taus]
        rows.append([name, *cells, *("–" if share is None else f"{share:.1%}" for share in shares)])
    return rows if any(cell != "–" for row in rows for cell in row[2:]) else []


def matches_table(text: str, matches: Sequence[Match]) -> None:
    """A caption over the images it is relevant to."""
    columns = ("image", *matches[0].relevance, "one of the image's own captions")
    rows = [
        [
            _marked(one.image_id, one.original),
            *(f"{value:.2f}" for value in one.relevance.values()),
            one.caption,
        ]
        for one in matches
    ]
    beside = {"title_justify": "left", "caption": "* the image the caption was written for"}
    print_table(f"“{text}”", columns, rows, texts=(0, len(columns) - 1), **beside)


def hits_table(query: str, hits: Sequence[Hit]) -> None:
    rows = [
        [_marked(hit.id, hit.own), f"{hit.similarity:.3f}", f"{hit.relevance:.2f}", hit.text]
        for hit in hits
    ]
    beside = {"title_justify": "left", "caption": "* belongs to the query"}
    print_table(
        f"“{query}”", ("", "similarity", "relevance", "caption"), rows, texts=(0, 3), **beside
    )


def _marked(name: str, own: bool) -> str:
    return f"{name} *" if own else name


def compared_table(labels: Sequence[str], found: Sequence[Comparison], method: str) -> None:
    """Evaluations side by side, with tests of the first against each other one."""
    from capgrade.trainer.evaluation.tables import compared_rows

    against = "" if len(labels) == 2 else f"; p: {labels[0]} against each other run"
    title = f"Paired {method} tests{against}\npercent; tau and ranks as they are"
    print_table(title, *compared_rows(labels, found), texts=(0, 1), title_justify="left")


# How a table of scores in a file is known as ours.
SCORES_TEXTS = {
    ".md": starting(b"| score | "),
    ".tex": signed(rb"\begin{tabular}{l", "\\toprule\nscore & "),
}


def scores_rows(
    intervals: Mapping[str, Mapping[str, Interval]],
    tests: Mapping[str, Mapping[str, PairedTest]],
    level: float,
) -> tuple[list[str], list[list[str]]]:
    """Heads and a row per measure: of one system with its intervals, of several with tests of the
    first against each other one; by system and measure."""
    from capgrade.trainer.evaluation.tables import tested_rows

    first = next(iter(intervals.values()))
    if not tests:
        rows = [
            [name, f"{one.value:.4f}", f"{one.low:.4f} .. {one.high:.4f}"]
            for name, one in first.items()
        ]
        return ["score", "value", f"{level:.0%} interval"], rows
    cells = [
        (
            [f"{of[name].value:.4f}" for of in intervals.values()],
            [of[name] for of in tests.values()],
            "{:+.4f}".format,
        )
        for name in first
    ]
    heads, values = tested_rows(list(intervals), cells, level, of="captions")
    return ["score", *heads], [[name, *row] for name, row in zip(first, values, strict=True)]


def scores_text(heads: Sequence[str], rows: Sequence[Sequence[str]], suffix: str) -> str:
    """The same as Markdown (`.md`) or LaTeX (`.tex`)."""
    from capgrade.trainer.evaluation.tables import latex, markdown

    return (latex if suffix == ".tex" else markdown)(heads, rows)


def scores_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], images: int, known: int
) -> None:
    title = f"Scores of {images:,} captions" + (f" of {known:,} images" if known != images else "")
    several = (
        f"; p: {heads[1]} against each other system" if len(heads) > 3 and "p" not in heads else ""
    )
    print_table(title + several, heads, rows)


def pointing_table(result: Mapping[str, Mapping[str, Any]]) -> None:
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


def review_table(result: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
    """A review's agreement, as `explorer.judgements.agreement_rows` says it."""
    title = f"Review, protocol {result['protocol']}, {result['items']:,} pairs"
    print_table(title, ("", ""), rows, title_justify="left")
