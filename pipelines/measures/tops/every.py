"""The captions of highest relevance from all pairs: what any measure can do, and what every other way must equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.pipelines.measures.base import CHUNK, Fitted, own_pairs
from capgrade.pipelines.measures.bleu import FittedBleu
from capgrade.pipelines.measures.cider import FittedCider
from capgrade.pipelines.measures.rouge import FittedRougeL
from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.scene_graph import FittedSceneGraph
from capgrade.pipelines.measures.tops import heap
from capgrade.schemas.threads import in_threads
from capgrade.schemas.ties import Ties

LeavesOut = FittedBleu | FittedCider | FittedRougeL | FittedSbert | FittedSceneGraph


class Tops(NamedTuple):
    """The best captions of each image, by falling value, equal ones by `Ties`."""

    rows: np.ndarray  # int64 [images, k]
    values: np.ndarray  # float32 [images, k]
    pairs: np.ndarray  # int64 [images]: captions whose whole value was computed


def no_tops(images: int) -> Tops:
    """Of so many images, none of which wants any."""
    return Tops(np.empty((images, 0), np.int64), np.empty((images, 0), np.float32), np.zeros(images, np.int64))


def every_pair(fitted: Fitted, images: np.ndarray, k: int, ties: Ties) -> Tops:
    """The `k` best of all captions, all of them where there are fewer."""
    n_captions = len(ties.captions)
    room = min(k, n_captions)
    values, rows = np.empty((len(images), room), np.float32), np.empty((len(images), room), np.int64)
    sizes, found = np.zeros(len(images), np.int64), np.empty((len(images), CHUNK), np.float32)
    starts = range(0, n_captions, CHUNK)
    for at, _ in zip(starts, fitted.chunks(images, 0, n_captions, found), strict=True):
        some = found[:, : min(CHUNK, n_captions - at)]
        in_threads(heap.offer, len(images), some, at, values, rows, sizes, ties.images[images], ties.captions)
    return sorted_tops(images, rows, values, np.full(len(images), n_captions), k, ties)


def sorted_tops(
    images: np.ndarray, rows: np.ndarray, values: np.ndarray, pairs: np.ndarray, k: int, ties: Ties
) -> Tops:
    """The first `k` of captions in any order."""
    order = np.lexsort((rows, ties.of(images, rows), -values))[:, :k]
    return Tops(np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1), pairs)


def whole_where_failed(
    fitted: Fitted, images: np.ndarray, rows: np.ndarray, values: np.ndarray, pairs: np.ndarray, k: int, ties: Ties
) -> Tops:
    """`sorted_tops` with images whose `pairs` are negative scored in full."""
    found, failed = sorted_tops(images, rows, values, np.maximum(pairs, 0), k, ties), np.flatnonzero(pairs < 0)
    if len(failed):
        full = every_pair(fitted, images[failed], k, ties)
        for mine, theirs in zip(found, full, strict=True):
            mine[failed] = theirs
    return found


def wanted(fitted: LeavesOut, images: np.ndarray, k: int) -> int:
    """How many captions are to be found so that the best `k` are among them after `put_left_out`."""
    return k + int(np.diff(fitted.ref_ptr)[images].max(initial=0)) * fitted.leave_out


def put_left_out(fitted: LeavesOut, images: np.ndarray, rows: np.ndarray, values: np.ndarray, ties: Ties) -> None:
    """Own captions with their values without themselves, in place of those found and then of the worst found. If as
    many more were found as there are own captions, the best of what remains are still there."""
    captions = np.unique(own_pairs(fitted.ref_ptr, fitted.refs, images)[1])
    left_out = np.zeros((len(images), len(captions)), np.float32)
    fitted.leave_out_self(images, captions, left_out)
    hashes = ties.of(images, rows)
    for b, image in enumerate(images):
        own = fitted.refs[fitted.ref_ptr[image] : fitted.ref_ptr[image + 1]]
        values[b, np.isin(rows[b], own)] = -np.inf
        worst = np.lexsort((-rows[b], ~hashes[b], values[b]))[: len(own)]
        rows[b, worst], values[b, worst] = own, left_out[b, np.searchsorted(captions, own)]
