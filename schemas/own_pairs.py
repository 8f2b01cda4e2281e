"""Own pairs of a relevance folder, one per caption: as a measure scores them, and without the
caption among its references. And the distribution of a measure on own and on other pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.pairs import LEFT_OUT

FILE = "own-pairs.parquet"  # no .arrow: those of a relevance folder are matrices


def write_own_pairs(
    out: Path,
    captions: Captions,
    own: Mapping[str, np.ndarray],
    left_out: Mapping[str, np.ndarray],
    schema: pa.Schema,
) -> int:
    """Write a row per caption, in the captions' order. Returns the rows.

    Columns are caption_id; of each measure its value with the own image, float32 of `own`, and
    without the caption itself, of `left_out`. The latter is null where the image has no other
    caption, and missing for a measure that is not in `left_out`.
    """
    columns = {"caption_id": pa.array(captions.caption_ids)}
    for name, values in own.items():
        columns[name] = pa.array(values, pa.float32())
        if name in left_out:
            columns[name + LEFT_OUT] = pa.array(
                left_out[name], pa.float32(), mask=np.isnan(left_out[name])
            )
    with atomic(out / FILE) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(schema.metadata), temporary)
    return captions.n_captions


def read_own_pairs(folder: Path) -> dict[str, np.ndarray]:
    """Column -> float32 [n_captions], as `write_own_pairs` wrote them; NaN where null.

    Empty where it wrote nothing.
    """
    if not (folder / FILE).is_file():
        return {}
    table = pq.read_table(folder / FILE)
    return {name: table[name].to_numpy() for name in table.schema.names if name != "caption_id"}


def distribution(folder: Path, measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges of bins float64 [n + 1], and the shares of own and of other pairs, float64 [n].

    Where a relevance folder has values of own captions without themselves, the own pairs are these:
    else most of them would have the measure's largest. InputError for a file that is no table of
    numbers.
    """
    path = folder / f"distribution-{measure}.csv"
    try:
        low, high, own, other = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2).T
    except (OSError, ValueError) as error:
        remedy = "run capgrade relevance again"
        raise InputError(f"not a table of numbers ({error})", file=path, remedy=remedy) from None
    edges = np.append(low, high[-1])
    alone = read_own_pairs(folder).get(measure + LEFT_OUT, np.array([]))
    if len(alone := alone[np.isfinite(alone)]):
        own = np.histogram(alone, edges)[0] / len(alone)
    return edges, own, other
