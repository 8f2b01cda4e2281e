"""Plausible-match R-Precision: positives are the items whose image has (nearly) the same object classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.metrics.base import Block, Matrix, as_numpy, of_matrix
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.compiled import njit
from capgrade.schemas.errors import InputError

ZETAS = (0, 1, 2)
CLASSES = 90  # of COCO: category ids are 1..90 with gaps


@njit(cache=True, nogil=True)
def _wanted(distance, zetas, wanted):
    """Number of matches in the gallery at each zeta."""
    counts = np.zeros(zetas.max() + 1, np.int64)
    for d in distance:
        if 0 <= d < counts.size:
            counts[d] += 1
    for z in range(zetas.size):
        wanted[z] = counts[: zetas[z] + 1].sum()


@njit(cache=True, nogil=True)
def _kernel(order, end, distance, zetas):
    """distance (b, n), below 0 for a candidate that is left out."""
    rows, n = order.shape
    out = np.full(rows, np.nan)
    wanted, found = np.empty(zetas.size, np.int64), np.empty(zetas.size, np.int64)
    hits = np.empty(zetas.size)
    for row in range(rows):
        _wanted(distance[row], zetas, wanted)
        pos, filled = 0, 0
        hits[:] = 0.0
        while pos < n and filled < wanted.max():
            size = 0
            found[:] = 0
            for p in range(pos, end[row, pos]):
                d = distance[row, order[row, p]]
                size += d >= 0
                for z in range(zetas.size):
                    found[z] += 0 <= d <= zetas[z]
            for z in range(zetas.size):
                if size > 0 and filled < wanted[z]:
                    hits[z] += found[z] * min(size, wanted[z] - filled) / size
            filled += size
            pos = end[row, pos]
        if wanted.min() > 0:
            out[row] = (hits / wanted).mean()
    return out


def pmrp_of(block: Block) -> Array:
    """`pmrp` of a block; the task's codes are (of queries, of candidates)."""
    if block.queries.codes is None:
        raise InputError("PMRP needs class vectors", remedy="give COCO's instances json or a matrix of 0 and 1")
    queries, candidates = block.queries.codes
    distance = hamming(queries[block.start : block.stop], candidates)
    annotated = queries[block.start : block.stop].any(axis=1)
    distance[:, ~candidates.any(axis=1)] = -1
    ranking = block.ranking()
    scores = _kernel(ranking.order, ranking.end, distance, np.array(ZETAS))
    return np.where(annotated, scores, np.nan)


def hamming(left: Array, right: Array) -> Array:
    """Number of classes that one has and the other lacks, (len(left), len(right)) int32."""
    x, y = left.astype(np.float32), right.astype(np.float32)
    return (x.sum(1)[:, None] + y.sum(1)[None] - 2 * (x @ y.T)).round().astype(np.int32)


def pmrp(scores: Matrix, query_codes: Matrix, candidate_codes: Matrix, *, ties: Ties = "expected") -> Any:
    """PMRP: R-Precision with the candidates as positives whose object classes differ from the query's in at most zeta
    places, mean over zeta = 0, 1, 2; in [0, 1].

    Codes are 0/1, [Q, classes] and [N, classes], as `coco_codes` gives them. As evaluate_pmrp_coco.py of PCME (Chun et
    al. 2021): images without any class (a row of zeros) are dropped, as queries (NaN) and from the gallery; own items
    stay and always match.

    >>> pmrp(np.array([[0.9, 0.2]]), np.array([[1, 0, 0]]), np.array([[0, 1, 1], [1, 0, 0]]))
    array([0.])
    """
    shape = as_numpy(scores).shape
    both = as_numpy(query_codes), as_numpy(candidate_codes)
    for name, codes, rows in zip(("query", "candidate"), both, shape, strict=True):
        if codes.ndim != 2 or len(codes) != rows or not np.isin(codes, (0, 1)).all():
            problem = f"{name} class vectors {codes.shape} for a similarity {shape}"
            raise InputError(problem, remedy="give one row of 0 and 1 each")
    return of_matrix(scores, pmrp_of, codes=both, ties=ties)


def coco_codes(path: str | Path, image_ids: Sequence[object]) -> Array:
    """Class vectors (n_images, 90) from a COCO instances json, category_id - 1; zeros where nothing is annotated.

    InputError for another file, and for one that annotates none of the images.

    >>> import json
    >>> _ = Path("instances.json").write_text(json.dumps({"annotations": [{"image_id": 7, "category_id": 3}]}))
    >>> coco_codes("instances.json", image_ids=[5, 7]).sum(axis=1)
    array([0, 1], dtype=uint64)
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no such instances json", file=path, remedy="give COCO's instances_val2014.json")
    try:
        annotations = json.loads(path.read_text(encoding="utf-8"))["annotations"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"not COCO instances: {error!r}", file=path, remedy="it needs 'annotations'") from error
    rows = {str(item): row for row, item in enumerate(image_ids)}
    codes = np.zeros((len(rows), CLASSES), np.uint8)
    for number, annotation in enumerate(annotations):
        row, category = rows.get(str(annotation["image_id"])), int(annotation["category_id"])
        if not 1 <= category <= CLASSES:
            where = f"annotations[{number}]"
            raise InputError(f"category_id {category}", file=path, row=where, remedy="COCO ids are 1..90")
        if row is not None:
            codes[row, category - 1] = 1
    if not codes.any():
        raise InputError("annotates none of the images", file=path, remedy="use the json of the same split")
    return codes
