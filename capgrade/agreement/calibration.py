"""Calibrations: the curves of each measure, the parameters they are of, and the file that holds
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.curve import Curve, Scale, reliability
from capgrade.agreement.judgements import Judgements
from capgrade.measures.params import OWNERS
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, write_json
from capgrade.schemas.judges import CHOSEN, ONE_TO_FOUR, RANDOM, YES_OR_NO, ZERO_TO_FIVE
from capgrade.schemas.lines import read_json
from capgrade.schemas.natures import Manner, keys_of

# of Crisscrossed Captions, score at least 4.5
SHIPPED = Path(__file__).with_name("crisscrossed.json")
_KIND, _FORMAT = "calibration", 3  # 2 did not say how its pairs were sampled
REFERENCES = (1, 2, 3, 5)  # captions of an image, of which a measure is often the largest value
_PAIRS = 1_000_000  # drawn to learn what a value over fewer references says
# where nobody sets agree.accept
ACCEPTED_FROM = {
    ZERO_TO_FIVE: 3.0,
    ONE_TO_FOUR: 3.0,
    YES_OR_NO: 0.5,
}
SCORE, ACCEPTED = "_score", "_accepted"  # ends of the names of what a measure means


@dataclass(frozen=True)
class Calibration:
    """Curves by measure, the parameters each was computed with, and what they were fitted on.
    `references`: the usual number of captions of an image there, None in a file that does not say;
    `fewer`: curves by measure of the same judgements where each image has fewer, by their number.
    """

    curves: dict[str, Curve]
    params: dict[str, Any]
    facts: dict[str, Any]
    references: int | None = None
    fewer: dict[int, dict[str, Curve]] = field(default_factory=dict)

    @property
    def random(self) -> bool:
        """Whether any pair was as likely to be judged: then its probabilities hold for pairs that
        nobody judged."""
        return bool(self.facts["judgements"]["sampling"] == RANDOM)

    def of(self, used: Mapping[str, Any], made: Path, path: Path) -> Calibration:
        """That of the measures in `used` alone, name -> parameters, in their order. InputError
        where it knows none, and where `made` has one of other parameters than this, read from
        `path`."""
        curves = {name: self.curves[name] for name in used if name in self.curves}
        if not curves:
            problem = f"calibrates {', '.join(self.curves)}, none of {', '.join(used)}"
            raise InputError(
                problem, file=path, remedy="calibrate one of these: capgrade agree --calibrate"
            )
        for name in curves:
            self.require_alike(name, used[name], made, path)
        return replace(self, curves=curves)

    def fitting(self, owner: np.ndarray) -> Calibration:
        """The curves of as many references as an image usually has, else of the next fewer: the
        largest value over fewer references means more, so P is rather too high than too low. owner
        int64 [n_captions]: their images."""
        usual = usual_references(owner)
        known = [n for n in self.fewer if n <= usual]
        if self.references is None or usual >= self.references or not known:
            return self
        n = max(known)
        return replace(self, curves={**self.curves, **self.fewer[n]}, references=n)

    def alike(self, measure: str, params: Any) -> bool:
        """Whether a measure of these parameters is the calibrated one."""
        return alike(params, self.params[measure])

    def require_alike(self, measure: str, params: Any, made: Path, path: Path) -> None:
        """InputError where the labels in `made` have a measure of other parameters than the
        calibration at `path`."""
        if not self.alike(measure, params):
            remedy = "calibrate for these: capgrade agree --calibrate, then --calibration"
            raise InputError(
                f"{measure} has other parameters than in {path.name}", file=made, remedy=remedy
            )


def usual_references(owner: np.ndarray) -> int:
    """The median number of captions of an image, halves down; owner int64 [n_captions]: the image
    of each."""
    return int(np.median(np.unique(owner, return_counts=True)[1]))


def some_references(captions: Captions, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """ref_ptr and refs, as of a fitted measure, of n captions of each image drawn at random; of all
    where there are fewer."""
    sizes = np.diff(captions.ref_ptr)
    image = np.repeat(np.arange(captions.n_images), sizes)
    order = np.lexsort((np.random.default_rng(seed).random(len(image)), image))
    place = np.arange(len(image)) - np.repeat(captions.ref_ptr[:-1], sizes)
    return np.concatenate([[0], np.minimum(sizes, n).cumsum()]), captions.refs[order][place < n]


def random_pairs(captions: Captions, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images and captions of others, any pair as likely: all of them, or about PAIRS of many."""
    n = captions.n_images * captions.n_captions
    cell = np.arange(n) if n <= _PAIRS else np.random.default_rng(seed).integers(n, size=_PAIRS)
    image, caption = np.divmod(cell, captions.n_captions)
    other = captions.owner[caption] != image
    return image[other], caption[other]


def alike(params: Any, others: Any, own: bool = False) -> bool:
    """Whether a measure of these parameters has the values that one of the others has. The
    pictures, which are others elsewhere, do not count; with `own` what has an effect on own pairs
    alone does."""
    return bool(_meant(params, own) == _meant(others, own))


