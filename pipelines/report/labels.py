"""Sections about captions and labels: the corpus, how a measure values own and other captions, what
it mines."""

from typing import Any

import numpy as np
import pyarrow.compute as pc

from capgrade.labels import Labels
from capgrade.labels.stored import Sampled
from capgrade.pipelines.page.charts import chart, layer, of, share_bars, share_of
from capgrade.pipelines.page.parts import (
    Chart,
    Facts,
    Headline,
    Note,
    PageSection,
    PageTable,
    Part,
    cell,
    percent,
)
from capgrade.pipelines.page.parts import share as share_cell
from capgrade.pipelines.report.data import (
    CAPTIONS_KIND,
    EVALUATION,
    METRICS,
    RELEVANCE,
    SHARDS,
    ReportData,
)
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.lines import read_json
from capgrade.schemas.own_pairs import distribution
from capgrade.trainer.evaluation.task import of_coco

_LONGEST = 40  # words; longer captions are counted with these
RIVALS = (0, 1, 2, 6, 21, 101)  # where bands of numbers of rival images begin
AUDIT = "audit --captions {captions} --relevance {relevance} --out {audit.html}"


def headline(data: ReportData) -> list[Part]:
    """How many captions have another image that fits at least as well, by the measure that is
    nearest to people; a chart of how many such images."""
    one = data.captions
    counted = f"captions of {one.n_images:,} images"
    if not data.has(RELEVANCE):
        return [Headline(f"{one.n_captions:,}", f"{counted} in split {one.split}.")]
    by, rivals = f"the measure {data.measure}", data.own_and_other[data.measure].rivals
    if not len(rivals):  # no image has a second caption
        return [Headline(f"{one.n_captions:,}", f"{counted} in split {one.split}, graded by {by}.")]
    share = (rivals > 0).mean()
    figure = f"{share:.0%}" if 0.005 <= share < 0.995 else percent(share)
    said = f"of captions have another image that fits at least as well as their own, by {by}."
    trust = data.note(
        "To fit as well is not yet to be right: a caption may be vague, and its own image fit"
        " badly. How many pairs people would accept is what the audit estimates:",
        AUDIT,
    )
    return [Headline(figure, said), _rivals(by, rivals), trust]


def _rivals(measure: str, rivals: np.ndarray) -> Chart:
    ends = [first - 1 for first in RIVALS[1:]]
    names = [str(a) if a == b else f"{a} to {b}" for a, b in zip(RIVALS, ends, strict=False)]
    names.append(f"{RIVALS[-1]} or more")
    counts = dict(zip(names, np.histogram(rivals, [*RIVALS, np.inf])[0].tolist(), strict=True))
    told = (
        "Share of captions by how many other images fit them at least as well as their own, by"
        f" {measure}: "
    )
    told += ", ".join(f"{name}: {n / len(rivals):.1%}" for name, n in counts.items()) + "."
    title, y = (
        "Other images that fit a caption at least as well as its own",
        of("images:N", title=None, sort=names),
    )
    height = 22 * len(names)
    return share_bars(
        "rivals", title, told, y, "captions", counts, len(rivals), wide=True, height=height
    )


def corpus(data: ReportData) -> PageSection:
    """Captions by split, lengths, and the pairs of the sampled shards."""
    manifest = data.captions_manifest
    splits = [read_captions(data.at(CAPTIONS_KIND), name) for name in manifest["splits"]]
    facts = {
        "captions": f"{sum(manifest['splits'].values()):,}",
        "images": f"{manifest['images']:,}",
        "source": str(manifest["params"].get("source", "–")),
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
            one.split,
            one.n_images,
            one.n_captions,
            one.n_captions / one.n_images,
            float(_words(one).mean()),
            len(one.tokens()[0].dictionary),
        )
        for one in splits
    ]
    parts: list[Part] = [
        Facts(facts),
        PageTable("Captions by split", heads, lines),
        _lengths(splits),
    ]
    if data.has(SHARDS, what="the sampled shards of a training split"):
        labels = Labels.load(data.at(SHARDS), captions=data.at(CAPTIONS_KIND))
        assert isinstance(labels.stored, Sampled)
        bits = np.concatenate([part.reasons for part in labels.stored.parts])
        kept = {name: int(((bits >> k) & 1).sum()) for k, name in enumerate(labels.stored.reasons)}
        pairs = f"keep their {len(bits):,} pairs (a pair may have several reasons)"
        why = [(name, n, share_cell(n / max(len(bits), 1))) for name, n in kept.items()]
        parts.append(
            PageTable(
                f"Why the shards of {labels.table.split} {pairs}", ("reason", "pairs", "share"), why
            )
        )
    return PageSection(
        "corpus", "Corpus and shards", "The captions that all else was computed from.", parts
    )


def _words(captions: Captions) -> np.ndarray:
    return pc.list_value_length(captions.table["tokens"]).to_numpy()


