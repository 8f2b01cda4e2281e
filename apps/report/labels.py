"""Sections about captions and labels: the corpus, how a measure values own and other captions, what
it mines."""

import math
from typing import Any

import numpy as np
import pyarrow.compute as pc

from capgrade.apps.page.charts import (
    channel,
    make_chart,
    make_layer,
    make_share_bars,
    share_channel,
)
from capgrade.apps.page.parts import (
    Chart,
    Facts,
    Headline,
    Note,
    PageSection,
    PageTable,
    Part,
    as_cell,
    format_percent,
    share_cell,
)
from capgrade.apps.report.data import (
    CAPTIONS_KIND,
    EVALUATION,
    METRICS,
    RELEVANCE,
    SHARDS,
    ReportData,
)
from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.metrics.eccv import are_coco_ids
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.lines import read_json
from capgrade.schemas.own_pairs import distribution

_LONGEST = 40  # words; longer captions are counted as captions of this length
RIVALS = (0, 1, 2, 6, 21, 101)  # first numbers of rivals in the bars of the chart
AUDIT = "audit --captions {captions} --relevance {relevance} --out {audit.html}"


def headline_parts(data: ReportData) -> list[Part]:
    """The share of captions that have another image which fits at least as well: by the truth of
    scenes, or by people where they judged enough captions, else by the measure that is nearest to
    people. And a chart of the numbers of such images."""
    captions, truth, judged = data.captions, data.truth, data.judged_rivals
    counted = f"captions of {captions.n_images:,} images in split {captions.split}"
    by_measure, share_by_measure = None, math.nan
    if data.has(RELEVANCE):
        by_measure = data.own_and_other[data.measure]
        share_by_measure = by_measure.share_with_rival
    rivals, by = (None, "") if by_measure is None else (by_measure.rivals, data.measure)
    if truth is not None and len(truth.rivals):
        rivals, by = truth.rivals, "the truth of the scenes"
        share, text = truth.share_with_rival, f"{_FITS} their own, by {by}."
    elif judged is not None and len(judged) >= _LEAST_JUDGED:
        share = float(judged.mean())
        text = (
            f"of the {len(judged):,} captions that people judged with their own image and with"
            " another one have such another image that people score at least as high."
        )
    elif not math.isnan(share_by_measure):
        share, text = share_by_measure, f"{_FITS} their own, by the measure {by}."
    elif by_measure is not None:  # no image has a second caption
        text = f"{counted}, graded by the measure {by}."
        return [Headline(f"{captions.n_captions:,}", text)]
    else:
        return [Headline(f"{captions.n_captions:,}", f"{counted}.")]
    parts: list[Part] = [Headline(_rounded(share), text)]
    if rivals is not None and len(rivals):
        parts.append(_rivals(by, rivals))
    if by_measure is not None:
        known = text.startswith(_FITS) and truth is None
        said = "" if known or math.isnan(share_by_measure) else (
            f"By the measure {data.measure} it would be {_rounded(share_by_measure)}. "
        )  # fmt: skip
        parts.append(data.note(said + (_NOT_YET_RIGHT if known else _LISTS), AUDIT))
    return parts


_FITS = "of captions have another image that fits at least as well as"
_NOT_YET_RIGHT = (
    "To fit as well is not yet to be right: a caption may be vague, and its own image fit badly."
    " Which pairs are probably right, and how many, is what the audit estimates:"
)
_LISTS = "The audit lists pairs that are probably right:"
_LEAST_JUDGED = 30  # captions; fewer say little


def _rounded(share: float) -> str:
    """A share in whole percent; one that is not quite 0 or 1 does not print as 0% or 100%."""
    return f"{share:.0%}" if 0.005 <= share < 0.995 else format_percent(share)


def _rivals(measure: str, rivals: np.ndarray) -> Chart:
    ends = [first - 1 for first in RIVALS[1:]]
    names = [str(a) if a == b else f"{a} to {b}" for a, b in zip(RIVALS, ends, strict=False)]
    names.append(f"{RIVALS[-1]} or more")
    counts = dict(zip(names, np.histogram(rivals, [*RIVALS, np.inf])[0].tolist(), strict=True))
    alt = (
        "Share of captions by how many other images fit them at least as well as their own, by"
        f" {measure}: "
    )
    alt += ", ".join(f"{name}: {n / len(rivals):.1%}" for name, n in counts.items()) + "."
    title = f"Other images that fit a caption at least as well as its own, by {measure}"
    y = channel("images:N", title=None, sort=names)
    height = 22 * len(names)
    return make_share_bars(
        "rivals", title, alt, y, "captions", counts, len(rivals), wide=True, height=height
    )


