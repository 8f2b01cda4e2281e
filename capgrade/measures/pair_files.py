"""Scores of some pairs that others computed: a CSV, TSV, JSON Lines or Parquet file.

A row is a pair, with `image_id`, `caption_id` and `score`, or a list: `image_id` with `caption_ids`
and `scores`, or `caption_id` with `image_ids` and `scores`, as judges of the first fifty write
them. A pair that comes several times has the mean of its scores. A pair that is not there is not
known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import number, open_table, parse_json, read_lines, text_of_cell
from capgrade.schemas.reading import reading

_FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
_ROW = ("image_id", "caption_id", "score")
_LISTS = (("image_id", "caption_ids", "scores"), ("caption_id", "image_ids", "scores"))
_REMEDY = "name the columns image_id, caption_id, score; or image_id, caption_ids, scores"


def are_pairs(path: Path) -> bool:
    """Whether a file is one of pairs, by its suffix."""
    return path.suffix.lower() in _FORMATS


def read_pairs(path: Path, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that are known, as image * n_captions + caption, int64 and rising, and their
    scores, float32.

    InputError for other columns, an id that the captions lack, lists of different lengths, a score
    that is no finite number, and a file without pairs.
    """
    images, texts, scores = [], [], []
    for row, image_id, caption_id, score in _scores(path):
        image = captions.image_numbers.get(image_id)
        caption = captions.caption_numbers.get(caption_id)
        if image is None or caption is None:
            problem = f"image '{image_id}', caption '{caption_id}' are not both among the captions"
            raise InputError(problem, file=path, row=row, remedy="give scores of these captions")
        images.append(image)
        texts.append(caption)
        scores.append(number(str(score), path, row))
    if not scores:
        raise InputError("no pairs", file=path, remedy=_REMEDY)
    codes = np.array(images, np.int64) * captions.n_captions + np.array(texts, np.int64)
    different, at = np.unique(codes, return_inverse=True)
    means = np.bincount(at, scores) / np.bincount(at)
    return different, means.astype(np.float32)


def _scores(path: Path) -> Iterator[tuple[int, str, str, Any]]:
    """Row, image id, caption id and score of each pair, in the file's order."""
    columns, rows = _rows(path)
    if set(_ROW) <= columns:
        for row, values in rows:
            yield row, str(values["image_id"]), str(values["caption_id"]), values["score"]
        return
    form = next((names for names in _LISTS if set(names) <= columns), None)
    if form is None:
        raise InputError(f"no columns {', '.join(_ROW)}", file=path, row=1, remedy=_REMEDY)
    query, several, found = form
    for row, values in rows:
        items, scores = (_as_list(values[name], name, path, row) for name in (several, found))
        if len(items) != len(scores):
            problem = f"{len(items)} {several}, and {len(scores)} scores"
            raise InputError(problem, file=path, row=row, remedy="give a score for each")
        for item, score in zip(items, scores, strict=True):
            ids = (str(values[query]), str(item))
            yield row, *(ids if query == "image_id" else ids[::-1]), score


def _rows(path: Path) -> tuple[set[str], Iterable[tuple[int, Mapping[str, Any]]]]:
    """The columns, and each row with its number."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with reading(path, "Parquet file"):
            table = pq.read_table(path)
            return set(table.column_names), enumerate(table.to_pylist(), start=1)
    if suffix == ".jsonl":
        return _json_rows(path)
    header, rows = open_table(path, "\t" if suffix == ".tsv" else ",")
    texts = ((row, {k: text_of_cell(v) for k, v in values.items()}) for row, values in rows)
    return set(header), texts


def _json_rows(path: Path) -> tuple[set[str], Iterable[tuple[int, Mapping[str, Any]]]]:
    found: list[tuple[int, Mapping[str, Any]]] = []
    for row, line in read_lines(path):
        values = parse_json(line, path, first_row=row)
        if not isinstance(values, dict):
            raise InputError("no object", file=path, row=row, remedy=_REMEDY)
        if found and values.keys() != found[0][1].keys():
            problem = f"fields {', '.join(values)}, of the first row {', '.join(found[0][1])}"
            raise InputError(problem, file=path, row=row, remedy="give every row the same fields")
        found.append((row, values))
    return set(found[0][1]) if found else set(), found


def _as_list(value: Any, name: str, path: Path, row: int) -> list[Any]:
    if isinstance(value, str):
        value = parse_json(value, path, first_row=row)
    if not isinstance(value, list):
        raise InputError(f"{name} is no list", file=path, row=row, remedy=_REMEDY)
    return value
