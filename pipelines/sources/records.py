"""Rows with named fields, from a table or a Hugging Face dataset, as captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from capgrade.pipelines.sources.fields import Position, as_id, as_text, required
from capgrade.schemas.captions import Caption
from capgrade.schemas.params import Columns

REMEDY = "every row needs the same fields as the first"
OPTIONAL = ("caption_id", "split")
IN_ALL = "give it in every row, or in none"
Record = tuple[Position, Mapping[str, Any]]


@dataclass(frozen=True)
class Fields:
    """The columns that a source really has for each field; None where it has none and need not."""

    image_id: str
    caption: str
    caption_id: str | None
    split: str | None

    @classmethod
    def found(cls, columns: Columns, present: Collection[str], position: Position) -> Fields:
        """Match the columns asked for with those present. InputError naming the first that is missing."""
        for field, name in columns:  # as a pydantic model yields them
            if name is not None and name not in present:
                remedy = f"name the right one with --column {field}=NAME; there are: {', '.join(present)}"
                raise position.refuse(f"no column '{name}' for the {field}", remedy)
        optional = {field: field if field in present else None for field in OPTIONAL}
        return cls(
            columns.image_id,
            columns.caption,
            columns.caption_id or optional["caption_id"],
            columns.split or optional["split"],
        )

    def unread(self, present: Collection[str]) -> str | None:
        """The first optional field among these that is not read, as it was not there when the fields were found."""
        return next((name for name in OPTIONAL if getattr(self, name) is None and name in present), None)

    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.image_id, self.caption, self.caption_id, self.split) if name is not None]


def captions_of(records: Iterable[Record], fields: Fields, split: str) -> Iterator[Caption]:
    """One caption for each text of each record, in order; `split` is for records without a split of their own.

    Captions without an id are called `<image id>#<k>`, k counting the captions of that image from 0.
    Raises InputError for a missing field, one of the wrong type, an id count that is not the captions', and an optional
    field that only some records have.
    """
    counts: Counter[str] = Counter()
    for position, record in records:
        if name := fields.unread(record):
            raise position.refuse(f"'{name}', which rows before this one do not have", IN_ALL)
        image_id = as_id(required(record, fields.image_id, position, REMEDY), fields.image_id, position)
        texts = _texts(required(record, fields.caption, position, REMEDY), fields.caption, position)
        start = counts[image_id]
        counts[image_id] += len(texts)
        if fields.caption_id is None:
            caption_ids = [f"{image_id}#{k}" for k in range(start, start + len(texts))]
        else:
            value = required(record, fields.caption_id, position, IN_ALL)
            caption_ids = _ids(value, fields.caption_id, len(texts), position)
        own = split
        if fields.split is not None:
            own = as_id(required(record, fields.split, position, IN_ALL), fields.split, position)
        for caption_id, text in zip(caption_ids, texts, strict=True):
            yield Caption(image_id, caption_id, own, text, position.file, position.row)


def _texts(value: Any, name: str, position: Position) -> list[str]:
    if isinstance(value, list):
        if not value:
            raise position.refuse(f"'{name}' is an empty list", "drop the row or give the image a caption")
        return [as_text(text, name, position) for text in value]
    return [as_text(value, name, position)]


def _ids(value: Any, name: str, count: int, position: Position) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if len(values) != count:
        problem = f"{len(values)} caption ids in '{name}' for {count} captions"
        raise position.refuse(problem, "give an id for each caption, or leave the column out")
    return [as_id(value, name, position) for value in values]
