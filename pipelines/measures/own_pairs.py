"""Own pairs of a split, one per caption: as a measure scores them, and without the caption among its references."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capgrade.pipelines.measures import Measure
from capgrade.pipelines.measures.left_out import own_left_out
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import atomic

FILE = "own-pairs.parquet"  # no .arrow: those of a relevance folder are matrices
LEFT_OUT = "_left_out"  # after a measure's name


def write_own_pairs(
    out: Path, captions: Captions, chosen: Mapping[str, Measure], own: Mapping[str, np.ndarray], schema: pa.Schema
) -> int:
    """A row per caption, in the captions' order: caption_id; of each measure its value with the own image float32, and
    the same as `self_reference: left_out` gives it. The latter is null where the image has no other caption, and the
    column missing for a matrix that was imported, or a mixture with one. Returns the rows.
    """
    columns = {"caption_id": pa.array(captions.caption_ids)}
    for name, measure in chosen.items():
        columns[name] = pa.array(own[name], pa.float32())
        values = own_left_out(measure, captions)
        if values is not None:
            columns[name + LEFT_OUT] = pa.array(values, pa.float32(), mask=np.isnan(values))
    with atomic(out / FILE) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(schema.metadata), temporary)
    return captions.n_captions
