"""Stage `audit`: which negatives of a data set people would accept, how many there are, and where
to look."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.calibration import SHIPPED, Calibration, load
from capgrade.agreement.curve import Curve
from capgrade.labels import Labels
from capgrade.lists import LIKELY
from capgrade.pipelines.audit.errors import BOTH_WAYS, Errors
from capgrade.pipelines.audit.estimate import Bands
from capgrade.pipelines.audit.lists import (
    equal_captions,
    falling,
    groups,
    likely,
    near_duplicates,
    suspects,
    write_lists,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, read_manifest, write_manifest, write_text
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.output import output_folder, refuse_file
from capgrade.schemas.own_pairs import LEFT_OUT, read_own_pairs
from capgrade.schemas.shards import read_shards

_STAGE, _GENERATOR = "audit", "capgrade audit"


def lists_folder(out: Path) -> Path:
    """The folder of the lists, `audit-lists` of `audit.html`. InputError where something else
    stands at the page, and for a page that is no .html."""
    from capgrade.pipelines.page import generated_by

    if out.suffix.lower() != ".html":
        raise InputError(
            "the page's name does not end in .html",
            file=out,
            remedy=f"give {out.stem or 'audit'}.html",
        )
    refuse_file(out, "audit of capgrade", generated_by(_GENERATOR))
    return out.with_name(f"{out.stem}-lists")


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
    """Write the page `out`, and in a folder beside it, `audit-lists` of `audit.html`, the lists as
    CSV (`likely.csv`, likely false negatives; `suspects.csv`, captions that fit their own image
    badly; `duplicates.csv`, groups of near-duplicate images) and a file of positives,
    `positives.json`.

    Values come from dense relevance, or from shards by their weights; probabilities from
    `calibration`, else from the one that comes with capgrade (Crisscrossed Captions, COCO's 5K test
    captions, score at least 4.5). `measure` is the first that both have, if not given. A caption of
    another image is likely where P(a person accepts) is LIKELY or more. Its curve is that of as
    many captions as an image usually has (`Calibration.fitting`).

    Returns "accepted_captions_per_image", of all other captions (`Bands.accepted`);
    "likely_captions_per_image" and "likely_images_per_caption": `pairs`, how many are likely, and
    `accepted`, how many of these people accept, with its 95 % interval `low` to `high`; accepted is
    None, and low 0, where the calibration's pairs were chosen. "likely_pairs": how many are listed
    (of shards: kept). "bands": accepted captions per image by P, None where the calibration's pairs
    were chosen. "calibration": its `sampling` ("random" or "chosen"), what it was learnt from, and
    `likely_from`, the value from which a pair is likely, None where none is.
    "given_captions_per_image"; "near_duplicates"; "suspect_pairs", or None and why,
    "suspects_unknown"; "equal_captions": texts that captions of several images share; "measure".
    With `similarity`, files as `evaluate` takes them (several: their mean), or `stand_in`, as
    there: "model", its errors (`Errors.told`) by direction; "model_order": what is said of a matrix
    that seems to be in another order than the captions, None of others. Raises InputError where
    inputs do not fit one another, or something else stands at `out` or in its folder.
    """
    from capgrade.pipelines.audit.page import Audited, sections
    from capgrade.pipelines.page import render
    from capgrade.pipelines.page.thumbnails import PageThumbnails
    from capgrade.trainer.evaluation.evaluate import similarity_names

    with output_folder(lists_folder(out), _STAGE) as lists:
        path = calibration or SHIPPED
        matrices = dict(zip(similarity_names(similarity), similarity, strict=True))
        given = {
            "captions": captions_dir,
            "relevance": relevance,
            "shards": shards,
            "calibration": path,
            **matrices,
        }
        inputs = found_digests(**given)
        labels = _opened(relevance, shards, captions_dir, split)
        captions, known = labels.table, load(path).fitting(labels.owner)
        names = _measures(labels, known, measure, path)
        curve = known.curves[names[0]]
        thumbnails = PageThumbnails(captions_dir, images, out.parent)
        errors, order = _errors(captions_dir, captions, curve, similarity, stand_in)
        bands, parts = Bands(curve, captions.n_images, captions.owner, known.random), []
        for every in labels.stored.pairs(names[0]):  # all known pairs, image after image
            some = every.of_others(labels.owner)
            bands.add(some)
            parts.append(likely(some, curve))
            for one in errors.values():
                one.add(some)
        pairs = falling(parts)
        own = _own(labels, names[0])
        low = None if own is None else suspects(own, curve)
        no_own = f"the folder has no value of {names[0]} of a caption without itself: make it again"
        if captions.n_captions == captions.n_images:
            no_own = "every image has one caption"
        duplicates, equal = near_duplicates(pairs, captions), equal_captions(captions)
        found = {
            "accepted_captions_per_image": bands.accepted(_seen(known, captions)),
            "likely_captions_per_image": bands.likely(),
            "likely_images_per_caption": bands.likely(captions.n_images / captions.n_captions),
            "given_captions_per_image": captions.n_captions / captions.n_images,
            "bands": bands.told(),
            "likely_pairs": len(pairs.image),
            "near_duplicates": len(duplicates),
            "suspect_pairs": None if low is None else len(low),
            **({"suspects_unknown": no_own} if low is None else {}),
            "equal_captions": len(equal),
            "measure": names[0],
            "calibration": _kind(known, curve, captions),
            **(
                {"model": {way: one.told(known.random) for way, one in errors.items()}}
                if errors
                else {}
            ),
            **({"model_order": order} if errors else {}),
        }
        together = groups(duplicates, captions.n_images)
        audited = Audited(
            found,
            labels,
            known,
            names,
            captions,
            pairs,
            together,
            equal,
            low,
            errors,
            bands.by_tenth(),
        )
        first, *shown = sections(audited, thumbnails)
        thumbnails.pictures.tell()
        require_unchanged(inputs, found_digests(**given))
        rows = write_lists(lists, captions, curve, pairs, together, low, own)
        foot = (
            f"capgrade {package_version()}; captions {captions.digest[:12]}, split"
            f" {captions.split}; "
        )
        foot += f"measure {names[0]}."
        write_text(out, render("Audit", first, shown, _GENERATOR, foot=foot, runs=[]))
        params = {"measure": names[0], "split": captions.split, "stand_in": stand_in}
        write_manifest(lists, _STAGE, params=params, inputs=inputs, rows=rows, found=found)
    return found


def _opened(
    relevance: Path | None, shards: Path | None, captions_dir: Path, split: str | None
) -> Labels:
    """Labels with the parameters of each measure. InputError unless exactly one folder is given,
    for one that is not finished, and for one made for other captions."""
    folder = relevance or shards
    if folder is None or (relevance and shards):
        raise InputError(
            "one folder of values is needed", remedy="give --relevance DIR or --shards DIR"
        )
    manifest = read_manifest(folder, "relevance" if relevance else "shards")
    return replace(
        Labels.load(folder, split=split, captions=captions_dir),
        made_with=manifest["params"]["measures"],
    )


def _own(labels: Labels, measure: str) -> np.ndarray | None:
    """float64 [n_captions]: each caption against the others of its image, NaN without others; None
    where the folder does not have it, or no image has others."""
    if labels.stored.sampled:
        values = read_shards(Path(labels.file)).left_out(measure)
    else:
        values = read_own_pairs(Path(labels.file)).get(measure + LEFT_OUT)
    if values is None or len(values) != labels.n_captions or np.isnan(values).all():
        return None
    return values.astype(np.float64)


def _same(known: Calibration, captions: Captions) -> bool:
    """Whether the judged pairs are of the captions that are audited."""
    judged = known.facts["judgements"]
    return bool(judged["captions"] == captions.digest and judged.get("split") == captions.split)


def _seen(known: Calibration, captions: Captions) -> float | None:
    """How many captions of others, per image, people were seen to accept; None of other captions,
    and where the calibration does not say."""
    judged = known.facts["judgements"]
    return (
        judged["accepted"] / judged["images"]
        if _same(known, captions) and "accepted" in judged
        else None
    )


def _kind(known: Calibration, curve: Curve, captions: Captions) -> dict[str, Any]:
    """What the probabilities were learnt from; `same_captions`: whether from pairs of the captions
    that are audited."""
    judged = known.facts["judgements"]
    return {
        **{key: judged[key] for key in ("sampling", "file")},
        "same_captions": _same(known, captions),
        **{key: known.facts[key] for key in ("accept", "low", "high")},
        "references": known.references,
        "likely_from": curve.value_at(LIKELY) if curve.accepted[-1] >= LIKELY else None,
        "pairs": curve.pairs,
        "ece": curve.ece,
    }


def _errors(
    captions_dir: Path,
    captions: Captions,
    curve: Curve,
    similarity: Sequence[Path],
    stand_in: int | None,
) -> tuple[dict[str, Errors], str | None]:
    """By direction, and what is said of a matrix that seems to be in another order."""
    if not similarity and stand_in is None:
        return {}, None
    from capgrade.trainer.evaluation.task import load_task, unordered

    task, _ = load_task(
        captions_dir, similarity=similarity, stand_in=stand_in, split=captions.split
    )
    kept = np.arange(captions.n_captions) if task.kept is None else task.kept
    whole = similarity and task.similarity.shape == (captions.n_images, captions.n_captions)
    order = unordered(similarity, task.similarity, captions) if whole else None
    return {
        way: Errors(task.similarity, kept, captions, way, curve, task.images) for way in BOTH_WAYS
    }, order


def _measures(labels: Labels, known: Calibration, asked: str | None, path: Path) -> list[str]:
    """The measure asked for, or the first that the calibration and the folder both have, computed
    alike; then the others of which both is true."""
    made_with, folder = labels.made_with or {}, Path(labels.file)
    both = [name for name in known.curves if name in made_with]
    first = next((name for name in both if asked in (None, name)), None)
    if first is None:
        of_known, of_folder = ", ".join(known.curves), ", ".join(made_with)
        problem = f"{asked} is not of both: " if asked else ""
        problem += f"the calibration {path.name} is of {of_known}; the folder has {of_folder}"
        wanted = asked if asked in known.curves else next(iter(known.curves))
        remedy = f"compute it: --measures {wanted}, or calibrate: capgrade agree --calibrate"
        raise InputError(problem, file=folder, remedy=remedy)
    known.require_alike(first, made_with[first], folder, path)
    if labels.stored.partial(first):
        problem = f"{first} scores some pairs alone, which do not tell how many others fit"
        raise InputError(problem, file=folder, remedy="audit by a measure of every pair: --measure")
    return [first, *(name for name in both if name != first and known.alike(name, made_with[name]))]
