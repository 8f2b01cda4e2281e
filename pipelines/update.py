"""Stage `shards --update`: shards of captions that came and went, from the shards of what was there before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capgrade.pipelines.execution.blocks import run_blocks
from capgrade.pipelines.execution.changes import changes
from capgrade.pipelines.execution.sampled import TABLE
from capgrade.pipelines.execution.scoring import score_here
from capgrade.pipelines.execution.shared import fit_measures
from capgrade.pipelines.execution.updated import UPDATE, Updated
from capgrade.pipelines.execution.work import work_folder
from capgrade.pipelines.measures.alone import hangs_on_others
from capgrade.pipelines.shards import Source, write_shards
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest, package_version
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.shards import Shards, read_shards
from capgrade.schemas.space import require_space, size_of

ANEW = "make the shards from the start, without --update"


def update_shards(
    captions_dir: Path,
    old_dir: Path,
    old_captions_dir: Path,
    out: Path,
    params: ShardsParams,
    measures: MeasuresParams,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """The shards that `shards` writes of these captions, the same bytes, from the shards `old_dir` of older captions.

    Of an image whose captions are as they were only captions that came are scored, with `windows.counts` those that
    went too; new images, those of other captions and those whose samples lost a caption that cannot be replaced are
    scored in full. Of captions and images that went, nothing is in what is written. Returns the manifest; `scored` says
    how many pairs had values. Raises InputError as `shards`, and when the result might not be the same: a value that
    hangs on the other captions, other parameters or another version, a caption that changed, old shards that are
    damaged.
    """
    if out.resolve() == old_dir.resolve():
        raise InputError("--out is the folder that --update reads", file=out, remedy="give another --out")
    require_exact(params, measures)
    source = Source.of(captions_dir, params, measures)
    before, shards = read_captions(old_captions_dir, params.split), read_shards(old_dir)
    require_like(source, shards, before)
    changed = changes(before, source.captions)
    old = {"shards": digest(old_dir / MANIFEST), "captions": before.digest}
    with work_folder(out, "shards", [*source.key, old]) as work:
        size = source.size(source.captions.n_images)
        require_space(out, size, parts=size, done=size_of(work / "parts"))
        changed.save(work / UPDATE)
        lost = params.windows.counts and len(changed.gone) > 0
        kinds = fit_measures(dict(source.chosen), before, work / UPDATE) if lost else {}
        tables = Updated(source.tables, tuple(shards.files), kinds, source.block_images, params.windows.among != "all")
        job = replace(source.job(work), tables=tables)
        what = f"updating {job.n_images} images"
        if beam_options:
            run_blocks(job, what, beam_options)
        else:
            score_here(job, what, range(job.n_blocks))
        rows, pairs = write_shards(out, source, [job.part(block, TABLE) for block in range(job.n_blocks)])
        scored = source.counted(job, range(job.n_blocks))
    return source.finish(out, "shards", rows, pairs, scored, updated=old)


def require_exact(params: ShardsParams, measures: MeasuresParams) -> None:
    """InputError for a plan whose shards cannot be had from older ones to the last bit."""
    for name in params.measures:
        if why := hangs_on_others(name, measures):
            raise InputError(f"{name} cannot be updated: {why}", remedy=f"leave it out, or {ANEW}")
        if params.windows.among != "all" and name in measures.all_mixtures:
            problem = f"{name} cannot be updated: with windows.among its values hang on why a caption is kept"
            raise InputError(problem, remedy=ANEW)
    if params.windows.per_window and not params.windows.counts:
        problem = "weights hang on how many captions each window holds, and the shards do not say"
        remedy = "make the old ones with shards.windows.counts=true, or without windows (shards.windows.per_window=0)"
        raise InputError(problem, remedy=remedy)
    for name, given in (
        ("device", params.device != "cpu"),
        ("exchange", params.exchange),
        ("group_captions", params.group_captions),
    ):
        if given:
            raise InputError(f"shards.{name} with --update", remedy=f"leave shards.{name} out, or {ANEW}")


def require_like(source: Source, old: Shards, before: Captions) -> None:
    """InputError for shards that are damaged, were made of other captions than `before`, or otherwise than `source`
    is."""
    old.require(before)
    for name, entry in old.manifest["files"].items():
        if digest(old.folder / name) != entry["sha256"]:
            raise InputError("not as it was written", file=old.folder / name, remedy=ANEW)
    if old.manifest["package"] != package_version():
        problem = f"made by version {old.manifest['package']}, this is {package_version()}"
        raise InputError(problem, file=old.folder, remedy=ANEW)
    if (other := difference(old.manifest["params"], json.loads(json.dumps(source.made_with)))) is not None:
        raise InputError(f"made with another {other}", file=old.folder, remedy=f"give the same options, or {ANEW}")
    mine, theirs = (
        {k: v for k, v in one.items() if k != "captions"} for one in (source.inputs, old.manifest["inputs"])
    )
    if (other := difference(theirs, mine)) is not None:
        raise InputError(f"made of another {other}", file=old.folder, remedy=f"give the same file, or {ANEW}")


def difference(one: Any, other: Any) -> str | None:
    """The dotted name of the first entry that is not the same in both; None where all are."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return None if one == other else ""
    for key in sorted({*one, *other}):
        inner = difference(one[key], other[key]) if key in one and key in other else ""
        if inner is not None:
            return f"{key}.{inner}" if inner else key
    return None


def saved(manifest: dict[str, Any], images: int) -> str:
    """A line per measure: how many pairs were scored, and how many there are."""
    all_pairs = images * manifest["n_captions"]
    return "\n".join(
        f"{name}: {scored:,} pairs scored, of {all_pairs:,} that there are ({scored / all_pairs:.3g} of them)"
        for name, scored in manifest["scored"].items()
    )
