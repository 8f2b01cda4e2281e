"""Section: how many captions and images, how long the captions are, and what the sampled shards keep of them."""

from __future__ import annotations

import altair as alt
import numpy as np
import pyarrow.compute as pc

from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import CAPTIONS, SHARDS, ReportData
from capgrade.pipelines.report.parts import (
    Cell,
    Chart,
    Facts,
    Missing,
    PageSection,
    PageTable,
    Part,
    count,
    number,
    percent,
    text,
)
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.shards import pair_columns, read_shards

LONGEST = 40  # words; longer captions are counted with these


def corpus(data: ReportData) -> PageSection:
    """Captions by split, lengths, and the pairs of the sampled shards."""
    manifest = data.captions_manifest
    splits = [read_captions(data.at(CAPTIONS), name) for name in manifest["splits"]]
    facts = {
        "captions": f"{sum(manifest['splits'].values()):,}",
        "images": f"{manifest['images']:,}",
        "source": str(manifest["params"].get("source", "–")),
        "tokenizer": splits[0].tokenizer,
        "left out, without words": f"{manifest.get('dropped_empty', 0):,}",
    }
    parts: list[Part] = [Facts(facts), _table(splits), _lengths(splits), _shards(data)]
    return PageSection("corpus", "Corpus", "The captions that everything below was computed from.", parts)


def _words(captions: Captions) -> np.ndarray:
    return pc.list_value_length(captions.table["tokens"]).to_numpy()


def _table(splits: list[Captions]) -> PageTable:
    heads = ("split", "images", "captions", "captions per image", "words per caption", "different words")
    lines = []
    for one in splits:
        words, vocabulary = _words(one), len(one.tokens()[0].dictionary)
        means = number(one.n_captions / one.n_images, 2), number(float(words.mean()), 2)
        lines.append([text(one.split), count(one.n_images), count(one.n_captions), *means, count(vocabulary)])
    return PageTable("Captions by split", heads, lines)


def _lengths(splits: list[Captions]) -> Chart:
    values = []
    for one in splits:
        counts = np.bincount(np.minimum(_words(one), LONGEST))
        values += [
            {"split": one.split, "words": k, "captions": int(n), "share": n / counts.sum()}
            for k, n in enumerate(counts.tolist())
            if n
        ]
    longest = max(row["words"] for row in values)
    chart = alt.Chart(rows(values)).mark_line(point=True).encode(
        alt.X("words:Q", title=f"words in a caption{f' ({LONGEST}: or more)' if longest == LONGEST else ''}"),
        alt.Y("share:Q", title="share of the captions", axis=alt.Axis(format="%")),
        alt.Color("split:N", title=None),
        tooltip=["split:N", "words:Q", "captions:Q", alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    told = f"Share of captions by number of words, one line per split; captions have up to {longest} words."
    return made("caption-length", "Length of captions", told, chart)


def _shards(data: ReportData) -> Part:
    if not data.has(SHARDS):
        return Missing(
            "the sampled shards of a training split", data.command("shards", "--captions {captions} --out {shards}")
        )
    shards = read_shards(data.at(SHARDS))
    if shards.metadata["captions"] != data.captions.digest:
        raise InputError("shards of other captions", file=data.at(SHARDS), remedy="run capgrade shards again")
    reasons, kept, pairs = shards.metadata["reasons"], np.zeros(32, np.int64), 0
    for batch in shards.batches():
        bits = pair_columns(batch)[1]["reasons"].to_numpy()
        kept += [int(((bits >> k) & 1).sum()) for k in range(32)]
        pairs += len(bits)
    title = f"Why the shards of {shards.metadata['split']} keep their {pairs:,} pairs (a pair may have several reasons)"
    lines = [[text(name), count(int(kept[k])), _share(int(kept[k]), pairs)] for k, name in enumerate(reasons)]
    return PageTable(title, ("reason", "pairs", "share"), lines)


def _share(part: int, whole: int) -> Cell:
    return Cell(percent(part / max(whole, 1)), part / max(whole, 1))
