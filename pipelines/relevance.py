"""Stage `relevance`: the dense relevance matrix of each measure, for an evaluation split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.blocks import Job, fit_measures, joined, run_blocks, work_folder
from pipelines.measures import choose
from schemas.captions import read_captions
from schemas.files import write_arrow, write_manifest
from schemas.params import MeasuresParams, RelevanceParams
from schemas.relevance import relevance_batch, relevance_schema


@dataclass(frozen=True)
class _Dense:
    """One table a measure, every caption a column."""

    image_ids: tuple[str, ...]
    schemas: dict[str, pa.Schema]

    def __call__(self, images: np.ndarray, values: dict[str, np.ndarray]) -> dict[str, pa.RecordBatch]:
        ids = [self.image_ids[i] for i in images]
        return {name: relevance_batch(ids, values[name], schema) for name, schema in self.schemas.items()}


def relevance(
    captions_dir: Path,
    out: Path,
    params: RelevanceParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute the relevance of every caption of a split to every image and write one Arrow file a measure.

    Row i of `<measure>.arrow` is image i, a fixed-size list over the captions, both in the order of the captions
    table. Returns the manifest. Raises InputError for unknown measures, a split that is not there, or captions a
    measure cannot be fitted on.
    """
    chosen = choose(params.measures, measures)
    captions = read_captions(captions_dir, params.split)
    made_with = {"relevance": params.model_dump(), "measures": measures_used(params.measures, measures)}
    inputs = {"captions": captions.digest, "split": captions.split}
    with work_folder(out, [made_with, inputs]) as work:
        kinds = fit_measures(chosen, captions, work)
        metadata = {"captions": captions.digest, "split": captions.split, "tokenizer": captions.tokenizer}
        schemas = {
            name: relevance_schema(
                captions.n_captions,
                params.dtype,
                {**metadata, "measure": name, "params": made_with["measures"][name]},
            )
            for name in chosen
        }
        tables = _Dense(tuple(captions.image_ids), schemas)
        job = Job(work, kinds, tables, captions.n_images, params.block_images)
        run_blocks(job, f"relevance of {captions.n_captions} captions to {captions.n_images} images", beam_options)
        rows = {
            f"{name}.arrow": write_arrow(out / f"{name}.arrow", schemas[name], joined(job, name)) for name in chosen
        }
    return write_manifest(out, "relevance", params=made_with, inputs=inputs, rows=rows, n_captions=captions.n_captions)


def measures_used(names: Sequence[str], measures: MeasuresParams) -> dict[str, Any]:
    """The parameters of the named measures only, for metadata; an imported one is known by its file."""
    dumped = measures.model_dump()
    return {name: dumped[name] if name in dumped else {"imported": measures.imported[name]} for name in names}
