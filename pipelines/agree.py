"""Stage `agree`: how well each measure agrees with human judgements of image-caption pairs, or of pairs of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.agreement.calibration import Calibration, held, load, meanings, refuse_other, save, scale_of
from capgrade.pipelines.agreement.calibration import calibrate as fit_curves
from capgrade.pipelines.agreement.coefficients import coefficients, human, intervals
from capgrade.pipelines.agreement.judgement_files import judged_digest, read_judgements, read_people
from capgrade.pipelines.agreement.judgements import Judgements, Within
from capgrade.pipelines.measures import choose, read_by
from capgrade.pipelines.measures.mixture_weights import mix
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import with_metadata, write_arrow
from capgrade.schemas.inputs import found_digests, require_unchanged
from capgrade.schemas.judges import PEOPLE, TRUTH, VALUES
from capgrade.schemas.output import arrow_of, refuse_file
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.relevance import read_relevance

__all__ = ["Judgements", "agree", "read_judgements", "who_judged"]
JUDGED = "judged"


def agree(
    captions_dir: Path,
    judgements: Path,
    names: Sequence[str],
    measures: MeasuresParams,
    split: str | None = None,
    folds: int | None = None,
    pairs: Path | None = None,
    calibrate: Path | None = None,
    accept: float | None = None,
    calibration: Path | None = None,
    scale: tuple[float, float] | None = None,
    sampling: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Pearson's r, Spearman's rho, Kendall's tau-b and tau-c of each measure and of binary relevance with human scores.

    Returns measure -> coefficient -> {"all": over all judged pairs, "non_original": over those whose caption was
    not written for the image}, as `coefficients` names them, and "intervals" (`intervals`: bootstrap over images and
    captions). Of pairs of captions or of images (`Within`), "original" are captions of one image, and images have none.
    With several ratings per pair, "human" is one rater against the others (`human`). Binary relevance (1 for original
    pairs) is constant on the non-original ones, so its correlations have "all" alone. With `folds`, "mixture" is the
    weighted sum that fits people best, each image scored by weights from the other folds' images, and "weights" those
    from all.
    `pairs` is an Arrow file to write, a row a judged pair. `calibrate` is a JSON file to write: what a value means to
    people, who accept a pair from the score `accept` on; "calibration" of a measure is its error on held-out images.
    With `calibration`, such a file of other judgements, what values mean by it is judged too (`meanings`);
    "calibration" of a column of probabilities is its error among these judgements' non-original pairs. Both need the
    scale of the scores: `scale`, lowest and highest, where the file does not say it. `sampling` says for a calibration
    how the judged pairs were come by: "random", any pair as likely, or "chosen", the default unless all were judged.
    Raises InputError for ids or values that do not fit, for a scale that is asked for and not known, where something
    else stands at `pairs` or `calibrate`, for any of these with judgements that do not allow it, for a `calibration` of
    other measures or parameters, and when an input changes while it is read.
    """
    if calibrate:
        refuse_other(calibrate)
    if calibrate and pairs and calibrate.resolve() == pairs.resolve():
        raise InputError("pairs and calibration have one path", file=pairs, remedy="give two")
    if calibrate and calibration and calibrate.resolve() == calibration.resolve():
        raise InputError("the calibration to write is the one to read", file=calibrate, remedy="give two paths")
    if pairs:
        refuse_file(pairs, "table of judged pairs", arrow_of(JUDGED))
    inputs = _inputs(captions_dir, judgements, names, measures, calibration)
    captions = read_captions(captions_dir, split)
    people = read_people(judgements, captions, scale)
    people = replace(people, sampling=sampling or people.sampling)
    _refuse_files(people, judgements, pairs, calibrate or calibration)
    if calibrate or calibration:
        scale_of(people, accept, judgements)
    known = load(calibration).of(measures.used(names), judgements, calibration).curves if calibration else {}
    owner = captions.owner[people.caption]
    original = owner == people.image
    labels = {
        name: _values(measure.fit(captions), people, captions) for name, measure in choose(names, measures).items()
    }
    require_unchanged(inputs, _inputs(captions_dir, judgements, names, measures, calibration))
    meant = meanings(labels, known)
    result = {name: _row(values, people, owner) for name, values in {**labels, **meant}.items()}
    for name, error in held(meant, people, ~original).items():
        result[name]["calibration"] = error
    if folds:
        mixed = mix(labels, people.score, people.image, folds)
        result["mixture"] = {**_row(mixed.predicted, people, owner), "weights": mixed.weights}
    if pairs:
        read = {name: sha for name, sha in inputs.items() if name not in ("captions", "calibration")}
        _write_pairs(pairs, captions, people, original, labels, read)
    if calibrate:
        facts = {"file": judgements.name, "sha256": inputs["judgements"]}
        made = _calibrate(calibrate, captions, facts, people, labels, measures, accept)
        for name, curve in made.curves.items():
            result[name]["calibration"] = {"ece": curve.ece, "reliability": curve.reliability}
    if 0 < original.sum() < len(original):
        result["binary"] = _row(original.astype(float), people, owner)
    if people.ratings is not None:
        result["human"] = human(people, original)
    return result


