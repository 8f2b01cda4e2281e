"""The layout `mteb`: a retrieval benchmark in both directions, as mteb's loaders read it, with
grades of one measure.

Subsets are t2i and i2t, each with configs corpus, queries and qrels (query-id, corpus-id, score
int32), and gains (query-id, corpus-id, gain float64), the values themselves of all known pairs,
which no grade cuts: github.com/embeddings-benchmark/mteb/pull/5516.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from capgrade.labels import Labels
from capgrade.labels.qrels import grades_of
from capgrade.pipelines.publish.tables import (
    Contents,
    PublishedSplit,
    PublishedTable,
    introduce,
    meaning,
    write_batches,
    write_table,
)
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.pairs import Pairs

_MEANINGS = {
    "id": "the image's or the caption's id in the source",
    "image_file": "the image's file name in the source",
    "text": "the caption as the source has it",
    "query-id": "id of the query",
    "corpus-id": "id of the item of the corpus",
    "score": "the grade: how many thresholds the value reaches",
}
_PAIR = ("query-id", "corpus-id")
_BELOW = (
    "A pair that is absent of qrels is below the first threshold, and mteb counts it as 0. One that"
    " is absent of gains has the gain 0."
)
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
            pairs = sum(len(some) for some in split.labels.stored.pairs(measure))
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
            " kept in qrels, and all pairs with a gain in gains"
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
    pairs = _pairs(split.labels, params)
    grades = grades_of(pairs.value, list(params.grades.values())).astype(np.int32)
    ids = image["id"].combine_chunks(), text["id"].combine_chunks()
    taken = ids[0].take(pa.array(pairs.image)), ids[1].take(pa.array(pairs.caption))
    n_gains = sum(len(gained) for gained in _gains(split.labels, params))
    for way, queries, corpus in (("t2i", texts, images), ("i2t", images, texts)):
        yield f"{way}-corpus", corpus
        yield f"{way}-queries", queries
        order = pa.array(
            np.argsort(pairs.caption, kind="stable") if way == "t2i" else np.arange(len(pairs))
        )
        columns = [*(taken[::-1] if way == "t2i" else taken), pa.array(grades)]
        table = pa.table(columns, [*_PAIR, "score"])
        yield (
            f"{way}-qrels",
            write_table(table.take(order).combine_chunks(), f"{way}-qrels", split.name, out),
        )
        batches = _gain_batches(split.labels, params, ids, way)
        yield f"{way}-gains", write_batches(batches, n_gains, f"{way}-gains", split.name, out)


def _gains(labels: Labels, params: PublishParams) -> Iterator[Pairs]:
    """The known pairs of some images after others, with their gains as values: of dense labels the
    pairs with a gain, as a pair that is absent has none; of sampled ones all, as one that is absent
    is unknown."""
    for known in labels.stored.pairs(labels.choose_measure(params.measure)):
        gained = known.valued(np.maximum(known.value, 0))
        yield gained if labels.stored.sampled else gained.take(gained.value > 0)


def _gain_batches(
    labels: Labels, params: PublishParams, ids: tuple[pa.Array, pa.Array], way: str
) -> Iterator[pa.RecordBatch]:
    """Rows of gains, one image after the other both ways."""
    for gained in _gains(labels, params):
        pair = [ids[0].take(pa.array(gained.image)), ids[1].take(pa.array(gained.caption))]
        columns = [*(pair[::-1] if way == "t2i" else pair), pa.array(gained.value, pa.float64())]
        yield pa.RecordBatch.from_arrays(columns, [*_PAIR, "gain"])


def _pairs(labels: Labels, params: PublishParams) -> Pairs:
    """The pairs that reach the first threshold, and every own pair that is known."""
    measure, edges = labels.choose_measure(params.measure), list(params.grades.values())[:1]
    return Pairs.concatenate(
        known.take((grades_of(known.value, edges) > 0) | known.is_own(labels.owner))
        for known in labels.stored.pairs(measure)
    )
