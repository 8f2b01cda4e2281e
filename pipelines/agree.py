"""Stage `agree`: how well each measure agrees with human judgements of image-caption pairs, or of
pairs of one kind."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.agreement.calibration import (
    REFERENCES,
    Calibration,
    calibration_errors,
    load,
    meanings,
    random_pairs,
    refuse_other,
    save,
    scale_of,
    some_references,
    usual_references,
)
from capgrade.agreement.coefficients import human
from capgrade.agreement.contradictions import contradictions
from capgrade.agreement.correlation import correlate
from capgrade.agreement.curve import Curve, fit, through
from capgrade.agreement.judgement_files import judged_digest, read_people
from capgrade.agreement.judgements import Judgements, Within
from capgrade.agreement.mixture_weights import FOLDS, mix, refuse_mixture, write_mixture
from capgrade.measures import Measure, choose, file_digests
from capgrade.measures.imported import Imported
from capgrade.measures.params import MeasuresParams
from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import found_digests
from capgrade.schemas.judges import NONE, PEOPLE, TRUTH, VALUES, parse_scale
from capgrade.schemas.own_files import arrow_of, refuse_file
from capgrade.schemas.params import AgreeParams
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.say import tell

_JUDGED = "judged"


def agree(
    captions_dir: Path,
    judgements: Path,
    names: Sequence[str],
    measures: MeasuresParams,
    split: str | None = None,
    *,
    folds: int | None = None,
    mixture: Path | None = None,
    pairs: Path | None = None,
    calibrate: Path | None = None,
    calibration: Path | None = None,
    params: AgreeParams | None = None,
) -> dict[str, dict[str, Any]]:
    """Pearson's r, Spearman's rho, Kendall's tau-b and tau-c of each measure and of binary
    relevance with human scores.

    Returns what docs/measures.md lists as JSON. `mixture` (YAML), `pairs` (Arrow, a row a judged
    pair) and `calibrate` (JSON) are files to write, `calibration` one that `calibrate` wrote of
    other judgements. Raises InputError for ids or values that do not fit, a scale that is not
    known, another kind of file where one is to be written, an option that the judgements do not
    allow, and a calibration of other measures or parameters.
    """
    params = params or AgreeParams()
    _refuse_paths(pairs, calibrate, calibration)
    if mixture:
        refuse_mixture(mixture)
        folds = folds or FOLDS

    chosen = choose(names, measures)
    inputs = {
        **found_digests(captions=captions_dir, calibration=calibration),
        "judgements": judged_digest(judgements),
        **file_digests(chosen.values()),
    }
    captions = read_captions(captions_dir, split)
    people = read_people(judgements, captions, parse_scale(params.scale) if params.scale else None)
    if params.sampling:
        people = replace(people, sampling=params.sampling, random=None)
    if pairs and isinstance(people, Within):
        problem = f"its pairs are of {people.of}, a table of judged pairs is of images and captions"
        raise InputError(problem, file=judgements, remedy="leave --pairs out")
    if calibrate or calibration:
        scale_of(people, params.accept, judgements)
    known: dict[str, Curve] = {}
    if calibration:
        fitting = load(calibration).fitting(captions.owner)
        known = fitting.of(measures.used(names), judgements, calibration).curves
    judged = _compute_values(chosen, captions, people, params.accept, calibrate is not None)
    people, values = _known_to_all(judged.values, people, judgements)
    judged = replace(judged, values=values)
    owner = captions.owner[people.caption]
    own = owner == people.image
    probabilities = meanings(values, known)
    result = {
        name: correlate(column, people, owner)
        for name, column in {**values, **probabilities}.items()
    }
    for name, contradicting in judged.contradictions.items():
        result[name]["contradictions"] = contradicting
    for name, error in calibration_errors(probabilities, people, ~own, params.accept).items():
        result[name]["calibration"] = error
    if folds:
        predicted, weights = mix(values, people.score, people.image, folds)
        result["mixture"] = {**correlate(predicted, people, owner), "weights": weights}
        if mixture:
            r, tau = (result["mixture"][name]["all"] for name in ("pearson", "kendall"))
            note = (
                f"on {judgements.name}, split {captions.split}; on images of {folds} folds that it"
                f" was not fitted on: Pearson's r {r:.3f}, Kendall's tau-b {tau:.3f}."
            )
            write_mixture(mixture, weights, measures, note)
    if pairs:
        read = {
            name: sha for name, sha in inputs.items() if name not in ("captions", "calibration")
        }
        _write_pairs(pairs, captions, people, own, values, read)
    if calibrate:
        facts = {"file": judgements.name, "sha256": inputs["judgements"]}
        used = measures.used(list(values))
        fitted = _fit_calibration(judged, captions, people, params.accept, used, facts)
        save(calibrate, fitted)
        for name, curve in fitted.curves.items():
            result[name]["calibration"] = {"ece": curve.ece, "reliability": curve.reliability}
    if 0 < own.sum() < len(own):
        result["binary"] = correlate(own.astype(float), people, owner)
    if people.ratings is not None:
        result["human"] = human(people, own)
    return result


def _known_to_all(
    values: Mapping[str, np.ndarray], people: Judgements, judgements: Path
) -> tuple[Judgements, dict[str, np.ndarray]]:
    """The judged pairs that every measure has a value for, as one table compares them. InputError
    where there is none."""
    unknown = {name: np.isnan(column) for name, column in values.items()}
    if not unknown:
        return people, {}
    known = np.flatnonzero(~np.any([*unknown.values()], axis=0))
    if len(known) == len(people.score):
        return people, dict(values)
    lacking = ", ".join(f"{name} {int(of.sum()):,}" for name, of in unknown.items() if of.any())
    if not len(known):
        problem = f"no judged pair has a value of every measure; lacking: {lacking}"
        raise InputError(problem, file=judgements, remedy="leave a measure out")
    n = len(people.score)
    tell(f"{len(known):,} of {n:,} judged pairs have a value of every measure; lacking: {lacking}")
    return people.take(known), {name: column[known] for name, column in values.items()}


@dataclass(frozen=True)
class _JudgedValues:
    """Values float [n] of the judged pairs by measure; by measure and number of an image's
    captions those of random pairs, which a calibration needs; and the judges' contradictions."""

    values: dict[str, np.ndarray]
    of_random: dict[str, dict[int, np.ndarray]]
    contradictions: dict[str, dict[str, Any]]


