"""The layout `mteb`: a retrieval benchmark in both directions, as mteb's loaders read it, with
grades of one measure.

Subsets are t2i and i2t, each with configs corpus, queries and qrels (query-id, corpus-id, score
int32), and gains (query-id, corpus-id, gain float64), the values themselves:
github.com/embeddings-benchmark/mteb/pull/5516.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.labels import Labels
from capgrade.labels.published import hub_split
from capgrade.labels.qrels import grades_of
from capgrade.labels.stored import ValuedPairs
from capgrade.pipelines.publish.columns import meaning
from capgrade.pipelines.publish.tables import Contents, PublishedSplit, PublishedTable, write_table
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import PublishParams

_MEANINGS = {
    "id": "the image's or the caption's id in the source",
    "image_file": "the image's file name in the source",
    "text": "the caption as the source has it",
    "query-id": "id of the query",
    "corpus-id": "id of the item of the corpus",
    "score": "the grade: how many thresholds the value reaches",
}


def benchmark(
    labels: Sequence[tuple[Labels, dict[str, Any]]], out: Path, params: PublishParams
) -> Contents:
    """Write the tables of each split's labels with their folder's manifest.

    InputError where the labels do not have the measure.
    """
    splits, measure = [], labels[0][0].choose_measure(params.measure)
    for one, manifest in labels:
        tables = tuple(_tables(one, one.table, out, params))
        known = one.table.n_images * one.table.n_captions
        if one.stored.sampled:
            known = sum(len(some.value) for some in one.stored.pairs(measure))
        splits.append(PublishedSplit(one, manifest, tables, known))
    absent = "A pair that is absent is below the first threshold, and mteb counts it as 0."
    if any(one.stored.sampled for one, _ in labels):
        absent = (
            "mteb counts a pair that is absent as 0, also one that was not sampled: scores are of"
            " the sampled pairs alone, and dense labels are the right source."
        )
    gain = f"the value, at least 0: {meaning(measure, splits[0].params['measures'])}"
    return Contents(
        params,
        out,
        tuple(splits),
        [measure],
        row=f"A retrieval benchmark in both directions, with grades by {measure}.",
        kept=(
            f"pairs that reach the first threshold ({next(iter(params.grades.values())):g}) were"
            " kept"
        ),
        absent=absent,
        meaning={**_MEANINGS, "gain": gain}.__getitem__,
    )


def _tables(
    labels: Labels, captions: Captions, out: Path, params: PublishParams
) -> Iterator[PublishedTable]:
    split = hub_split(captions.split)
    first = np.unique(captions.owner, return_index=True)[1]
    files = captions.table["image_file"].take(pa.array(first)).combine_chunks()
    named = {} if files.null_count else {"image_file": files}  # mteb's loader refuses a null
    image = pa.table({"id": pa.array(captions.image_ids, pa.string()), **named})
    text = pa.table(
        {"id": captions.table["caption_id"], "text": captions.table["caption"]}
    ).combine_chunks()
    items = {
        name: write_table(table, "", name, split, out)
        for name, table in (("images", image), ("texts", text))
    }
    image_row, caption_row, values, _ = _pairs(labels, params)
    grades = grades_of(values, list(params.grades.values())).astype(np.int32)
    values = values.astype(np.float64)
    ids = (
        image["id"].combine_chunks().take(pa.array(image_row)),
        text["id"].combine_chunks().take(pa.array(caption_row)),
    )
    for way, (queries, corpus) in {"t2i": ("texts", "images"), "i2t": ("images", "texts")}.items():
        yield replace(items[corpus], config=f"{way}-corpus")
        yield replace(items[queries], config=f"{way}-queries")
        order = pa.array(
            np.argsort(caption_row, kind="stable") if way == "t2i" else np.arange(len(values))
        )
        pair = dict(zip(("query-id", "corpus-id"), ids[::-1] if way == "t2i" else ids, strict=True))
        for config, column in (
            ("qrels", {"score": grades}),
            ("gains", {"gain": np.maximum(values, 0.0)}),
        ):
            table = pa.table({**pair, **column}).take(order).combine_chunks()
            yield write_table(table, f"{way}-{config}", f"{way}-{config}", split, out)


def _pairs(labels: Labels, params: PublishParams) -> ValuedPairs:
    """The pairs that reach the first threshold, and every own pair that is known."""
    measure, edges = labels.choose_measure(params.measure), list(params.grades.values())[:1]
    return ValuedPairs.concatenate(
        known.take(
            (grades_of(known.value, edges) > 0) | (labels.owner[known.caption] == known.image)
        )
        for known in labels.stored.pairs(measure)
    )
