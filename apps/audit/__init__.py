"""Command `audit`: which negatives of a data set people would accept, how many there are, and where
to look."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.calibration import SHIPPED, Calibration, load_calibration
from capgrade.agreement.curve import Curve
from capgrade.agreement.judgement_files import judged_digest
from capgrade.apps.audit.errors import DIRECTIONS, ModelErrors
from capgrade.apps.audit.estimate import ProbabilityBands
from capgrade.apps.audit.findings import expected_findings, read_referee
from capgrade.apps.audit.lists import (
    find_equal_captions,
    find_near_duplicates,
    find_suspects,
    group_images,
    select_likely,
    sort_by_value,
    write_lists,
)
from capgrade.labels import Labels
from capgrade.lists import LIKELY
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    found_digests,
    package_version,
    read_manifest,
    write_manifest,
    write_text,
)
from capgrade.schemas.judges import truth_file
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.output import output_folder
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.shards import read_shards

_STAGE, _GENERATOR = "audit", "capgrade audit"


def audit_lists_folder(out: Path) -> Path:
    """The folder of the lists, `audit-lists` of `audit.html`. InputError for a page that is no
    .html."""
    if out.suffix.lower() != ".html":
        raise InputError(
            "the page's name does not end in .html",
            file=out,
            remedy=f"give {out.stem or 'audit'}.html",
        )
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
    judgements: Path | None = None,
    agree: AgreeParams | None = None,
    similarity: Sequence[Path] = (),
    stand_in: int | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write the page `out`, and beside it in the folder `audit-lists` of `audit.html` the lists as
    CSV and a file of positives (`write_lists`).

    Values come from dense relevance, or from shards by their weights; `measure` is the first that
    values and `calibration` (by default the one shipped, on Crisscrossed Captions) share. What is
    right, `judgements` say, read as `agree` has it, or the truth of generated scenes. A model's
    errors are audited with `similarity` or `stand_in`, as `load_task` takes them. Returns the
    figures, whose keys are explained where they are filled in. Raises InputError where inputs do
    not fit one another, where something else stands in the folder, and where a file is at `out`,
    but with `force`."""
    from capgrade.apps.audit.page import AuditResult, page_sections
    from capgrade.apps.page import render_page
    from capgrade.apps.page.thumbnails import PageThumbnails
    from capgrade.trainer.evaluation.evaluate import similarity_names

    folder = audit_lists_folder(out)
    refuse_file(out, force)
    with output_folder(folder, _STAGE) as lists:
        calibration_file = calibration or SHIPPED
        matrices = dict(zip(similarity_names(similarity), similarity, strict=True))
        input_files = {
            "captions": captions_dir,
            "relevance": relevance,
            "shards": shards,
            "calibration": calibration_file,
            **matrices,
        }
        inputs = found_digests(**input_files)
        labels = _load_labels(relevance, shards, captions_dir, split)
        captions, fitted = labels.table, load_calibration(calibration_file).fitting(labels.owner)
        judged_file = judgements or truth_file(captions_dir, captions.split)
        referee = None
        if judged_file is not None:
            inputs["judgements"] = judged_digest(judged_file)
            referee = read_referee(judged_file, captions, agree or AgreeParams())
        measures = _choose_measures(labels, fitted, measure, calibration_file)
        curve = fitted.curves[measures[0]]
        thumbnails = PageThumbnails(captions_dir, images, out.parent)
        errors, order_note = _model_errors(captions_dir, captions, curve, similarity, stand_in)
        bands = ProbabilityBands(curve, captions.n_images, captions.owner, fitted.random)
        likely_parts = []
        for known_pairs in labels.stored.pairs(measures[0]):
            others = known_pairs.of_others(labels.owner)
            bands.add(others)
            likely_parts.append(select_likely(others, curve))
            for of_direction in errors.values():
                of_direction.add(others)
        pairs = sort_by_value(likely_parts)
        own_values = _left_out_values(labels, measures[0])
        suspect_rows = None if own_values is None else find_suspects(own_values, curve)
        suspects_unknown = (
            f"the folder has no value of {measures[0]} of a caption without itself: make it again"
        )
        if captions.n_captions == captions.n_images:
            suspects_unknown = "every image has one caption"
        duplicates, equal = find_near_duplicates(pairs, captions), find_equal_captions(captions)
        expected = expected_findings(
            bands.listed, bands.unlisted(), len(pairs.image), fitted.random
        )
        figures: dict[str, Any] = {
            # What P expects of the list, and what judgements or the truth say of it, if there are.
            "expected": expected.json(),
            "judged": None if referee is None else referee.examine(pairs).json(),
            "judgements": None if referee is None else referee.facts(),
            "accepted_captions_per_image": bands.accepted_range(
                _observed_per_image(fitted, captions)
            ),
            # Likely pairs, and how many of them people accept (`mean_of`).
            "likely_captions_per_image": bands.likely(),
            "likely_images_per_caption": bands.likely(captions.n_images / captions.n_captions),
            "given_captions_per_image": captions.n_captions / captions.n_images,
            # Other captions per image by P; None where the calibration's pairs were chosen.
            "bands": bands.summarise(),
            "likely_pairs": len(pairs.image),  # those listed; of shards, the kept ones
            "images": captions.n_images,
            "near_duplicates": len(duplicates),
            # Own captions that fit nothing; None where that is not known, for the reason below.
            "suspect_pairs": None if suspect_rows is None else len(suspect_rows),
            **({"suspects_unknown": suspects_unknown} if suspect_rows is None else {}),
            "equal_captions": len(equal),  # texts that captions of several images share
            "measure": measures[0],
            "calibration": _describe_calibration(fitted, curve, captions),
        }
        if errors:
            figures["model"] = {
                direction: of_direction.summarise(fitted.random)
                for direction, of_direction in errors.items()
            }
            # A warning about a matrix that seems to be in another order than the captions, or None.
            figures["model_order"] = order_note
        duplicate_groups = group_images(duplicates, captions.n_images)
        result = AuditResult(
            figures=figures,
            labels=labels,
            calibration=fitted,
            measures=measures,
            captions=captions,
            likely_pairs=pairs,
            duplicates=duplicate_groups,
            equal_captions=equal,
            suspects=suspect_rows,
            errors=errors,
            by_tenth=bands.by_tenth(),
        )
        opening, *sections = page_sections(result, thumbnails)
        thumbnails.pictures.warn_of_missing()
        rows = write_lists(
            lists, captions, curve, pairs, duplicate_groups, suspect_rows, own_values
        )
        foot = (
            f"capgrade {package_version()}; captions {captions.digest[:12]}, split"
            f" {captions.split}; measure {measures[0]}."
        )
        write_text(out, render_page("Audit", opening, sections, _GENERATOR, foot=foot, runs=[]))
        params = {"measure": measures[0], "split": captions.split, "stand_in": stand_in}
        write_manifest(lists, _STAGE, params=params, inputs=inputs, rows=rows, found=figures)
    return figures


