"""The layout `mteb`: a retrieval benchmark in both directions, as mteb's loaders read it, with
grades of one measure.

Subsets are t2i and i2t, each with configs corpus, queries and qrels (query-id, corpus-id, score
int32), and gains (query-id, corpus-id, gain float64), the values themselves:
github.com/embeddings-benchmark/mteb/pull/5516.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from capgrade.labels import Labels
from capgrade.labels.qrels import grades_of
from capgrade.labels.stored import ValuedPairs
from capgrade.pipelines.publish.tables import (
    Contents,
    PublishedSplit,
    PublishedTable,
    introduce,
    meaning,
    write_table,
)
from capgrade.schemas.params import PublishParams

_MEANINGS = {
    "id": "the image's or the caption's id in the source",
    "image_file": "the image's file name in the source",
    "text": "the caption as the source has it",
    "query-id": "id of the query",
    "corpus-id": "id of the item of the corpus",
    "score": "the grade: how many thresholds the value reaches",
}
_BELOW = "A pair that is absent is below the first threshold, and mteb counts it as 0."
_NOT_SAMPLED = (
    "mteb counts a pair that is absent as 0, also one that was not sampled: scores are of the"
    " sampled pairs alone, and dense labels are the right source."
)


def benchmark(splits: Sequence[PublishedSplit], out: Path, params: PublishParams) -> Contents:
    """Write the tables of each split. InputError where the labels do not have the measure."""
    measure = splits[0].labels.choose_measure(params.measure)
    tables, known, absent = dict[str, list[PublishedTable]](), [], _BELOW
    for split in splits:
        for config, table in _tables(split, out, params):
            tables.setdefault(config, []).append(table)
        pairs = split.captions.n_images * split.captions.n_captions
        if split.labels.stored.sampled:
            pairs = sum(len(some.value) for some in split.labels.stored.pairs(measure))
            absent = _NOT_SAMPLED
        known.append(pairs)
    made_with = splits[0].manifest["params"]["measures"]
    return Contents(
        params,
        out,
        splits,
        tables,
        [measure],
        {measure: made_with[measure]},
        introduction=introduce(
            params, f"A retrieval benchmark in both directions, with grades by {measure}."
        ),
        kept=(
            f"pairs that reach the first threshold ({next(iter(params.grades.values())):g}) were"
            " kept"
        ),
        absent=absent,
        meanings=_MEANINGS | {"gain": f"the value, at least 0: {meaning(measure, made_with)}"},
        known=known,
    )


def _tables(
    split: PublishedSplit, out: Path, params: PublishParams
) -> Iterator[tuple[str, PublishedTable]]:
    """Each config and its table, which two configs may share."""
    captions = split.captions
    first = np.unique(captions.owner, return_index=True)[1]
    files = captions.table["image_file"].take(pa.array(first)).combine_chunks()
    named = {} if files.null_count else {"image_file": files}  # mteb's loader refuses a null
    image = pa.table({"id": pa.array(captions.image_ids, pa.string()), **named})
    text = pa.table(
        {"id": captions.table["caption_id"], "text": captions.table["caption"]}
    ).combine_chunks()
    images = write_table(image, "images", split.name, out)
    texts = write_table(text, "texts", split.name, out)
    image_row, caption_row, values, _ = _pairs(split.labels, params)
    grades = grades_of(values, list(params.grades.values())).astype(np.int32)
    values = values.astype(np.float64)
    ids = (
        image["id"].combine_chunks().take(pa.array(image_row)),
        text["id"].combine_chunks().take(pa.array(caption_row)),
    )
    for way, queries, corpus in (("t2i", texts, images), ("i2t", images, texts)):
        yield f"{way}-corpus", corpus
        yield f"{way}-queries", queries
        order = pa.array(
            np.argsort(caption_row, kind="stable") if way == "t2i" else np.arange(len(values))
        )
        pair = dict(zip(("query-id", "corpus-id"), ids[::-1] if way == "t2i" else ids, strict=True))
        for config, column in (
            ("qrels", {"score": grades}),
            ("gains", {"gain": np.maximum(values, 0.0)}),
        ):
            table = pa.table({**pair, **column}).take(order).combine_chunks()
            yield f"{way}-{config}", write_table(table, f"{way}-{config}", split.name, out)


def _pairs(labels: Labels, params: PublishParams) -> ValuedPairs:
    """The pairs that reach the first threshold, and every own pair that is known."""
    measure, edges = labels.choose_measure(params.measure), list(params.grades.values())[:1]
    return ValuedPairs.concatenate(
        known.take(
            (grades_of(known.value, edges) > 0) | (labels.owner[known.caption] == known.image)
        )
        for known in labels.stored.pairs(measure)
    )
