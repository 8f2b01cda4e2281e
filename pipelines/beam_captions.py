"""Captions of somebody's Beam pipeline as a captions folder: the runner checks, tokenises and counts them in shares of
the images, and one worker puts the shares in order, as Arrow tables."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.pipelines.captions import BATCH, caption_batches, checked, cuts, write_table
from capgrade.pipelines.execution.runners import SHARES
from capgrade.pipelines.measures.language import warn_of_scripts
from capgrade.pipelines.measures.ngrams import (
    FREQUENCY_SCHEMA,
    CountedCaptions,
    DocumentFrequencies,
    document_frequencies,
)
from capgrade.pipelines.measures.tokens import tokenize
from capgrade.pipelines.sources.fields import Position, as_id, as_text, required
from capgrade.schemas.captions import SCHEMA, Caption, Captions
from capgrade.schemas.params import CaptionsParams, MeasuresParams

WHERE = "captions of the pipeline"
REMEDY = "give each element image_id, caption_id and caption: a mapping, a beam.Row or a NamedTuple"
CIDERS = ("cider", "cider_plain")
NGRAM_SHARES = 16  # that frequencies are added up in
TEXTS = pa.large_string()  # all texts in one array may be over 2 GiB
LARGE = pa.schema([f.with_type(TEXTS if f.type == pa.string() else pa.large_list(TEXTS)) for f in SCHEMA])
Fields = tuple[str, str, str]  # image_id, caption_id, caption


@runtime_checkable
class Named(Protocol):
    """A NamedTuple."""

    def _asdict(self) -> dict[str, Any]: ...


Element = Mapping[str, Any] | beam.Row | Named


def keyed(element: Element) -> tuple[int, Fields]:
    """The share of the images that an element is of, and its fields: ids that are integers in decimal, as `capgrade
    captions` has them. InputError that names the field and the element for one that is missing or no text."""
    if isinstance(element, beam.Row):
        element = element.as_dict()
    elif isinstance(element, Named):
        element = element._asdict()
    position = Position(WHERE, reprlib.repr(element))
    if not isinstance(element, Mapping):
        raise position.refuse("no caption", REMEDY)
    values = {name: required(element, name, position, REMEDY) for name in ("image_id", "caption_id", "caption")}
    image, caption = (as_id(values[name], name, position) for name in ("image_id", "caption_id"))
    return crc32(image.encode()) % SHARES, (image, caption, as_text(values["caption"], "caption", position))


def tokenized(element: tuple[int, Iterable[Fields]], tokenizer: str) -> pa.Table:
    """All captions of a share of the images, as rows of SCHEMA."""
    rows = sorted(element[1])
    records = [Caption(image, caption, "all", text, WHERE, "") for image, caption, text in rows]
    tokens = tokenize(tokenizer, [record.text for record in records])
    return pa.Table.from_batches(caption_batches(records, tokens), SCHEMA)


def counts_frequencies(names: Iterable[str], params: MeasuresParams) -> bool:
    """Whether one of these measures, or of their parts, takes its document frequencies from the captions."""
    parts = {part for name in names for part in params.all_mixtures.get(name, [name])}
    return any(getattr(params, name).document_frequency is None for name in parts.intersection(CIDERS))


def counted(share: pa.Table, tokenizer: str) -> Iterator[tuple[int, pa.Table]]:
    """Document frequencies of a share of the images, in shares of the n-grams."""
    found = document_frequencies(Captions(share, "all", tokenizer, ""))
    table = pa.table([found.ngram, pa.array(found.images)], schema=FREQUENCY_SCHEMA)
    of = np.array([crc32(ngram.encode()) % NGRAM_SHARES for ngram in found.ngram.to_pylist()], np.int64)
    return ((int(k), table.filter(pa.array(of == k))) for k in np.unique(of))


def added(tables: Iterable[pa.Table]) -> pa.Table:
    """Document frequencies of several shares of the images, together."""
    found = pa.concat_tables(tables).group_by("ngram").aggregate([("images", "sum")])
    return pa.table([found["ngram"], found["images_sum"].cast(pa.int32())], schema=FREQUENCY_SCHEMA)


def with_frequencies(captions: Captions, tables: Iterable[pa.Table]) -> CountedCaptions:
    """The captions with their document frequencies, which are in tables of different n-grams."""
    table = pa.concat_tables(tables).combine_chunks()
    ngram, images = table["ngram"].combine_chunks(), table["images"].to_numpy()
    found = DocumentFrequencies(ngram, images, captions.n_images, f"captions {captions.digest}")
    return CountedCaptions(captions.table, captions.split, captions.tokenizer, captions.digest, found)


def write_sorted(out: Path, shares: Iterable[pa.Table], params: CaptionsParams) -> None:
    """Write the captions of all shares as `capgrade captions` does, sorted by image id and caption id; they are no
    Python objects. InputError as `checked`."""
    tables = [share.cast(LARGE) for share in shares]
    table = pa.concat_tables(tables or [LARGE.empty_table()])
    table = table.take(pc.sort_indices(table, [("image_id", "ascending"), ("caption_id", "ascending")]))
    _refuse(table, params)
    warn_of_scripts(table["caption"].slice(0, BATCH).to_pylist(), params.tokenizer)
    images = pc.count_distinct(table["image_id"]).as_py()
    facts = {"images": images, "splits": {"all": table.num_rows}, "dropped_empty": 0}
    write_table(out, _batches(table.combine_chunks()), params, facts)


def _refuse(table: pa.Table, params: CaptionsParams) -> None:
    """Hand `checked` those captions that it refuses, if there are any."""
    ids = pc.value_counts(table["caption_id"])
    twice = ids.field("values").filter(pc.greater(ids.field("counts"), 1))
    wrong = pc.or_(pc.is_in(table["caption_id"], twice), pc.equal(pc.list_value_length(table["tokens"]), 0))
    rows = np.flatnonzero(wrong)
    if len(rows) or not table.num_rows:
        columns = [table[name].take(pa.array(rows)).to_pylist() for name in ("image_id", "caption_id", "caption")]
        records = zip(*columns, rows.tolist(), strict=True)
        checked([Caption(image, caption, "all", text, WHERE, row) for image, caption, text, row in records], params)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    for at, stop in pairwise(cuts(pc.binary_length(table["caption"]).to_numpy())):
        yield from table.slice(at, stop - at).cast(SCHEMA).combine_chunks().to_batches()