def _inputs(
    captions_dir: Path, judgements: Path, names: Sequence[str], measures: MeasuresParams, calibration: Path | None
) -> dict[str, str]:
    judged = {"judgements": judged_digest(judgements)}
    return {**found_digests(captions=captions_dir, calibration=calibration), **judged, **read_by(names, measures)}


def _refuse_files(people: Judgements, judgements: Path, pairs: Path | None, curves: Path | None) -> None:
    if pairs and isinstance(people, Within):
        problem = f"its pairs are of {people.of}, a table of judged pairs is of images and captions"
        raise InputError(problem, file=judgements, remedy="leave --pairs out")
    if curves and people.uncalibrated:
        problem = f"these judgements cannot calibrate: {people.uncalibrated}"
        remedy = "leave --calibrate and --calibration out, or give other judgements"
        raise InputError(problem, file=judgements, remedy=remedy)


def _values(fitted: Any, people: Judgements, captions: Captions) -> np.ndarray:
    if isinstance(people, Within):
        return people.values(fitted, captions)
    return fitted.pairs(people.image, people.caption)


def _row(values: np.ndarray, people: Judgements, owner: np.ndarray) -> dict[str, Any]:
    original = owner == people.image
    return {**coefficients(values, people, original), "intervals": intervals(values, people, owner)}


def _calibrate(
    path: Path,
    captions: Captions,
    judged: dict[str, str],
    people: Judgements,
    labels: dict[str, np.ndarray],
    measures: MeasuresParams,
    accept: float | None,
) -> Calibration:
    curves, scale = fit_curves(labels, people, captions.owner[people.caption], accept)
    facts = {**judged, "pairs": len(people.score), "split": captions.split, "captions": captions.digest}
    facts |= {"sampling": people.sampling}
    made = Calibration(curves, measures.used(list(labels)), {**scale, "judgements": facts})
    save(path, made)
    return made


def _write_pairs(
    path: Path,
    captions: Captions,
    people: Judgements,
    original: np.ndarray,
    labels: dict[str, np.ndarray],
    inputs: dict[str, str],
) -> None:
    """image and caption int32, original bool, score float32, and each measure float32, in the judgements' order."""
    columns = {
        "image": pa.array(people.image, pa.int32()),
        "caption": pa.array(people.caption, pa.int32()),
        "original": pa.array(original),
        "score": pa.array(people.score, pa.float32()),
        **{name: pa.array(values, pa.float32()) for name, values in labels.items()},
    }
    table = pa.table(columns)
    facts: dict[str, Any] = {
        "kind": JUDGED,
        "captions": captions.digest,
        "split": captions.split,
        "measures": list(labels),
    }
    facts["inputs"] = inputs
    schema = with_metadata(table.schema, facts)
    write_arrow(path, schema, table.replace_schema_metadata(schema.metadata).to_batches())


def who_judged(captions_dir: Path, judgements: Path, split: str | None = None) -> dict[str, Any]:
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which captions table; `of`
    captions or images where pairs are of one kind.

    A csv holds people's scores; a dense file is what its metadata say it is.
    """
    captions = read_captions(captions_dir, split)
    by = PEOPLE
    if judgements.suffix == ".arrow":
        by = TRUTH if read_relevance(judgements).metadata.get("measure") == "truth" else VALUES
    people = read_people(judgements, captions)
    facts = {"split": captions.split, "captions": captions.digest}
    kind = {"of": people.of} if isinstance(people, Within) else {}
    return {"by": by, "file": judgements.name, "pairs": len(people.score), **facts, **kind}
