"""Stage `agree`: how well each measure agrees with human judgements of image-caption pairs, or of
pairs of one kind."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capgrade.agreement.calibration import (
    REFERENCES,
    Calibration,
    calibration_errors,
    calibration_file,
    load_calibration,
    meanings,
    random_pairs,
    save_calibration,
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
from capgrade.agreement.mixture_weights import mix, require_mixture, write_mixture
from capgrade.measures import Measure, choose, file_digests
from capgrade.measures.imported import Imported
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.agreement_text import agreement_table, agreement_text
from capgrade.pipelines.stages.agree import (
    AGREE,
    AGREEMENT,
    CALIBRATION,
    JUDGED,
    AgreeParams,
)
from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import found_digests, write_json, write_text
from capgrade.schemas.judges import NONE, ONE_PERSON, PEOPLE, TRUTH, VALUES, parse_scale
from capgrade.schemas.output import refuse_foreign
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.run import StageRun
from capgrade.schemas.say import tell
from capgrade.schemas.tables import ENDINGS

_JUDGED = "judged"
_NOT_OF_PAIRS = ("captions", "calibration")  # inputs that the table of judged pairs does not name
_PAIR = pa.schema(
    {"image": pa.int32(), "caption": pa.int32(), "original": pa.bool_(), "score": pa.float32()}
)


@dataclass(frozen=True)
class Agreement:
    """Figures of agreement, and what they are of."""

    judgements: dict[str, Any] | None  # who judged what; None: there are none
    measures: dict[str, dict[str, Any]]  # by measure, what docs/measures.md lists as JSON
    params: dict[str, Any] | None = None  # of each measure, None where none is of captions

    def json(self) -> dict[str, Any]:
        """As agreement.json has it."""
        params = {} if self.params is None else {"params": self.params}
        return {"judgements": self.judgements, **params, "measures": self.measures}

    def text(self) -> str:
        """Tables for a terminal."""
        if self.judgements is None:
            return "agree.judgements is null: no measure was compared with judgements"
        return agreement_text(self.measures)


@dataclass(frozen=True)
class Compared:
    """What comparing measures with people gives, beside the figures."""

    agreement: Agreement
    inputs: dict[str, str]
    judged: pa.Table | None = None  # a row a judged pair; None for pairs of one kind
    weights: Mapping[str, float] | None = None  # of the mixture
    calibration: Calibration | None = None


def agree(
    captions: Path, out: Path | None, params: AgreeParams, *, measures: MeasuresParams
) -> Agreement:
    """Pearson's r, Spearman's rho, Kendall's tau-b and tau-c of each measure and of binary
    relevance with human scores.

    In `out` it writes the figures (JSON, Markdown, LaTeX), the judged pairs (Arrow), the mixture
    (YAML) and the calibration (JSON). Raises InputError for ids or values that do not fit, a scale
    that is not known, an option that the judgements do not allow, a calibration of other measures
    or parameters, and an `out` that something else wrote.
    """
    if params.judgements is None and "judgements" not in params.model_fields_set:
        raise InputError("nothing to agree with", remedy="give --judgements")
    if params.calibrate and out is None:
        raise InputError("--calibrate writes a file", remedy="give --out")
    if params.mixture is not None:
        require_mixture(params.mixture)
    if out is not None:
        refuse_foreign(out, AGREE.name)
    table = read_captions(captions, params.split)
    found = Compared(Agreement(**NONE), found_digests(captions=captions))
    if params.judgements is not None:
        found = _compare_with_people(captions, params, measures)
    if out is None:
        return found.agreement
    run = StageRun(stage=AGREE, params=params, inputs=found.inputs, measures=measures)
    with run.folder(out) as folder:
        rows = _write(folder, found, params, measures, table)
        run.finish(folder, rows)
    return found.agreement


def _compare_with_people(
    captions_dir: Path, params: AgreeParams, measures: MeasuresParams
) -> Compared:
    """As `agree`, of judgements that there are; nothing is written."""
    assert params.judgements is not None
    judgements = Path(params.judgements)
    calibration = calibration_file(Path(params.calibration)) if params.calibration else None
    chosen = choose(params.measures, measures)
    inputs = {
        **found_digests(captions=captions_dir, calibration=calibration),
        "judgements": judged_digest(judgements),
        **file_digests(chosen.values()),
    }
    captions = read_captions(captions_dir, params.split)
    people = read_people(judgements, captions, parse_scale(params.scale) if params.scale else None)
    facts = _describe(judgements, captions, people)
    if params.sampling:
        people = replace(people, sampling=params.sampling, random=None)
    if params.calibrate or calibration:
        scale_of(people, params.accept, judgements)
    known: dict[str, Curve] = {}
    if calibration:
        fitting = load_calibration(calibration).fitting(captions.owner)
        known = fitting.of(measures.used(params.measures), judgements, calibration).curves
    judged = _compute_values(chosen, captions, people, params.accept, params.calibrate)
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
    weights: Mapping[str, float] | None = None
    if params.mixture is not None:
        predicted, weights = mix(values, people.score, people.image, params.folds)
        result["mixture"] = {**correlate(predicted, people, owner), "weights": weights}
    fitted, used = None, measures.used(list(values))
    if params.calibrate:
        of = {"file": judgements.name, "sha256": inputs["judgements"]}
        fitted = _fit_calibration(judged, captions, people, params.accept, used, of)
        for name, curve in fitted.curves.items():
            result[name]["calibration"] = {"ece": curve.ece, "reliability": curve.reliability}
    if 0 < own.sum() < len(own):
        result["binary"] = correlate(own.astype(float), people, owner)
    if people.ratings is not None:
        result[ONE_PERSON] = human(people, own)
    pairs = None if isinstance(people, Within) else _judged_table(people, own, values)
    return Compared(Agreement(facts, result, used), inputs, pairs, weights, fitted)


def write_figures(path: Path, agreement: Agreement) -> None:
    """Write figures as JSON, or as the table that the name of the file says: .md, .tex."""
    if path.suffix in ENDINGS:
        write_text(path, agreement_table(agreement.measures, path.suffix))
    else:
        write_json(path, agreement.json())


def _write(
    folder: Path,
    found: Compared,
    params: AgreeParams,
    measures: MeasuresParams,
    captions: Captions,
) -> dict[str, int]:
    """Write the files of the folder; returns their names, each with its number of rows."""
    agreement, rows = found.agreement, dict[str, int]()
    for ending in (".json", *(ENDINGS if agreement.measures else ())):
        file = Path(AGREEMENT).with_suffix(ending)
        write_figures(folder / file, agreement)
        rows[file.name] = len(agreement.measures)
    judged = _no_pairs() if agreement.judgements is None else found.judged
    if judged is not None:
        read = {name: sha for name, sha in found.inputs.items() if name not in _NOT_OF_PAIRS}
        _write_judged(folder / JUDGED, judged, captions, read)
        rows[JUDGED] = len(judged)
    if params.mixture is not None and found.weights is not None:
        r, tau = (agreement.measures["mixture"][name]["all"] for name in ("pearson", "kendall"))
        mixture = f"{params.mixture}.yaml"
        assert params.judgements is not None
        note = (
            f"on {Path(params.judgements).name}, split {captions.split}; on images of"
            f" {params.folds} folds that it was not fitted on: Pearson's r {r:.3f}, Kendall's"
            f" tau-b {tau:.3f}."
        )
        write_mixture(folder / mixture, found.weights, measures, note)
        rows[mixture] = len(found.weights)
    if found.calibration is not None:
        save_calibration(folder / CALIBRATION, found.calibration)
        rows[CALIBRATION] = len(found.calibration.curves)
    return rows


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


def _judged_table(
    people: Judgements, own: np.ndarray, values: Mapping[str, np.ndarray]
) -> pa.Table:
    """image and caption int32, original bool, score float32, and each measure float32, in the
    judgements' order."""
    columns = dict(zip(_PAIR.names, (people.image, people.caption, own, people.score), strict=True))
    schema = pa.schema([*_PAIR, *((name, pa.float32()) for name in values)])
    return pa.table({**columns, **values}, schema=schema)


def _no_pairs() -> pa.Table:
    return _PAIR.empty_table()


def _write_judged(
    path: Path, table: pa.Table, captions: Captions, inputs: Mapping[str, str]
) -> None:
    facts = {
        "kind": _JUDGED,
        "captions": captions.digest,
        "split": captions.split,
        "measures": table.column_names[len(_PAIR) :],
    }
    schema = with_metadata(table.schema, {**facts, "inputs": dict(inputs)})
    write_arrow(path, schema, table.replace_schema_metadata(schema.metadata).to_batches())


def _describe(judgements: Path, captions: Captions, people: Judgements) -> dict[str, Any]:
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which
    captions table; `of` captions or images where pairs are of one kind.

    A csv holds people's scores; a dense file is what its metadata say it is.
    """
    by = PEOPLE
    if judgements.suffix == ".arrow":
        by = TRUTH if read_relevance(judgements).metadata.get("measure") == "truth" else VALUES
    facts = {"split": captions.split, "captions": captions.digest}
    kind = {"of": people.of} if isinstance(people, Within) else {}
    return {"by": by, "file": judgements.name, "pairs": len(people.score), **facts, **kind}
