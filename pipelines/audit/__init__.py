"""Stage `audit`: which negatives of a data set people would accept, how many there are, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.calibration import SHIPPED, Calibration, load
from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Source, open_source
from capgrade.pipelines.audit.errors import WAYS, Errors, Ranked
from capgrade.pipelines.audit.estimate import Estimate, PairCounts, mean_of
from capgrade.pipelines.audit.files import (
    GENERATOR,
    Files,
    refuse_others,
    write_duplicates,
    write_likely,
    write_positives,
    write_suspects,
)
from capgrade.pipelines.audit.lists import equal_captions, groups, joined, likely, near_duplicates, suspects
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, write_text
from capgrade.schemas.inputs import found_digests, require_unchanged

LEAD = "Which of the negatives are positives? Estimated from captions alone, at the level of people's judgements."
SAMPLED = " Lists have the pairs that the shards kept; the estimate counts these by their weights."


def audit(
    captions_dir: Path,
    out: Path,
    *,
    relevance: Path | None = None,
    shards: Path | None = None,
    images: str | Path | None = None,
    split: str | None = None,
    measure: str | None = None,
    calibration: Path | None = None,
    similarity: Sequence[Path] = (),
    stand_in: int | None = None,
) -> dict[str, Any]:
    """Write the page `out`, and beside it its lists as CSV (likely false negatives, captions that fit their own image
    badly, groups of near-duplicate images) and a file of positives.

    Values come from dense relevance, or from shards by their weights; probabilities from `calibration`, else from the
    one that comes with capgrade (Crisscrossed Captions, COCO's 5K test captions, score at least 4.5). `measure` is the
    first that both have, if not given. Returns "captions_per_image" and "images_per_caption": accepted beyond the given
    pairs with its interval (low, high), and how many are given; "near_duplicates"; "suspect_pairs" (None where the
    folder does not have own pairs with the caption left out); "likely_pairs" (of shards: of the kept pairs);
    "equal_captions": texts that captions of several images share; "measure". With `similarity`, files as
    `evaluate` takes them (several: their mean), or `stand_in`, as there: "model", its errors (`Errors.told`) by
    direction.
    Raises InputError where inputs do not fit one another, or something else stands at `out` or a file beside it.
    """
    from capgrade.pipelines.audit.page import sections
    from capgrade.pipelines.report.page import render
    from capgrade.pipelines.report.thumbnails import Thumbnails
    from capgrade.trainer.evaluation.evaluate import similarity_names

    refuse_others(out)
    source, known = open_source(relevance, shards), load(calibration or SHIPPED)
    name = _measure(source, known, measure, calibration or SHIPPED)
    split = split or _split_of(relevance, shards)
    given = {"captions": captions_dir, "relevance": relevance, "shards": shards, "calibration": calibration}
    matrices = dict(zip(similarity_names(similarity), similarity, strict=True))
    inputs = found_digests(**given, **matrices)
    captions, curve = read_captions(captions_dir, split), known.curves[name]
    thumbnails = Thumbnails(captions_dir, images, out.parent)
    counts, parts = PairCounts(curve, captions.n_images, captions.owner), []
    errors = _errors(captions_dir, captions, curve, similarity, stand_in)
    for pairs in source.blocks(name, captions):
        counts.add(pairs)
        parts.append(likely(pairs, curve))
        for one in errors.values():
            one.add(pairs)
    accepted, pairs = mean_of(counts), joined(parts)
    own = source.own(name, captions)
    low = None if own is None else suspects(own, curve)
    duplicates = near_duplicates(pairs, captions)
    ratio = captions.n_images / captions.n_captions
    found = {
        "captions_per_image": _told(accepted, 1 / ratio),
        "images_per_caption": _told(accepted.scaled(ratio), 1.0),
        "near_duplicates": len(duplicates),
        "suspect_pairs": None if low is None else len(low),
        "likely_pairs": len(pairs.image),
        "equal_captions": len(equal := equal_captions(captions)),
        "measure": name,
        **({"model": {way: one.told() for way, one in errors.items()}} if errors else {}),
    }
    require_unchanged(inputs, found_digests(**given, **matrices))
    files = Files.of(out)
    write_likely(files.likely, pairs, curve, captions)
    write_suspects(files.suspects, low, own, curve, captions)
    write_duplicates(files.duplicates, groups(duplicates, captions.n_images), captions)
    write_positives(files.positives, pairs, captions)
    shown = sections(found, name, known, captions, pairs, duplicates, equal, low, errors, thumbnails)
    thumbnails.tell()
    foot = f"capgrade {package_version()}; captions {captions.digest[:12]}, split {captions.split}; measure {name}."
    lead = LEAD + (SAMPLED if source.shards else "")
    write_text(out, render("Audit", shown, GENERATOR, lead=lead, foot=foot, runs=[]))
    return found


def _errors(
    captions_dir: Path, captions: Captions, curve: Curve, similarity: Sequence[Path], stand_in: int | None
) -> dict[str, Errors]:
    """By direction; none where no model is given."""
    if not similarity and stand_in is None:
        return {}
    from capgrade.trainer.evaluation.task import load_task

    task, _ = load_task(captions_dir, similarity=similarity, stand_in=stand_in, split=captions.split)
    kept = np.arange(captions.n_captions) if task.kept is None else task.kept
    ranked = Ranked(task.similarity, kept, captions)
    return {way: Errors(ranked, way, curve) for way in WAYS}


def _told(one: Estimate, given: float) -> dict[str, float]:
    return {"accepted": one.mean, "low": one.low, "high": one.high, "given": given}


def _split_of(relevance: Path | None, shards: Path | None) -> str:
    from capgrade.schemas.files import read_manifest

    folder, kind = (relevance, "relevance") if relevance else (shards, "shards")
    return str(read_manifest(folder, kind)["inputs"]["split"])  # type: ignore[arg-type]


def _measure(source: Source, known: Calibration, asked: str | None, path: Path) -> str:
    """The measure asked for, or the first that the calibration and the folder both have, computed alike."""
    for name in known.curves if asked is None else [asked]:
        if name in source.measures and name in known.curves:
            known.require_alike(name, source.measures[name], source.folder, path)
            return name
    wanted = asked or ", ".join(known.curves)
    problem = f"no measure that {path.name} knows ({wanted}); it has {', '.join(source.measures)}"
    remedy = f"compute it: --measures {next(iter(known.curves))}, or calibrate: capgrade agree --calibrate"
    raise InputError(problem, file=source.folder, remedy=remedy)
