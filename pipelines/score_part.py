"""Parts of shards as a function, for whatever hands out work: Ray, Spark, a pool of processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.shards import join_shards, shards_part
from capgrade.schemas.params import MeasuresParams, ShardsParams


@dataclass(frozen=True)
class ShardsJob:
    """Shards to make in `parts` parts, on machines that see the same folders. Small, and can be pickled."""

    captions: Path
    out: Path
    parts: int
    params: ShardsParams = ShardsParams()
    measures: MeasuresParams = MeasuresParams()


def score_part(job: ShardsJob, i: int) -> dict[str, Any]:
    """Part `i` of `job.parts`, from 0: what `capgrade shards --part i+1/parts` does. Returns the part's manifest.

    Any order, any number of times; one that was stopped goes on. Raises InputError as `shards_part` does.
    """
    return shards_part(job.captions, job.out, job.params, job.measures, Part(i + 1, job.parts))


def join_parts(job: ShardsJob) -> dict[str, Any]:
    """What `capgrade shards --join` does: the bytes of one run. Returns the manifest; InputError as `join_shards`."""
    return join_shards(job.captions, job.out, job.params, job.measures)