def corpus_section(data: ReportData) -> PageSection:
    """Captions by split, lengths, and the pairs of the sampled shards."""
    manifest = data.captions_manifest
    splits = [read_captions(data.path(CAPTIONS_KIND), name) for name in manifest["splits"]]
    facts = {
        "captions": f"{sum(manifest['splits'].values()):,}",
        "images": f"{manifest['images']:,}",
        "source": str(manifest["params"]["captions"].get("source", "–")),
        "tokenizer": splits[0].tokenizer,
        **{
            f"left out, {reason}": f"{count:,}"
            for reason, count in manifest.get("left_out", {}).items()
        },
    }
    heads = (
        "split",
        "images",
        "captions",
        "captions per image",
        "words per caption",
        "different words",
    )
    lines = [
        (
            captions.split,
            captions.n_images,
            captions.n_captions,
            captions.n_captions / captions.n_images,
            float(_words(captions).mean()),
            len(captions.tokens()[0].dictionary),
        )
        for captions in splits
    ]
    parts: list[Part] = [
        Facts(facts),
        PageTable("Captions by split", heads, lines),
        _lengths(splits),
    ]
    if data.has(SHARDS, what="the sampled shards of a training split"):
        labels = Labels.load(data.path(SHARDS), captions=data.path(CAPTIONS_KIND))
        assert isinstance(labels.stored, Sampled)
        bits = np.concatenate([part.reasons for part in labels.stored.parts])
        n_by_reason = {
            name: int(((bits >> k) & 1).sum()) for k, name in enumerate(labels.stored.reasons)
        }
        title = (
            f"Why the shards of {labels.table.split} keep their {len(bits):,} pairs (a pair may"
            " have several reasons)"
        )
        reason_rows = [
            (name, n, share_cell(n / max(len(bits), 1))) for name, n in n_by_reason.items()
        ]
        parts.append(PageTable(title, ("reason", "pairs", "share"), reason_rows))
    return PageSection(
        "corpus", "Corpus and shards", "The captions that all else was computed from.", parts
    )


def _words(captions: Captions) -> np.ndarray:
    return pc.list_value_length(captions.table["tokens"]).to_numpy()


def _lengths(splits: list[Captions]) -> Chart:
    values = []
    for captions in splits:
        counts = np.bincount(np.minimum(_words(captions), _LONGEST))
        values += [
            {"split": captions.split, "words": k, "captions": int(n), "share": n / counts.sum()}
            for k, n in enumerate(counts.tolist())
            if n
        ]
    longest = max(row["words"] for row in values)
    more = f" ({_LONGEST}: or more)" if longest == _LONGEST else ""
    lines = make_layer(
        "line",
        channel("words:Q", title=f"words in a caption{more}"),
        share_channel("captions"),
        color=channel("split:N", title=None),
        tip=["split:N", "words:Q", "captions:Q", "share:Q:.1%"],
        mark_options={"point": True},
    )
    alt = (
        f"Share of captions by number of words, one line per split; captions have up to {longest}"
        " words."
    )
    return make_chart("caption-length", "Length of captions", alt, values, lines)


DISTRIBUTIONS = (
    "Own captions were written for the image, other captions for other images. The more the two"
    " overlap, the more other captions fit an image too, and the less a benchmark may call them"
    " wrong. Each own caption is left out of the image's references here, and compared with the"
    " others; with itself among them it has the largest value, or nearly. The scale is logarithmic."
)
OWN_AND_OTHER = "Own captions and other captions by each measure"
_MEANING = (
    "The last three columns look at each caption, left out of its image's references (not for an"
    " imported matrix). “Own above other” is the share of other images that are less relevant to it"
    " than its own image: ties count half, 50% is chance. The next column counts the captions with"
    " another image that fits at least as well. The last one is the median number of such images,"
    " over these captions."
)
_HEADS = (
    "measure",
    "median, own",
    "median, own left out",
    "median, other",
    "99th percentile, other",
    "own above other",
    "captions with another image that fits as well",
    "such images",
)


def distributions_section(data: ReportData) -> PageSection:
    """One chart per measure, and how well the measure alone tells own captions from others."""
    parts: list[Part] = []
    if data.has(RELEVANCE, what="the dense relevance of an evaluation split"):
        lines = [
            (
                name,
                figures.own,
                figures.left_out,
                figures.median,
                figures.percentile_99,
                share_cell(figures.own_above_other),
                share_cell(figures.share_with_rival),
                as_cell(figures.median_rivals, 0),
            )
            for name, figures in data.own_and_other.items()
        ]
        charts = [_distribution(name, data) for name in data.own_and_other]
        parts = [PageTable(OWN_AND_OTHER, _HEADS, lines), Note(_MEANING), *charts]
    return PageSection("distributions", "Own captions and other captions", DISTRIBUTIONS, parts)


