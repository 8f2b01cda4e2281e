"""Stage `captions`: a source's captions, checked and tokenised, as one Arrow table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.measures.language import warn_of_scripts
from capgrade.pipelines.measures.tokens import ptb_jar, tokenize
from capgrade.pipelines.sources import SOURCES
from capgrade.schemas.captions import FILE, SCHEMA, Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digests, with_metadata, write_arrow, write_manifest
from capgrade.schemas.inputs import folder_digest
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import CaptionsParams

BATCH = 65_536  # captions
BATCH_BYTES = 2**30  # of their text: Arrow's offsets within a batch have 32 bits


def captions(out: Path, params: CaptionsParams) -> dict[str, Any]:
    """Read a source and write `captions.arrow`, one row per caption in the order of the source; for `scenes` also the
    images and the truth behind them. Returns the manifest.

    Raises InputError, naming file and row, for whatever is wrong in the source: duplicate caption ids, an image
    in two splits, empty captions (unless `empty: drop`), an image left without captions; and for an `out` that another
    stage wrote.
    """
    with output_folder(out, "captions"):
        return _captions(out, params)


def _captions(out: Path, params: CaptionsParams) -> dict[str, Any]:
    if params.source == "scenes":
        from capgrade.pipelines.sources import scenes

        world = scenes.generate(params.scenes)
        records, extra = world.captions, scenes.write(world, out)
    else:
        records, extra = list(SOURCES[params.source](params)), {}
    return write_records(out, records, params, extra)


def write_records(
    out: Path, records: list[Caption], params: CaptionsParams, extra: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Check and tokenise captions and write them, in this order; `extra` files with their rows are there already.
    Returns the manifest. InputError as `captions`."""
    records, tokens, dropped = checked(records, params)
    splits, images = dict(Counter(r.split for r in records)), len({r.image_id for r in records})
    facts = {"images": images, "splits": splits, "dropped_empty": dropped}
    return write_table(out, caption_batches(records, tokens), params, facts, extra)


def write_table(
    out: Path, batches: Iterable[pa.RecordBatch], params: CaptionsParams, facts: Mapping[str, Any],
    extra: Mapping[str, int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write batches of SCHEMA, which are checked, in this order; `facts` are for the manifest. Returns it."""
    inputs = _inputs(params)
    metadata = {"kind": "captions", "source": params.source, "tokenizer": params.tokenizer, "inputs": inputs}
    rows = {FILE: write_arrow(out / FILE, with_metadata(SCHEMA, metadata), batches), **(extra or {})}
    return write_manifest(out, "captions", params=params.model_dump(mode="json"), inputs=inputs, rows=rows, **facts)


def checked(records: list[Caption], params: CaptionsParams) -> tuple[list[Caption], list[list[str]], int]:
    """The records that stay, their tokens, and how many empty ones were dropped; refuses what a source may not give."""
    if not records:
        remedy = "check that it is whole, and the source's format"
        raise InputError("no captions: empty, or a header alone", file=params.input, remedy=remedy)
    _refuse_duplicates(records)
    _refuse_split_images(records)
    warn_of_scripts([r.text for r in records], params.tokenizer)
    tokens = tokenize(params.tokenizer, [r.text for r in records])
    empty = [k for k, words in enumerate(tokens) if not words]
    if empty and params.empty == "refuse":
        record = records[empty[0]]
        raise InputError(
            f"caption '{record.caption_id}' has no words ({record.text!r}), {len(empty)} such in all",
            file=record.file, row=record.row, remedy="mend them, or leave them out: --set captions.empty=drop",
        )  # fmt: skip
    gone = set(empty)
    kept = [r for k, r in enumerate(records) if k not in gone]
    bare = {r.image_id: r for r in records}.keys() - {r.image_id for r in kept}
    if bare:
        record = next(r for r in records if r.image_id in bare)
        raise InputError(
            f"image '{record.image_id}' has no caption left once empty ones are dropped",
            file=record.file, row=record.row, remedy="remove the image or give it a caption",
        )  # fmt: skip
    return kept, [words for words in tokens if words], len(empty)


def _refuse_duplicates(records: Iterable[Caption]) -> None:
    seen: dict[str, Caption] = {}
    for record in records:
        first = seen.setdefault(record.caption_id, record)
        if first is not record:
            raise InputError(
                f"duplicate caption id '{record.caption_id}', first at row {first.row}",
                file=record.file, row=record.row, remedy="caption ids must be unique",
            )  # fmt: skip


def _refuse_split_images(records: Iterable[Caption]) -> None:
    split_of: dict[str, str] = {}
    for record in records:
        first = split_of.setdefault(record.image_id, record.split)
        if first != record.split:
            raise InputError(
                f"image '{record.image_id}' is in split '{first}' and in '{record.split}'",
                file=record.file, row=record.row, remedy="an image belongs to one split",
            )  # fmt: skip


def caption_batches(records: list[Caption], tokens: list[list[str]]) -> Iterable[pa.RecordBatch]:
    """Captions and their tokens as batches of SCHEMA."""
    for at, stop in pairwise(cuts([len(r.text.encode()) for r in records])):
        part = records[at:stop]
        columns = [
            pa.array([r.image_id for r in part]),
            pa.array([r.caption_id for r in part]),
            pa.array([r.split for r in part]),
            pa.array([r.text for r in part]),
            pa.array(tokens[at:stop], pa.list_(pa.string())),
            pa.array([r.image_file for r in part], pa.string()),
        ]
        yield pa.record_batch(columns, schema=SCHEMA)


def cuts(sizes: Sequence[int] | np.ndarray) -> list[int]:
    """Where batches begin, and the end, of captions of so many bytes."""
    found, room = [0], BATCH_BYTES
    for row, size in enumerate(sizes):
        if row - found[-1] == BATCH or (size > room and row > found[-1]):
            found.append(row)
            room = BATCH_BYTES
        room -= int(size)
    return [*found, len(sizes)] if len(sizes) else []


def _inputs(params: CaptionsParams) -> dict[str, str]:
    """SHA-256 of each file or folder the source read, by name, and of Java's tokenizer; of a SCAN folder the text files
    of the splits, no features."""
    given = [Path(p) for p in (params.input, *params.split_lists.values()) if p is not None]
    folders = [path for path in given if path.is_dir()]
    if params.source == "precomp":
        given, folders = [*given, *(text for folder in folders for text in sorted(folder.glob("*.txt")))], []
    files = [path for path in given if path.is_file()] + ([ptb_jar()] if params.tokenizer == "ptb" else [])
    return {**digests(files), **{folder.resolve().name: folder_digest(folder) for folder in folders}}
