"""Plausible-match R-Precision: positives are the items whose image has (nearly) the same object
classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.metrics.base import Matrix, QueryBlock, check_matrix, score_matrix, share
from capgrade.metrics.ranking import TieRule
from capgrade.schemas.arrays import Array, as_numpy
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json

ZETAS = (0, 1, 2)
_CLASSES = 90  # of COCO: category ids are 1..90 with gaps


def pmrp_of(block: QueryBlock) -> Array:
    """`pmrp` of a block; the task's codes are (of queries, of candidates)."""
    # Whoever names a metric has checked that the task holds what the metric needs.
    assert block.queries.codes is not None
    queries, candidates = block.queries.codes[0][block.start : block.stop], block.queries.codes[1]
    distance, annotated = hamming(queries, candidates), np.asarray(candidates.any(axis=1))
    left_out, values = (np.zeros(len(queries), np.int64), annotated.astype(np.int64)), []
    for zeta in ZETAS:
        match = (distance <= zeta) & annotated
        wanted = match.sum(axis=1)
        hits = block.gains_at(block.ranking, match.astype(np.float32), int(wanted.max()), left_out)
        first = np.arange(hits.shape[1]) < wanted[:, None]
        values.append(share((hits * first).sum(axis=1), wanted, np.nan))
    return np.where(queries.any(axis=1), np.mean(values, axis=0), np.nan)


def hamming(left: Array, right: Array) -> Array:
    """Number of classes that one has and the other lacks, (len(left), len(right)) int32."""
    x, y = left.astype(np.float32), right.astype(np.float32)
    return (x.sum(1)[:, None] + y.sum(1)[None] - 2 * (x @ y.T)).round().astype(np.int32)


def pmrp(
    scores: Matrix, query_codes: Matrix, candidate_codes: Matrix, *, ties: TieRule = "expected"
) -> Any:
    """PMRP: R-Precision with the candidates as positives whose object classes differ from the
    query's in at most zeta places, mean over zeta = 0, 1, 2; in [0, 1].

    Codes are 0/1, [Q, classes] and [N, classes], as `coco_codes` gives them. As
    evaluate_pmrp_coco.py of PCME (Chun et al. 2021): images without any class (a row of zeros) are
    dropped, as queries (NaN) and from the gallery; own items stay and always match.

    >>> pmrp(np.array([[0.9, 0.2]]), np.array([[1, 0, 0]]), np.array([[0, 1, 1], [1, 0, 0]]))
    array([0.])
    """
    check_matrix("similarity", similarity := as_numpy(scores))
    rows, columns = similarity.shape
    codes = (
        check_codes("query", query_codes, rows),
        check_codes("candidate", candidate_codes, columns),
    )
    return score_matrix(scores, pmrp_of, codes=codes, ties=ties)


def check_codes(what: str, codes: Matrix, rows: int) -> Array:
    """Class vectors [rows, classes]. InputError for others than 0 and 1, and for another number of
    rows."""
    vectors = as_numpy(codes)
    if vectors.ndim != 2 or len(vectors) != rows or not np.isin(vectors, (0, 1)).all():
        problem = (
            f"{what} class vectors are {vectors.dtype} {list(vectors.shape)}, {what} rows {rows}"
        )
        raise InputError(problem, remedy=f"give one row of 0 and 1 for each {what}")
    return vectors


def coco_codes(path: str | Path, image_ids: Sequence[object]) -> Array:
    """Class vectors (n_images, 90) from a COCO instances json, category_id - 1; zeros where nothing
    is annotated.

    InputError for another file, and for one that annotates none of the images.

    >>> import json
    >>> _ = Path("instances.json").write_text(json.dumps({"annotations": [{"image_id": 7,
    ...     "category_id": 3}]}))
    >>> coco_codes("instances.json", image_ids=[5, 7]).sum(axis=1)
    array([0, 1], dtype=uint64)
    """
    path = Path(path)
    remedy = (
        'give COCO\'s instances: {"annotations": [{"image_id": .., "category_id": 1 to 90}, ...]}'
    )
    content = read_json(path, remedy)
    annotations = content.get("annotations") if isinstance(content, dict) else None
    if not isinstance(annotations, list):
        raise InputError("no list of annotations", file=path, remedy=remedy)
    rows = {str(item): row for row, item in enumerate(image_ids)}
    codes = np.zeros((len(rows), _CLASSES), np.uint8)
    for number, annotation in enumerate(annotations):
        entry = annotation if isinstance(annotation, dict) else {}
        image, category = entry.get("image_id"), entry.get("category_id")
        if image is None or not isinstance(category, int) or not 1 <= category <= _CLASSES:
            problem = f"image_id {image!r}, category_id {category!r}"
            raise InputError(problem, file=path, row=f"annotations[{number}]", remedy=remedy)
        if str(image) in rows:
            codes[rows[str(image)], category - 1] = 1
    if not codes.any():
        raise InputError(
            "annotates none of the images", file=path, remedy="use the json of the same split"
        )
    return codes
