"""Stage `captions`: a source's captions, checked and tokenised, as one Arrow table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.sources import digest_inputs, read_source
from capgrade.pipelines.stages.captions import CAPTIONS, CaptionsParams
from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import CAPTIONS_FILE, SCHEMA, Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import output_folder
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import warn
from capgrade.text.language import warn_of_scripts
from capgrade.text.tokens import tokenize

# Why captions are left out, and images with them.
ABSENT, WORDLESS, BARE = "captions absent", "captions without words", "images left without captions"
BATCH = 65_536  # captions
BATCH_BYTES = 2**30  # of their text: Arrow's offsets within a batch have 32 bits


def captions(out: Path, params: CaptionsParams) -> dict[str, Any]:
    """Read a source and write `captions.arrow`, one row per caption in the order of the source; for
    `scenes` also the images and the truth behind them. Returns the manifest.

    Raises InputError, naming file and row, for whatever is wrong in the source: duplicate caption
    ids, an image in two splits, empty captions (unless `empty: drop`), an image left without
    captions; and for an `out` that another stage wrote.
    """
    with output_folder(out, CAPTIONS.name) as folder:
        if params.source != "scenes":
            left_out = Counter[str]()
            records = read_source(params, left_out)
            return write_records(folder, records, params, left_out=left_out)
        from capgrade.pipelines.sources import scenes

        world = scenes.generate(params.scenes)
        return write_records(folder, world.captions, params, scenes.write(world, folder))


def write_records(
    out: Path,
    records: list[Caption],
    params: CaptionsParams,
    extra: Mapping[str, int] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Check and tokenise captions and write them, in this order; `extra` files with their rows are
    there already, and the source has `left_out` so many of what, by reason. Returns the manifest.
    InputError as `captions`."""
    records, tokens, dropped = checked(records, params)
    splits, images = dict(Counter(r.split for r in records)), len({r.image_id for r in records})
    twins = len(records) - len({(r.image_id, r.text) for r in records})
    facts = {
        "images": images,
        "splits": splits,
        "left_out": {**(left_out or {}), **dropped},
        "duplicates": twins,
    }
    if twins:
        warn(
            f"{twins:,} captions repeat another caption of their image word for word: a value with"
            " the caption left out of its references (sbert_left_out) is then that of its twin,"
            " the highest there is"
        )
    return write_captions_table(out, caption_batches(records, tokens), params, facts, extra)


def write_captions_table(
    out: Path,
    batches: Iterable[pa.RecordBatch],
    params: CaptionsParams,
    facts: Mapping[str, Any],
    extra: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Write batches of SCHEMA, which are checked, in this order; `facts` are for the manifest.
    Returns it."""
    run = StageRun(stage=CAPTIONS, params=params, inputs=digest_inputs(params))
    metadata = {
        "kind": CAPTIONS.name,
        "source": params.source,
        "tokenizer": params.tokenizer,
        "inputs": run.inputs,
    }
    rows = {
        CAPTIONS_FILE: write_arrow(out / CAPTIONS_FILE, with_metadata(SCHEMA, metadata), batches),
        **(extra or {}),
    }
    return run.finish(out, rows, **facts)


def checked(
    records: list[Caption], params: CaptionsParams
) -> tuple[list[Caption], list[list[str]], dict[str, int]]:
    """The records that stay, their tokens, and how many were dropped, by reason; refuses what a
    source may not give."""
    if not records:
        remedy = "check that it is whole, and the source's format"
        raise InputError(
            "no captions: empty, or a header alone", file=" ".join(params.inputs), remedy=remedy
        )
    first: dict[str, Caption] = {}
    split_of: dict[str, str] = {}
    for record in records:
        same = first.setdefault(record.caption_id, record)
        if same is not record:
            problem = f"duplicate caption id '{record.caption_id}', first at row {same.row}"
            raise _refused(record, problem, "caption ids must be unique")
        split = split_of.setdefault(record.image_id, record.split)
        if split != record.split:
            problem = f"image '{record.image_id}' is in split '{split}' and in '{record.split}'"
            raise _refused(record, problem, "an image belongs to one split")
    texts = [record.text for record in records]
    warn_of_scripts(texts, params.tokenizer)
    tokens = tokenize(params.tokenizer, texts)
    kept, kept_tokens, empty = list[Caption](), list[list[str]](), list[Caption]()
    counts = Counter[str]()
    has_words = dict[str, bool]()  # of each image: whether a caption stays
    for record, words in zip(records, tokens, strict=True):
        has_words[record.image_id] = bool(words) or has_words.get(record.image_id, False)
        if words:
            kept.append(record)
            kept_tokens.append(words)
        else:
            empty.append(record)
            counts[WORDLESS if record.text else ABSENT] += 1
    summary = " and ".join(f"{count:,} {reason}" for reason, count in counts.items())
    if empty and params.empty == "refuse":
        what = f"has no words ({empty[0].text!r})" if empty[0].text else "is absent"
        problem = f"caption '{empty[0].caption_id}' {what}; in all {summary}"
        drop = 'empty="drop"' if params.source == "memory" else "--set captions.empty=drop"
        raise _refused(empty[0], problem, f"mend them, or leave them out: {drop}")
    if not kept:
        problem = f"no caption with words: {summary}"
        raise _refused(empty[0], problem, "name the column or key that holds captions")
    if bare := list(has_words.values()).count(False):
        counts[BARE] = bare
    return kept, kept_tokens, dict(counts)


def _refused(record: Caption, problem: str, remedy: str) -> InputError:
    return InputError(problem, file=record.file, row=record.row, remedy=remedy)


def caption_batches(records: list[Caption], tokens: list[list[str]]) -> Iterable[pa.RecordBatch]:
    """Captions and their tokens as batches of SCHEMA."""
    for at, stop in pairwise(cuts([len(r.text.encode()) for r in records])):
        part, columns = records[at:stop], dict[str, Any]()
        # By column, as millions of objects for rows would cost three times as long.
        for name in ("image_id", "caption_id", "split", "text", "image_file"):
            columns[name] = [getattr(record, name) for record in part]
        columns |= {"caption": columns.pop("text"), "tokens": tokens[at:stop]}
        yield pa.RecordBatch.from_pydict(columns, SCHEMA)


def cuts(sizes: Sequence[int] | np.ndarray) -> list[int]:
    """Where batches begin, and the end, of captions of so many bytes."""
    starts, left = [0], BATCH_BYTES
    for row, size in enumerate(sizes):
        if row - starts[-1] == BATCH or (size > left and row > starts[-1]):
            starts.append(row)
            left = BATCH_BYTES
        left -= int(size)
    return [*starts, len(sizes)] if len(sizes) else []