def _meant(params: Any, own: bool) -> Any:
    if isinstance(params, dict):
        left_out = _not_meant(own)
        return {key: _meant(value, own) for key, value in params.items() if key not in left_out}
    return params


def _not_meant(own: bool) -> set[str]:
    kinds = OWNERS.values()
    how = {key for kind in kinds for key in keys_of(kind.parameters, Manner)}
    how |= {kind.pictures for kind in kinds if kind.pictures}
    return how if own else {"self_reference", *how}


def calibration_file(path: Path) -> Path:
    """The file; or the one that comes with capgrade, by its name `crisscrossed` where no such file
    is."""
    return SHIPPED if str(path) == SHIPPED.stem and not path.exists() else path


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Write it as JSON, which `load_calibration` reads."""

    def written(curves: Mapping[str, Curve]) -> dict[str, Any]:
        return {name: asdict(curve) for name, curve in curves.items()}

    fewer = {str(n): written(curves) for n, curves in calibration.fewer.items()}
    facts = {"kind": _KIND, "format": _FORMAT, "package": package_version(), **calibration.facts}
    facts |= {"params": calibration.params, "references": calibration.references, "fewer": fewer}
    write_json(path, {**facts, "measures": written(calibration.curves)})


def load_calibration(path: Path) -> Calibration:
    """InputError for a file that `save_calibration` did not write."""
    found = read_json(path)
    try:
        if found["kind"] != _KIND or found["format"] != _FORMAT:
            raise ValueError("another kind or format")
        curves = {name: Curve(**curve) for name, curve in found["measures"].items()}
        fewer = {
            int(n): {name: Curve(**curve) for name, curve in some.items()}
            for n, some in found.get("fewer", {}).items()
        }
        whole = all(
            len(curve.value) == len(curve.score) == len(line) and np.all(np.diff(curve.value) > 0)
            for some in (curves, *fewer.values())
            for curve in some.values()
            for line in (curve.accepted, *curve.draws)
        )
        if not whole:
            raise ValueError("curves of uneven lengths")
        facts = {key: found[key] for key in ("judgements", "accept", "low", "high", "package")}
        if facts["judgements"]["sampling"] not in (RANDOM, CHOSEN):
            raise ValueError(f"sampling {facts['judgements']['sampling']}")
        return Calibration(curves, dict(found["params"]), facts, found.get("references"), fewer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"not a calibration ({type(error).__name__}: {error})"
        raise InputError(
            problem, file=path, remedy="give what capgrade agree --calibrate wrote"
        ) from error


def scale_of(people: Judgements, accept: float | None = None, file: Path | None = None) -> Scale:
    """The judgements' scale, and the score from which people accept: `accept`, else half of the
    shares of yes, 3 of 0 to 5 and of 1 to 4. InputError for judgements that cannot calibrate, where
    the scale is not known, another one comes without `accept`, and for an `accept` beyond the
    scores."""
    if people.uncalibrated:
        problem = f"these judgements cannot calibrate: {people.uncalibrated}"
        raise InputError(problem, file=file, remedy="calibrate by other judgements, or by none")
    if people.scale is None:
        remedy = "give --set agree.scale=LOW..HIGH, such as 0..5, or a column `scale` with it"
        raise InputError("does not say between which scores people chose", file=file, remedy=remedy)
    low, high = people.scale
    accept = ACCEPTED_FROM.get(people.scale) if accept is None else accept
    if accept is None or not low < accept <= high:
        said = (
            "nobody says from which score people accept"
            if accept is None
            else f"accepted from {accept:g} on"
        )
        remedy = "set agree.accept on the scale of the judgements"
        raise InputError(f"{said}, scores are {low:g} to {high:g}", file=file, remedy=remedy)
    return Scale(accept, low, high)


GRADE = "_grade"


def meanings(
    labels: Mapping[str, np.ndarray], curves: Mapping[str, Curve]
) -> dict[str, np.ndarray]:
    """Of each measure with a curve: the human score to be expected, 0..5; the probability that a
    person accepts, 0..1; and the grade, the whole number nearest to the score, halves up. Each
    float64 [n]."""
    found: dict[str, np.ndarray] = {}
    for name, curve in curves.items():
        score = curve.expected(labels[name])
        found |= {name + SCORE: score, name + ACCEPTED: curve.probability(labels[name])}
        found[name + GRADE] = np.floor(score + 0.5)
    return found


def calibration_errors(
    meant: Mapping[str, np.ndarray], people: Judgements, other: np.ndarray, accept: float | None
) -> dict[str, Any]:
    """Column of probabilities -> {"ece", "reliability"} among the `other` pairs, bool [n]; accepted
    as `scale_of` these judgements and `accept` has it."""
    columns = [name for name in meant if name.endswith(ACCEPTED)]
    if not columns:
        return {}
    yes = (people.score[other] >= scale_of(people, accept).accept).astype(np.float64)
    found = {name: reliability(meant[name][other], yes) for name in columns}
    return {name: {"ece": ece, "reliability": table} for name, (ece, table) in found.items()}