def _lengths(splits: list[Captions]) -> Chart:
    values = []
    for one in splits:
        counts = np.bincount(np.minimum(_words(one), _LONGEST))
        values += [
            {"split": one.split, "words": k, "captions": int(n), "share": n / counts.sum()}
            for k, n in enumerate(counts.tolist())
            if n
        ]
    longest = max(row["words"] for row in values)
    more = f" ({_LONGEST}: or more)" if longest == _LONGEST else ""
    lines = layer(
        "line",
        of("words:Q", title=f"words in a caption{more}"),
        share_of("captions"),
        color=of("split:N", title=None),
        tip=["split:N", "words:Q", "captions:Q", "share:Q:.1%"],
        of_mark={"point": True},
    )
    told = (
        f"Share of captions by number of words, one line per split; captions have up to {longest}"
        " words."
    )
    return chart("caption-length", "Length of captions", told, values, lines)


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


def distributions(data: ReportData) -> PageSection:
    """One chart per measure, and how well the measure alone tells own captions from others."""
    parts: list[Part] = []
    if data.has(RELEVANCE, what="the dense relevance of an evaluation split"):
        lines = [
            (
                name,
                one.own,
                one.left_out,
                one.median,
                one.percentile_99,
                share_cell(one.above),
                share_cell(one.equalled),
                cell(one.images, 0),
            )
            for name, one in data.own_and_other.items()
        ]
        charts = [_distribution(name, data) for name in data.own_and_other]
        parts = [PageTable(OWN_AND_OTHER, _HEADS, lines), Note(_MEANING), *charts]
    return PageSection("distributions", "Own captions and other captions", DISTRIBUTIONS, parts)


def _distribution(name: str, data: ReportData) -> Chart:
    edges, *shares = distribution(data.at(RELEVANCE), name)
    kinds = ("own captions", "other captions")
    values = [
        {"at": at, "captions": kind, "share": share}
        for kind, of_kind in zip(kinds, shares, strict=True)
        for at, share in zip(((edges[:-1] + edges[1:]) / 2).tolist(), of_kind.tolist(), strict=True)
        if share
    ]
    steps = layer(
        "line",
        of("at:Q", title=name),
        of(
            "share:Q",
            title="share of the pairs",
            scale={"type": "log", "nice": False},
            axis={"format": "~p", "tickCount": 5},
        ),
        color=of("captions:N", title=None, scale={"domain": list(kinds)}),
        of_mark={"interpolate": "step"},
        tip=[of("at:Q", title=name), "captions:N", "share:Q:.3%"],
    )
    one = data.own_and_other[name]
    told = (
        f"Histogram of {name} of own and of other captions: medians {one.left_out:.2f} and"
        f" {one.median:.2f}."
    )
    return chart(
        f"distribution-{name}", f"{name} of own and of other captions", told, values, steps
    )


MINED_FILE = "curves_mined.json"
HUMAN = {"eccv": "ECCV Caption", "cxc": "Crisscrossed Captions"}
_FEWEST = 30  # mined pairs that people have seen, below which a precision says little
MINED = (
    "Every pair above a threshold counts as mined; own captions are left out. Precision is the"
    " share of them on people's lists of positives. People saw only few pairs, so it is a lower"
    " bound: compare the measures with each other."
)
# notes of `evaluate`, on captions of MS-COCO's 5K test split
NOT_LISTED = tuple(f"{name} left out" for name in HUMAN)
_OTHERS = (
    "people's lists of positives (ECCV Caption, Crisscrossed Captions) are of the MS-COCO 5K test"
    " captions, and these captions are others"
)


def mined(data: ReportData) -> PageSection:
    """A chart for each list of human positives. These lists belong to the COCO 5K test captions."""
    folders = data.folders(EVALUATION, MINED_FILE).values()
    curves: list[dict[str, Any]] = next(
        (one for path in folders if (one := read_json(path / MINED_FILE))), []
    )
    parts = [_mined(human, curves) for human in dict.fromkeys(row["human"] for row in curves)]
    what = "precision of mined positives"
    if not folders and not of_coco(data.captions.image_ids):
        data.lacks(f"{what}: {_OTHERS}")
    elif not folders:
        data.lacks(what, EVALUATION)
    elif not parts:
        notes = dict.fromkeys(
            note for path in folders for note in read_json(path / METRICS).get("notes", [])
        )
        left_out = [note for note in notes if note.startswith(NOT_LISTED)]
        why = _OTHERS if data.has(RELEVANCE) else "the evaluations were given no relevance"
        why = f"{'; '.join(left_out)}. Afterwards run capgrade evaluate again" if left_out else why
        data.lacks(f"{what}: {why}")
    return PageSection("mined", "Precision of mined positives", MINED, parts)


def _mined(human: str, curves: list[dict[str, Any]]) -> Chart:
    keys = ("measure", "threshold", "mined", "precision", "recall")
    values = [
        {k: row[k] for k in keys}
        for row in curves
        if row["human"] == human and row["overlap"] >= _FEWEST
    ]
    line = layer(
        "line",
        of("mined:Q", title="pairs mined", scale={"type": "log"}, axis={"format": "~s"}),
        of("precision:Q", axis={"format": "%"}),
        color=of("measure:N", title=None),
        order=of("threshold:Q"),
        tip=["measure:N", "threshold:Q", "mined:Q", "precision:Q:.1%", "recall:Q:.1%"],
        of_mark={"point": {"size": 22}},
    )
    name = HUMAN.get(human, human)
    measures = ", ".join(dict.fromkeys(row["measure"] for row in values))
    told = (
        f"Precision against the number of mined pairs, human positives of {name}, one line per"
        f" measure: {measures}."
    )
    return chart(f"mined-{human}", f"Positives of {name}", told, values, line)