def _compute_values(
    chosen: Mapping[str, Measure],
    captions: Captions,
    people: Judgements,
    accept: float | None,
    calibrates: bool,
) -> _JudgedValues:
    """The measures' values; those of random pairs if a calibration is to be written."""
    usual = usual_references(captions.owner)
    fewer = {n: some_references(captions, n) for n in REFERENCES if calibrates and n < usual}
    judged = _JudgedValues({}, {}, {})
    for name, measure in chosen.items():
        fitted: Any = measure.fit(captions)
        judged.values[name] = people.values(fitted, captions)
        # An imported matrix has no references, and what scores some pairs is too slow for so many.
        if fewer and hasattr(fitted, "ref_ptr") and not measure.partial(captions):
            drawn = random_pairs(captions)
            judged.of_random[name] = {usual: fitted.pairs(*drawn)}
            for n, references in fewer.items():
                judged.of_random[name][n] = fitted.regroup(*references).pairs(*drawn)
        if isinstance(measure, Imported) and Path(measure.path).suffix.lower() == ".csv":
            # A table of `capgrade judge`, and no matrix.
            said = contradictions(Path(measure.path), people.scale, accept)
            if said:
                judged.contradictions[name] = said
    return judged


def _fit_calibration(
    judged: _JudgedValues,
    captions: Captions,
    people: Judgements,
    accept: float | None,
    used: dict[str, Any],
    facts: dict[str, Any],
) -> Calibration:
    """Curves of all measures, computed with the parameters `used`; `facts` are of the judgements'
    file."""
    owner = captions.owner[people.caption]
    scale = scale_of(people, accept)
    curves = {name: fit(column, people, owner, scale) for name, column in judged.values.items()}
    usual = usual_references(captions.owner)
    of_fewer: dict[int, dict[str, Curve]] = {n: {} for n in REFERENCES if n < usual}
    for name, column in judged.of_random.items():
        for n, of_name in of_fewer.items():
            of_name[name] = through(curves[name], column[usual], column[n])
    yes = (owner != people.image) & (people.score >= scale.accept)
    accepted = set(zip(people.image[yes].tolist(), people.caption[yes].tolist(), strict=True))
    facts = {
        **facts,
        "pairs": len(people.score),
        "split": captions.split,
        "captions": captions.digest,
        "sampling": people.sampling,
        "accepted": len(accepted),
        "images": captions.n_images,
    }
    return Calibration(curves, used, {**asdict(scale), "judgements": facts}, usual, of_fewer)


def _refuse_paths(pairs: Path | None, calibrate: Path | None, calibration: Path | None) -> None:
    if calibrate:
        refuse_other(calibrate)
        if pairs and calibrate.resolve() == pairs.resolve():
            raise InputError("pairs and calibration have one path", file=pairs, remedy="give two")
        if calibration and calibrate.resolve() == calibration.resolve():
            raise InputError(
                "the calibration to write is the one to read",
                file=calibrate,
                remedy="give two paths",
            )
    if pairs:
        refuse_file(pairs, "table of judged pairs", arrow_of(_JUDGED))


def _write_pairs(
    path: Path,
    captions: Captions,
    people: Judgements,
    own: np.ndarray,
    values: dict[str, np.ndarray],
    inputs: dict[str, str],
) -> None:
    """image and caption int32, original bool, score float32, and each measure float32, in the
    judgements' order."""
    table = pa.table(
        {
            "image": pa.array(people.image, pa.int32()),
            "caption": pa.array(people.caption, pa.int32()),
            "original": pa.array(own),
            "score": pa.array(people.score, pa.float32()),
            **{name: pa.array(of, pa.float32()) for name, of in values.items()},
        }
    )
    _write_judged(path, table, captions, list(values), inputs)


def _write_judged(
    path: Path, table: pa.Table, captions: Captions, measures: list[str], inputs: dict[str, str]
) -> None:
    facts = {
        "kind": _JUDGED,
        "captions": captions.digest,
        "split": captions.split,
        "measures": measures,
    }
    schema = with_metadata(table.schema, {**facts, "inputs": inputs})
    write_arrow(path, schema, table.replace_schema_metadata(schema.metadata).to_batches())


def agree_with_none(captions_dir: Path, split: str | None, pairs: Path | None) -> dict[str, Any]:
    """What `agree` has found where there are no judgements: NONE, and in `pairs` a table without
    rows. InputError as `agree`."""
    _refuse_paths(pairs, None, None)
    if pairs:
        columns = {
            "image": pa.int32(),
            "caption": pa.int32(),
            "original": pa.bool_(),
            "score": pa.float32(),
        }
        _write_judged(
            pairs, pa.schema(columns).empty_table(), read_captions(captions_dir, split), [], {}
        )
    return NONE


def describe_judgements(
    captions_dir: Path, judgements: Path, split: str | None = None
) -> dict[str, Any]:
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which
    captions table; `of` captions or images where pairs are of one kind.

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
