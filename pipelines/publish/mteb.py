"""The layout `mteb`: a retrieval benchmark in both directions, as mteb's loaders read it, with
grades of one measure, or of judgements.

Subsets are t2i and i2t, each with configs corpus, queries and qrels (query-id, corpus-id, score
int32), and gains (query-id, corpus-id, gain float64), the values themselves of all known pairs,
which no grade cuts: github.com/embeddings-benchmark/mteb/pull/5516.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.labels import Labels
from capgrade.labels.digests import text_digest
from capgrade.labels.layout import DIGEST
from capgrade.labels.qrels import grades_of
from capgrade.pictures.picture import Picture
from capgrade.pipelines.publish.grades import thresholds_of
from capgrade.pipelines.publish.pictures import Embedded
from capgrade.pipelines.publish.tables import (
    COLUMNS,
    Contents,
    Judged,
    PublishedSplit,
    PublishedTable,
    introduce,
    meaning,
    require_alike,
    write_batches,
    write_pictures_table,
    write_table,
)
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.pairs import Pairs

_MEANINGS = {
    "id": "the image's or the caption's id in the source",
    "image_file": "the image's file name in the source",
    "text": "the caption as the source has it",
    **{name: COLUMNS[name] for name in (DIGEST, "image")},
    "query-id": "id of the query",
    "corpus-id": "id of the item of the corpus",
    "score": "the grade: how many thresholds the value reaches",
}
_PAIR = ("query-id", "corpus-id")
_BELOW = (
    "A pair that is absent of qrels is below the first threshold, and mteb counts it as 0. One that"
    " is absent of gains has the gain 0."
)
_NOT_JUDGED = (
    "mteb counts a pair that is absent as 0, also one that was not judged: a model that finds a"
    " fitting pair that nobody saw is not credited."
)
_NOT_SAMPLED = (
    "mteb counts a pair that is absent as 0, also one that was not sampled: scores are of the"
    " sampled pairs alone, and dense labels are the right source."
)


def benchmark(
    splits: Sequence[PublishedSplit],
    out: Path,
    params: PublishParams,
    embedded: Embedded | None = None,
    judged: Judged | None = None,
) -> Contents:
    """Write the tables of each split. InputError where the labels do not have the measure, and as
    `thresholds_of`."""
    measure = splits[0].labels.choose_measure(params.measure)
    thresholds = thresholds_of(splits, measure, params)
    tables, known, absent = dict[str, list[PublishedTable]](), [], _BELOW
    for k, split in enumerate(splits):
        if not judged:
            require_alike(split, splits[0], [measure])
        pictures = embedded.pictures[k] if embedded else None
        graded = _Graded.of(split, measure, list(thresholds.values.values()), pictures, judged)
        for config, table in _tables(split, graded, out, params):
            tables.setdefault(config, []).append(table)
        pairs = split.captions.n_images * split.captions.n_captions
        if split.labels.stored.sampled:
            pairs = sum(len(some) for some in split.labels.stored.pairs(measure))
            absent = _NOT_JUDGED if judged else _NOT_SAMPLED
        known.append(pairs)
    made_with = splits[0].manifest["params"]["measures"]
    by = "by judgements" if judged else f"by {measure}"
    return Contents(
        params,
        out,
        splits,
        tables,
        [measure],
        {} if judged else {measure: made_with[measure]},
        introduction=introduce(
            params, f"A retrieval benchmark in both directions, with grades {by}."
        ),
        kept=(
            f"pairs that reach the first threshold ({next(iter(thresholds.values.values())):g})"
            " were kept in qrels, and all pairs with a gain in gains"
        ),
        absent=absent,
        meanings=_MEANINGS | {"gain": _gain(measure, made_with, judged)},
        known=known,
        read={"judgements": judged.sha256} if judged else {},
        calibrated=thresholds.calibrated,
        images=embedded,
        judged=judged,
        thresholds=thresholds.values,
    )


def _gain(measure: str, made_with: Mapping[str, Any], judged: Judged | None) -> str:
    if judged is None:
        return f"the value, at least 0: {meaning(measure, dict(made_with))}"
    less = f", less {judged.low:g}, the scale's lowest" if judged.low else ""
    return f"the mean score of a pair in `{judged.file}`{less}"


@dataclass(frozen=True)
class _Graded:
    """What a split's grades are of: labels and a measure of theirs, the thresholds, and which
    images and captions are asked for, as queries, or are there at all."""

    labels: Labels
    measure: str
    thresholds: Sequence[float]
    low: float  # the value of gain 0
    there: np.ndarray  # bool [n_images]: False where pictures are wanted and one is missing
    asked: tuple[np.ndarray, np.ndarray]  # bool, of images and of captions
    pictures: Mapping[str, Picture] | None

    @classmethod
    def of(
        cls,
        split: PublishedSplit,
        measure: str,
        thresholds: Sequence[float],
        pictures: Mapping[str, Picture] | None,
        judged: Judged | None,
    ) -> _Graded:
        captions = split.captions
        there = np.ones(captions.n_images, bool)
        if pictures is not None:
            there = np.array([one in pictures for one in captions.image_ids])
        every = np.ones(captions.n_images, bool), np.ones(captions.n_captions, bool)
        asked, low = (judged.asked, judged.low) if judged else (every, 0.0)
        return cls(split.labels, measure, thresholds, low, there, asked, pictures)

    def pairs(self) -> Iterator[Pairs]:
        """The known pairs of some images after others, of images that are there."""
        for known in self.labels.stored.pairs(self.measure):
            yield known if self.there.all() else known.take(self.there[known.image])

    def judged(self) -> Pairs:
        """The pairs that reach the first threshold, and every own pair that is known."""
        return Pairs.concatenate(
            known.take(
                (grades_of(known.value, self.thresholds[:1]) > 0) | known.is_own(self.labels.owner)
            )
            for known in self.pairs()
        )

    def gains(self) -> Iterator[Pairs]:
        """The known pairs of some images after others, with their gains as values: of dense labels
        the pairs with a gain, as a pair that is absent has none; of sampled ones all, as one that
        is absent is unknown."""
        for known in self.pairs():
            gained = known.valued(np.maximum(known.value - self.low, 0))
            yield gained if self.labels.stored.sampled else gained.take(gained.value > 0)

    def among_queries(self, pairs: Pairs, way: str) -> Pairs:
        """Those whose query is asked for: mteb takes what has a row as a query."""
        asked = self.asked[1][pairs.caption] if way == "t2i" else self.asked[0][pairs.image]
        return pairs if asked.all() else pairs.take(asked)


def _tables(
    split: PublishedSplit, graded: _Graded, out: Path, params: PublishParams
) -> Iterator[tuple[str, PublishedTable]]:
    """Each config and its table, which two configs may share."""
    captions = split.captions
    image_ids = pa.array(captions.image_ids, pa.string())
    caption_ids = captions.table["caption_id"].combine_chunks()
    texts = write_table(_texts(captions, params), "texts", split.name, out)
    if graded.pictures is None:
        images = write_table(_images(captions, image_ids), "images", split.name, out)
    else:
        images = write_pictures_table(graded.pictures, "id", "images", split.name, out)
    pairs, ids = graded.judged(), (image_ids, caption_ids)
    for way, queries, corpus in (("t2i", texts, images), ("i2t", images, texts)):
        yield f"{way}-corpus", corpus
        yield f"{way}-queries", queries
        some = graded.among_queries(pairs, way)
        order = np.argsort(some.caption, kind="stable") if way == "t2i" else slice(None)
        some = some.take(order)
        grades = grades_of(some.value, graded.thresholds).astype(np.int32)
        columns = [*_ids_of(some, ids, way), pa.array(grades)]
        table = pa.table(columns, [*_PAIR, "score"])
        yield f"{way}-qrels", write_table(table, f"{way}-qrels", split.name, out)
        batches, n_gains = _gain_batches(graded, ids, way), _count_gains(graded, way)
        yield f"{way}-gains", write_batches(batches, n_gains, f"{way}-gains", split.name, out)


def _texts(captions: Captions, params: PublishParams) -> pa.Table:
    ids = captions.table["caption_id"]
    if params.captions == "texts":
        return pa.table({"id": ids, "text": captions.table["caption"]}).combine_chunks()
    digests = pa.array(map(text_digest, captions.texts), pa.string())
    return pa.table({"id": ids, DIGEST: digests}).combine_chunks()


def _images(captions: Captions, image_ids: pa.Array) -> pa.Table:
    first = np.unique(captions.owner, return_index=True)[1]
    files = captions.table["image_file"].take(pa.array(first)).combine_chunks()
    named = {} if files.null_count else {"image_file": files}  # mteb's loader refuses a null
    return pa.table({"id": image_ids, **named})


def _ids_of(pairs: Pairs, ids: tuple[pa.Array, pa.Array], way: str) -> list[pa.Array]:
    """Ids of queries, then of what they are to find."""
    taken = [ids[0].take(pa.array(pairs.image)), ids[1].take(pa.array(pairs.caption))]
    return taken[::-1] if way == "t2i" else taken


def _count_gains(graded: _Graded, way: str) -> int:
    return sum(len(graded.among_queries(gained, way)) for gained in graded.gains())


def _gain_batches(
    graded: _Graded, ids: tuple[pa.Array, pa.Array], way: str
) -> Iterator[pa.RecordBatch]:
    """Rows of gains, one image after the other both ways."""
    for gained in graded.gains():
        some = graded.among_queries(gained, way)
        columns = [*_ids_of(some, ids, way), pa.array(some.value, pa.float64())]
        yield pa.RecordBatch.from_arrays(columns, [*_PAIR, "gain"])