def _distribution(name: str, data: ReportData) -> Chart:
    edges, *shares = distribution(data.path(RELEVANCE), name)
    kinds = ("own captions", "other captions")
    values = [
        {"at": at, "captions": kind, "share": share}
        for kind, of_kind in zip(kinds, shares, strict=True)
        for at, share in zip(((edges[:-1] + edges[1:]) / 2).tolist(), of_kind.tolist(), strict=True)
        if share
    ]
    steps = make_layer(
        "line",
        channel("at:Q", title=name),
        channel(
            "share:Q",
            title="share of the pairs",
            scale={"type": "log", "nice": False},
            axis={"format": "~p", "tickCount": 5},
        ),
        color=channel("captions:N", title=None, scale={"domain": list(kinds)}),
        mark_options={"interpolate": "step"},
        tip=[channel("at:Q", title=name), "captions:N", "share:Q:.3%"],
    )
    figures = data.own_and_other[name]
    alt = (
        f"Histogram of {name} of own and of other captions: medians {figures.left_out:.2f} and"
        f" {figures.median:.2f}."
    )
    return make_chart(
        f"distribution-{name}", f"{name} of own and of other captions", alt, values, steps
    )


MINED_FILE = "curves_mined.json"
HUMAN = {"eccv": "ECCV Caption", "cxc": "Crisscrossed Captions"}
_MIN_OVERLAP = 30  # mined pairs that people have seen, below which a precision says little
MINED = (
    "Every pair above a threshold counts as mined; own captions are left out. Precision is the"
    " share of them on people's lists of positives. People saw only few pairs, so it is a lower"
    " bound: compare the measures with each other."
)
# How the notes of `evaluate` begin for captions that people have not listed positives of.
NOT_LISTED = tuple(f"{name} left out" for name in HUMAN)
_OTHERS = (
    "people's lists of positives (ECCV Caption, Crisscrossed Captions) are of the MS-COCO 5K test"
    " captions, and these captions are others"
)


def mined_section(data: ReportData) -> PageSection:
    """A chart for each list of human positives. These lists belong to the COCO 5K test captions."""
    folders = data.find_folders(EVALUATION, MINED_FILE).values()
    curves: list[dict[str, Any]] = next(
        (rows for path in folders if (rows := read_json(path / MINED_FILE))), []
    )
    parts = [_mined(human, curves) for human in dict.fromkeys(row["human"] for row in curves)]
    what = "precision of mined positives"
    if not folders and not are_coco_ids(data.captions.image_ids):
        data.add_missing(f"{what}: {_OTHERS}")
    elif not folders:
        data.add_missing(what, EVALUATION)
    elif not parts:
        notes = dict.fromkeys(
            note for path in folders for note in read_json(path / METRICS).get("notes", [])
        )
        left_out = [note for note in notes if note.startswith(NOT_LISTED)]
        why = _OTHERS if data.has(RELEVANCE) else "the evaluations were given no relevance"
        why = f"{'; '.join(left_out)}. Afterwards run capgrade evaluate again" if left_out else why
        data.add_missing(f"{what}: {why}")
    return PageSection("mined", "Precision of mined positives", MINED, parts)


def _mined(human: str, curves: list[dict[str, Any]]) -> Chart:
    keys = ("measure", "threshold", "mined", "precision", "recall")
    values = [
        {k: row[k] for k in keys}
        for row in curves
        if row["human"] == human and row["overlap"] >= _MIN_OVERLAP
    ]
    line = make_layer(
        "line",
        channel("mined:Q", title="pairs mined", scale={"type": "log"}, axis={"format": "~s"}),
        channel("precision:Q", axis={"format": "%"}),
        color=channel("measure:N", title=None),
        order=channel("threshold:Q"),
        tip=["measure:N", "threshold:Q", "mined:Q", "precision:Q:.1%", "recall:Q:.1%"],
        mark_options={"point": {"size": 22}},
    )
    name = HUMAN.get(human, human)
    measures = ", ".join(dict.fromkeys(row["measure"] for row in values))
    alt = (
        f"Precision against the number of mined pairs, human positives of {name}, one line per"
        f" measure: {measures}."
    )
    return make_chart(f"mined-{human}", f"Positives of {name}", alt, values, line)
