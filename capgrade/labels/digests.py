"""Captions that are published without their texts: digests, and the texts that belong to them."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pyarrow as pa

from capgrade.schemas.captions import SCHEMA, Captions, read_captions, splits_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

_OTHER_TEXT = "have another text under their id"
_NO_CAPTION = "are of images that have no such caption there"
_NO_IMAGE = "are of images that are not there"


def text_digest(text: str) -> str:
    """SHA-256 of a caption, in UTF-8, as 64 digits.

    Of the text two things count for nothing, as copies of one corpus differ in them: white space
    (one space for any run, none at the ends), and which of Unicode's equal spellings a letter has
    (NFC). Case, punctuation and accents count.

    >>> text_digest(" Two dogs\\n") == text_digest("Two  dogs") != text_digest("two dogs")
    True
    """
    return hashlib.sha256(" ".join(normalize("NFC", text).split()).encode()).hexdigest()


def join_texts(captions: Captions, digests: list[str], source: Path) -> Captions:
    """Captions with texts and tokens from a folder of `capgrade captions`, of any of its splits:
    a caption has the text that has its digest. What is not there stays null, and a warning counts
    it by reason.

    InputError for tokens by another tokenizer, and where no text is there.
    """
    there = read_captions(source, "+".join(splits_of(source)))
    if there.tokenizer != captions.tokenizer:
        remedy = f"make them with --set captions.tokenizer={captions.tokenizer}"
        problem = f"tokens by {there.tokenizer}, and the labels are by {captions.tokenizer}"
        raise InputError(problem, file=source, remedy=remedy)
    row_of: dict[str, int] = {}
    for row, text in enumerate(there.texts):
        row_of.setdefault(text_digest(text), row)
    rows = np.array([row_of.get(one, -1) for one in digests], np.int64)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        said = _say_missing(captions, missing, there)
        if len(missing) == len(rows):
            remedy = "give the captions that the labels are of: capgrade captions"
            raise InputError(f"no text of these labels: {said}", file=source, remedy=remedy)
        known = "their ids and labels are here, their texts are not"
        warn(f"{source}: {len(missing):,} of {len(rows):,} captions do not fit: {said}; {known}")
    take = pa.array(rows, mask=rows < 0)
    table = captions.table
    for name in ("caption", "tokens"):
        column = there.table[name].combine_chunks().take(take)
        table = table.set_column(table.schema.get_field_index(name), nullable(name), column)
    return Captions(table, captions.split, captions.tokenizer, captions.digest)


def nullable(name: str) -> pa.Field:
    """A column of the captions table, whose values need not be known."""
    return SCHEMA.field(name).with_nullable(True)


def _say_missing(captions: Captions, missing: np.ndarray, there: Captions) -> str:
    """Why texts are missing, counted by the reason."""
    reasons: Counter[str] = Counter()
    for row in missing:
        image = captions.image_ids[captions.owner[row]]
        if captions.caption_ids[row] in there.caption_numbers:
            reasons[_OTHER_TEXT] += 1
        else:
            reasons[_NO_CAPTION if image in there.image_numbers else _NO_IMAGE] += 1
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
