"""Stage `audit`: which negatives of a data set people would accept, how many there are, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.calibration import SHIPPED, Calibration, load
from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import ValuedPairs, ValueSource, open_source
from capgrade.pipelines.audit.errors import WAYS, Errors, RankedModel
from capgrade.pipelines.audit.estimate import Bands
from capgrade.pipelines.audit.lists import (
    DUPLICATES_FILE,
    GENERATOR,
    LIKELY_FILE,
    POSITIVES_FILE,
    STAGE,
    SUSPECTS_FILE,
    equal_captions,
    groups,
    joined,
    likely,
    lists_folder,
    near_duplicates,
    suspects,
    write_duplicates,
    write_likely,
    write_positives,
    write_suspects,
)
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, write_manifest, write_text
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder

LEAD = "Which of the negatives are positives? Estimated from captions alone, at the level of people's judgements."
SAMPLED = " Lists have the pairs that the shards kept; counts of pairs are estimated by their weights."


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
    """Write the page `out`, and in a folder beside it, `audit-lists` of `audit.html`, the lists as CSV (`likely.csv`,
    likely false negatives; `suspects.csv`, captions that fit their own image badly; `duplicates.csv`, groups of
    near-duplicate images) and a file of positives, `positives.json`.

    Values come from dense relevance, or from shards by their weights; probabilities from `calibration`, else from the
    one that comes with capgrade (Crisscrossed Captions, COCO's 5K test captions, score at least 4.5). `measure` is the
    first that both have, if not given. A pair that was not given is likely where P(a person accepts) is LIKELY or more.

    Returns "likely_captions_per_image" and "likely_images_per_caption": `pairs`, how many are likely, and `accepted`,
    how many of these people accept, with its 95 % interval `low` to `high`; accepted is None, and low 0, where the
    calibration's pairs were chosen. "likely_pairs": how many are listed (of shards: kept). "bands": accepted captions
    per image by P, None where the calibration's pairs were chosen. "calibration": its `sampling` ("random" or
    "chosen"), and what it was learnt from. "given_captions_per_image"; "near_duplicates"; "suspect_pairs", or None and
    why, "suspects_unknown"; "equal_captions": texts that captions of several images share; "measure". With
    `similarity`, files as `evaluate` takes them (several: their mean), or `stand_in`, as there: "model", its errors
    (`Errors.told`) by direction.
    Raises InputError where inputs do not fit one another, or something else stands at `out` or in its folder.
    """
    from capgrade.pipelines.audit.page import sections
    from capgrade.pipelines.report.page import render
    from capgrade.pipelines.report.thumbnails import PageThumbnails
    from capgrade.trainer.evaluation.evaluate import similarity_names

    with output_folder(lists := lists_folder(out), STAGE):
        source, known = open_source(relevance, shards), load(calibration or SHIPPED)
        name = _measure(source, known, measure, calibration or SHIPPED)
        split = split or _split_of(relevance, shards)
        given = {"captions": captions_dir, "relevance": relevance, "shards": shards}
        given["calibration"] = calibration or SHIPPED
        matrices = dict(zip(similarity_names(similarity), similarity, strict=True))
        inputs = found_digests(**given, **matrices)
        captions, curve = read_captions(captions_dir, split), known.curves[name]
        thumbnails = PageThumbnails(captions_dir, images, out.parent)
        errors = _errors(captions_dir, captions, curve, similarity, stand_in)
        bands, pairs = _read(source, name, captions, known, errors)
        own = source.own(name, captions)
        low = None if own is None else suspects(own, curve)
        duplicates, equal = near_duplicates(pairs, captions), equal_captions(captions)
        found = {
            **_counts(bands, captions),
            "likely_pairs": len(pairs.image),
            "near_duplicates": len(duplicates),
            "suspect_pairs": None if low is None else len(low),
            **({"suspects_unknown": source.no_own(name)} if low is None else {}),
            "equal_captions": len(equal),
            "measure": name,
            "calibration": _kind(known, curve, captions),
            **({"model": {way: one.told(known.random) for way, one in errors.items()}} if errors else {}),
        }
        require_unchanged(inputs, found_digests(**given, **matrices))
        rows = {
            LIKELY_FILE: write_likely(lists / LIKELY_FILE, pairs, curve, captions),
            DUPLICATES_FILE: write_duplicates(lists / DUPLICATES_FILE, groups(duplicates, captions.n_images), captions),
            POSITIVES_FILE: write_positives(lists / POSITIVES_FILE, pairs, captions),
        }
        if low is not None and own is not None:
            rows[SUSPECTS_FILE] = write_suspects(lists / SUSPECTS_FILE, low, own, curve, captions)
        shown = sections(found, known, captions, pairs, duplicates, equal, low, errors, thumbnails)
        thumbnails.tell()
        foot = f"capgrade {package_version()}; captions {captions.digest[:12]}, split {captions.split}; measure {name}."
        lead = LEAD + (SAMPLED if source.shards else "")
        write_text(out, render("Audit", shown, GENERATOR, lead=lead, foot=foot, runs=[]))
        params = {"measure": name, "split": captions.split, "stand_in": stand_in}
        write_manifest(lists, STAGE, params=params, inputs=inputs, rows=rows, found=found)
    return found


def _read(
    source: ValueSource, name: str, captions: Captions, known: Calibration, errors: dict[str, Errors]
) -> tuple[Bands, ValuedPairs]:
    """All pairs that were not given, counted by their probability; and the likely ones."""
    curve = known.curves[name]
    bands, parts = Bands(curve, captions.n_images, captions.owner, known.random), []
    for pairs in source.blocks(name, captions):
        bands.add(pairs)
        parts.append(likely(pairs, curve))
        for one in errors.values():
            one.add(pairs)
    return bands, joined(parts)


def _counts(bands: Bands, captions: Captions) -> dict[str, Any]:
    likely_ones = bands.likely()
    return {
        "likely_captions_per_image": likely_ones.told(bands.random),
        "likely_images_per_caption": likely_ones.told(bands.random, captions.n_images / captions.n_captions),
        "given_captions_per_image": captions.n_captions / captions.n_images,
        "bands": bands.told(),
    }


def _kind(known: Calibration, curve: Curve, captions: Captions) -> dict[str, Any]:
    """What the probabilities were learnt from; `same_captions`: whether from pairs of the captions that are audited."""
    judged = known.facts["judgements"]
    return {
        **{key: judged[key] for key in ("sampling", "file")},
        "same_captions": judged["captions"] == captions.digest,
        **{key: known.facts[key] for key in ("accept", "low", "high")},
        "pairs": curve.pairs,
        "ece": curve.ece,
    }


def _errors(
    captions_dir: Path, captions: Captions, curve: Curve, similarity: Sequence[Path], stand_in: int | None
) -> dict[str, Errors]:
    """By direction; none where no model is given."""
    if not similarity and stand_in is None:
        return {}
    from capgrade.trainer.evaluation.task import load_task

    task, _ = load_task(captions_dir, similarity=similarity, stand_in=stand_in, split=captions.split)
    kept = np.arange(captions.n_captions) if task.kept is None else task.kept
    ranked = RankedModel(task.similarity, kept, captions)
    return {way: Errors(ranked, way, curve) for way in WAYS}


def _split_of(relevance: Path | None, shards: Path | None) -> str:
    from capgrade.schemas.files import read_manifest

    folder, kind = (relevance, "relevance") if relevance else (shards, "shards")
    return str(read_manifest(folder, kind)["inputs"]["split"])  # type: ignore[arg-type]


def _measure(source: ValueSource, known: Calibration, asked: str | None, path: Path) -> str:
    """The measure asked for, or the first that the calibration and the folder both have, computed alike."""
    for name in known.curves if asked is None else [asked]:
        if name in source.measures and name in known.curves:
            known.require_alike(name, source.measures[name], source.folder, path)
            return name
    wanted = asked or ", ".join(known.curves)
    problem = f"no measure that {path.name} knows ({wanted}); it has {', '.join(source.measures)}"
    remedy = f"compute it: --measures {next(iter(known.curves))}, or calibrate: capgrade agree --calibrate"
    raise InputError(problem, file=source.folder, remedy=remedy)
