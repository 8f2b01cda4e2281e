"""What labels know of their pairs, as judgements of TREC files have it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.trec import refuse_spaces, write_trec

if TYPE_CHECKING:
    from capgrade.labels import Labels

_SEPARATORS = {"\t", "\n", "\r"}  # of fields and lines


def write_qrels(
    labels: Labels,
    path: Path,
    measure: str,
    grades: Sequence[float],
    queries: str,
    force: bool = False,
) -> int:
    """As `Labels.to_qrels`."""
    edges = np.asarray(grades, np.float64)
    if edges.ndim != 1 or not len(edges) or (np.diff(edges) <= 0).any():
        raise InputError(
            f"grades {list(grades)}", remedy="give rising thresholds, such as [0.25, 0.5, 0.75]"
        )
    query, document, values = judgements(labels, measure, queries)
    columns = [query.to_pylist(), document.to_pylist(), grades_of(values, grades).tolist()]
    refuse_spaces(set(columns[0]), "query")
    refuse_spaces(set(columns[1]), "document")
    lines = [f"{q} 0 {d} {grade}\n" for q, d, grade in zip(*columns, strict=True)]
    write_trec(path, lines, force)
    return len(values)


def write_qrels_tsv(labels: Labels, path: Path, measure: str, queries: str) -> int:
    """Judgements with the columns of mteb and BEIR, between tabs: query-id, corpus-id, and as score
    the value in hundredths, rounded. Returns how many. InputError for an id with a tab or a line
    break."""
    query, document, values = judgements(labels, measure, queries)
    columns = query.to_pylist(), document.to_pylist(), np.rint(100 * values).astype(int).tolist()
    if bad := next((name for name in (*columns[0], *columns[1]) if _SEPARATORS & set(name)), None):
        raise InputError(f"id {bad!r} has a tab or a line break", file=path, remedy="rename it")
    lines = (f"{q}\t{d}\t{grade}\n" for q, d, grade in zip(*columns, strict=True))
    write_text(path, "query-id\tcorpus-id\tscore\n" + "".join(lines))
    return len(values)


def grades_of(values: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    """How many rising thresholds each value reaches, int64 [n]: as float32, as labels are, so that
    0.7 reaches 0.7."""
    return np.searchsorted(
        np.asarray(thresholds, np.float32), values.astype(np.float32), side="right"
    )


def judgements(labels: Labels, measure: str, queries: str) -> tuple[pa.Array, pa.Array, np.ndarray]:
    """As `Labels.judgements`."""
    if queries not in ("captions", "images"):
        raise InputError(f"queries {queries!r}", remedy="use captions or images")
    pairs = Pairs.concatenate(labels.stored.pairs(measure))
    image, caption, values = pairs.image, pairs.caption, pairs.value
    order = np.argsort(caption, kind="stable") if queries == "captions" else np.arange(len(image))
    images = pa.array(labels.image_ids, pa.string()).take(pa.array(image[order]))
    captions = pa.array(labels.caption_ids, pa.string()).take(pa.array(caption[order]))
    pair = (captions, images) if queries == "captions" else (images, captions)
    return *pair, values[order].astype(np.float64)
