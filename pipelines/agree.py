"""Stage `agree`: how well each measure agrees with human judgements of image-caption pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.pipelines.agreement.calibration import Calibration, refuse_other, save
from capgrade.pipelines.agreement.calibration import calibrate as fit_curves
from capgrade.pipelines.agreement.ceiling import human
from capgrade.pipelines.agreement.coefficients import coefficients, intervals
from capgrade.pipelines.agreement.ratings import Judgements
from capgrade.pipelines.agreement.read import read_judgements
from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.mixture_weights import mix
from capgrade.pipelines.measures.pairs import pair_values
from capgrade.pipelines.measures.reads import read_by
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import with_metadata, write_arrow
from capgrade.schemas.inputs import file_digest
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
) -> dict[str, dict[str, Any]]:
    """Pearson's r, Spearman's rho, Kendall's tau-b and tau-c of each measure and of binary relevance with human scores.

    Returns measure -> coefficient -> {"all": over all judged pairs, "non_original": over those whose caption was
    not written for the image}, as `coefficients` names them, and "intervals" (`intervals`: bootstrap over images). With
    several ratings per pair, "human" is one rater against the others (`human`). Binary relevance (1 for original pairs)
    is constant on the non-original ones, so it has "all" alone. With `folds`, "mixture" is the weighted sum that fits
    people best, each image scored by weights from the other folds' images, and "weights" those from all of them.
    `pairs` is an Arrow file to write, a row a judged pair. `calibrate` is a JSON file to write: what a value means to
    people, who accept a pair from the score `accept` on; "calibration" of a measure is its error on held-out images.
    Raises InputError for ids or values that do not fit, and where something else stands at `pairs` or `calibrate`.
    """
    if calibrate:
        refuse_other(calibrate)
    if calibrate and pairs and calibrate.resolve() == pairs.resolve():
        raise InputError("pairs and calibration have one path", file=pairs, remedy="give two")
    if pairs:
        refuse_file(pairs, "table of judged pairs", arrow_of(JUDGED))
    captions = read_captions(captions_dir, split)
    people = read_judgements(judgements, captions)
    original = captions.owner[people.caption] == people.image
    chosen = choose(names, measures).items()
    labels = {name: pair_values(measure.fit(captions), people.image, people.caption) for name, measure in chosen}
    result = {name: _row(values, people, original) for name, values in labels.items()}
    if folds:
        mixed = mix(labels, people.score, people.image, folds)
        result["mixture"] = {**_row(mixed.predicted, people, original), "weights": mixed.weights}
    if pairs:
        inputs = {"judgements": file_digest(judgements), **read_by(names, measures)}
        _write_pairs(pairs, captions, people, original, labels, inputs)
    if calibrate:
        made = _calibrate(calibrate, captions, judgements, people, original, labels, measures, accept)
        for name, curve in made.curves.items():
            result[name]["calibration"] = {"ece": curve.ece, "reliability": curve.reliability}
    if 0 < original.sum() < len(original):
        result["binary"] = _row(original.astype(float), people, original)
    if people.ratings is not None:
        result["human"] = human(people, original)
    return result


def _row(values: np.ndarray, people: Judgements, original: np.ndarray) -> dict[str, Any]:
    return {**coefficients(values, people, original), "intervals": intervals(values, people, original)}


def _calibrate(
    path: Path,
    captions: Captions,
    judgements: Path,
    people: Judgements,
    original: np.ndarray,
    labels: dict[str, np.ndarray],
    measures: MeasuresParams,
    accept: float | None,
) -> Calibration:
    curves, scale = fit_curves(labels, people, original, accept)
    facts = {"file": judgements.name, "sha256": file_digest(judgements), "pairs": len(people.score)}
    facts |= {"split": captions.split, "captions": captions.digest}
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
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which captions table.

    A csv holds people's scores; a dense file is what its metadata say it is.
    """
    captions = read_captions(captions_dir, split)
    by = PEOPLE
    if judgements.suffix == ".arrow":
        by = TRUTH if read_relevance(judgements).metadata.get("measure") == "truth" else VALUES
    pairs = len(read_judgements(judgements, captions).score)
    facts = {"split": captions.split, "captions": captions.digest}
    return {"by": by, "file": judgements.name, "pairs": pairs, **facts}
