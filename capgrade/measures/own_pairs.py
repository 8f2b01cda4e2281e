"""Own pairs of a split, one per caption: as a measure scores them, and without the caption among its references."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.measures.base import Fitted
from capgrade.measures.imported import FittedImported, FittedJudged
from capgrade.measures.mixture import FittedMixture
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic

FILE = "own-pairs.parquet"  # no .arrow: those of a relevance folder are matrices
LEFT_OUT = "_left_out"  # after a measure's name


def write_own_pairs(
    out: Path, captions: Captions, fitted: Mapping[str, Fitted], own: Mapping[str, np.ndarray], schema: pa.Schema
) -> int:
    """A row per caption, in the captions' order: caption_id; of each measure its value with the own image float32, and
    the same as `self_reference: left_out` gives it. The latter is null where the image has no other caption, and the
    column missing for a matrix that was imported, or a mixture with one. Returns the rows.
    """
    columns = {"caption_id": pa.array(captions.caption_ids)}
    for name, one in fitted.items():
        columns[name] = pa.array(own[name], pa.float32())
        values = own_left_out(one, captions)
        if values is not None:
            columns[name + LEFT_OUT] = pa.array(values, pa.float32(), mask=np.isnan(values))
    with atomic(out / FILE) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(schema.metadata), temporary)
    return captions.n_captions


def read_own_pairs(folder: Path) -> dict[str, np.ndarray]:
    """What `write_own_pairs` wrote in a relevance folder: column -> float32 [n_captions], NaN where null. Empty where
    it wrote nothing."""
    if not (folder / FILE).is_file():
        return {}
    table = pq.read_table(folder / FILE)
    return {name: table[name].to_numpy() for name in table.schema.names if name != "caption_id"}


def distribution(folder: Path, measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a relevance folder: edges of bins float64 [n + 1], and the shares of own and of other pairs in them, float64
    [n]. Own captions are left out of the references where the folder has such values: else most of them would have the
    measure's largest. InputError for a file that is no table of numbers."""
    path = folder / f"distribution-{measure}.csv"
    try:
        low, high, own, other = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2).T
    except (OSError, ValueError) as error:
        remedy = "run capgrade relevance again"
        raise InputError(f"not a table of numbers ({error})", file=path, remedy=remedy) from None
    edges, alone = np.append(low, high[-1]), read_own_pairs(folder).get(measure + LEFT_OUT, np.array([]))
    if len(alone := alone[np.isfinite(alone)]):
        own = np.histogram(alone, edges)[0] / len(alone)
    return edges, own, other


def own_left_out(fitted: Fitted, captions: Captions) -> np.ndarray | None:
    """Relevance of each caption to its own image as `self_reference: left_out` gives it, whatever the measure's own
    setting: float32 [n_captions], in the captions' order.

    NaN where the image has no other caption. None where the values cannot be had: an imported matrix, or a mixture
    with one. Everything but the references (document frequencies, parameters) stays as the measure says.
    """
    alone = _leaving_out(fitted)
    if alone is None:
        return None
    values = np.full(captions.n_captions, np.nan, np.float32)
    others = np.flatnonzero(np.diff(captions.ref_ptr)[captions.owner] > 1)
    values[others] = alone.pairs(captions.owner[others], others)
    return values


def _leaving_out(fitted: Fitted) -> Fitted | None:
    """The same measure with `self_reference: left_out`."""
    if isinstance(fitted, FittedImported | FittedJudged):
        return None
    if not isinstance(fitted, FittedMixture):
        return dataclasses.replace(fitted, leave_out=True)  # type: ignore[type-var]
    parts = {name: _leaving_out(part) for name, part in fitted.parts.items()}
    known = {name: part for name, part in parts.items() if part is not None}
    return dataclasses.replace(fitted, parts=known) if len(known) == len(parts) else None