def _load_labels(
    relevance: Path | None, shards: Path | None, captions_dir: Path, split: str | None
) -> Labels:
    """Labels, with the parameters of each measure in `made_with`. InputError unless exactly one
    folder is given, and for one that is not finished or was made for other captions."""
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


def _left_out_values(labels: Labels, measure: str) -> np.ndarray | None:
    """float64 [n_captions]: the value of each caption against the others of its image, NaN where it
    has none; None where the folder lacks these values, or no image has a second caption."""
    if labels.stored.sampled:
        values = read_shards(Path(labels.file)).left_out(measure)
    else:
        values = read_own_pairs(Path(labels.file)).get(measure + LEFT_OUT)
    if values is None or len(values) != labels.n_captions or np.isnan(values).all():
        return None
    return values.astype(np.float64)


def _has_same_captions(calibration: Calibration, captions: Captions) -> bool:
    """Whether the judged pairs are of the captions that are audited."""
    judgements = calibration.facts["judgements"]
    return bool(
        judgements["captions"] == captions.digest and judgements.get("split") == captions.split
    )


def _observed_per_image(calibration: Calibration, captions: Captions) -> float | None:
    """How many captions of other images, per image, people accepted among the judged pairs; None
    where these are of other captions, or the calibration does not say."""
    judgements = calibration.facts["judgements"]
    return (
        judgements["accepted"] / judgements["images"]
        if _has_same_captions(calibration, captions) and "accepted" in judgements
        else None
    )


def _describe_calibration(
    calibration: Calibration, curve: Curve, captions: Captions
) -> dict[str, Any]:
    """What the probabilities were learnt from; `same_captions`: whether from the audited captions;
    `likely_from`: the value from which a pair is likely, None where none is."""
    judgements = calibration.facts["judgements"]
    return {
        **{key: judgements[key] for key in ("sampling", "file")},
        "same_captions": _has_same_captions(calibration, captions),
        **{key: calibration.facts[key] for key in ("accept", "low", "high")},
        "references": calibration.references,
        "likely_from": curve.value_at(LIKELY) if curve.accepted[-1] >= LIKELY else None,
        "pairs": curve.pairs,
        "ece": curve.ece,
    }


def _model_errors(
    captions_dir: Path,
    captions: Captions,
    curve: Curve,
    similarity: Sequence[Path],
    stand_in: int | None,
) -> tuple[dict[str, ModelErrors], str | None]:
    """direction -> the model's errors, and the warning (or None) about a matrix that seems to be in
    another order than the captions; no errors without a model."""
    if not similarity and stand_in is None:
        return {}, None
    from capgrade.trainer.evaluation.similarity import note_of_order
    from capgrade.trainer.evaluation.task import load_task

    task, _ = load_task(
        captions_dir, similarity=similarity, stand_in=stand_in, split=captions.split
    )
    kept = np.arange(captions.n_captions) if task.kept is None else task.kept
    is_full = similarity and task.similarity.shape == (captions.n_images, captions.n_captions)
    order_note = note_of_order(similarity, task.similarity, captions) if is_full else None
    errors = {
        direction: ModelErrors(task.similarity, kept, captions, direction, curve, task.images)
        for direction in DIRECTIONS
    }
    return errors, order_note


def _choose_measures(
    labels: Labels, calibration: Calibration, asked: str | None, path: Path
) -> list[str]:
    """The measure asked for, or the first that the calibration and the folder both have; then every
    other that both have, computed with the same parameters. InputError where the first differs."""
    made_with, folder = labels.made_with or {}, Path(labels.file)
    shared = [name for name in calibration.curves if name in made_with]
    first = next((name for name in shared if asked in (None, name)), None)
    if first is None:
        of_known, of_folder = ", ".join(calibration.curves), ", ".join(made_with)
        problem = f"{asked} is not of both: " if asked else ""
        problem += f"the calibration {path.name} is of {of_known}; the folder has {of_folder}"
        wanted = asked if asked in calibration.curves else next(iter(calibration.curves))
        remedy = f"compute it: --measures {wanted}, or calibrate: capgrade agree --calibrate"
        raise InputError(problem, file=folder, remedy=remedy)
    calibration.require_alike(first, made_with[first], folder, path)
    if labels.stored.partial(first):
        problem = f"{first} scores some pairs alone, which do not tell how many others fit"
        raise InputError(problem, file=folder, remedy="audit by a measure of every pair: --measure")
    return [
        first,
        *(name for name in shared if name != first and calibration.alike(name, made_with[name])),
    ]
