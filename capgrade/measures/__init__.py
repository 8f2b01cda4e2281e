"""Relevance of every caption to every image's reference set; a measure has a folder or a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.measures.base import Fitted, Measure, OfReferences, Scorer, Shortlist
from capgrade.measures.catalogue import MEASURES, require_name
from capgrade.measures.imported import Imported
from capgrade.measures.mixture import Mixture
from capgrade.measures.params import MeasuresParams
from capgrade.measures.shortlist import Shortlisted
from capgrade.schemas.errors import InputError, choose_from

__all__ = [
    "MEASURES",
    "Fitted",
    "Measure",
    "MeasuresParams",
    "OfReferences",
    "Scorer",
    "choose",
]


def choose(names: Sequence[str], params: MeasuresParams) -> dict[str, Measure]:
    """The named measures with their parameters.

    They are of the catalogue, imported files, or mixtures of these. Raises InputError for an
    unknown or repeated name, with those near it, and for one that no file or column can have.

    >>> choose(["cider", "people"], MeasuresParams())["people"].high
    1.0
    """
    known = names_of(params)
    for k, name in enumerate(names):
        if name not in known:
            remedy = choose_from(name, sorted(known), "capgrade list measures")
            raise InputError(f"unknown measure '{name}'", remedy=remedy)
        if name in names[:k]:
            raise InputError(f"measure '{name}' is named twice")
    return {name: _measure(name, params) for name in names}


def names_of(params: MeasuresParams) -> set[str]:
    """The measures that can be computed with these parameters.

    InputError for a name that no file or column can have, or that two measures have.
    """
    for name in (*params.imported, *params.mixtures):
        require_name(name)
    for name in params.imported:
        if name in MEASURES:
            problem = f"imported measure '{name}' has the name of one of ours"
            raise InputError(problem, remedy="call it otherwise")
    for name in params.all_mixtures:
        if name in MEASURES or name in params.imported:
            problem = f"mixture '{name}' has the name of a measure"
            raise InputError(problem, remedy="call it otherwise")
    return {*MEASURES, *params.imported, *params.all_mixtures}


def parts_of(names: Iterable[str], params: MeasuresParams) -> set[str]:
    """The named measures, those that rank for them, and in place of a mixture its parts."""
    parts, seen, waiting = set(), set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in params.all_mixtures:
            waiting += params.all_mixtures[name]
            continue
        parts.add(name)
        if name in MEASURES and isinstance(block := params.of(name), Shortlist):
            waiting.append(block.of)
    return parts


def _measure(name: str, params: MeasuresParams) -> Measure:
    """One of `names_of` these parameters."""
    if name in params.imported:
        return Imported(name, params.imported[name])
    if name in MEASURES:
        measure = MEASURES[name](params.of(name))
        if isinstance(measure.params, Shortlist):
            return _shortlisted(name, measure, params)
        return measure
    weights, single = params.all_mixtures[name], {*MEASURES, *params.imported}
    for part in weights:
        if part not in single:
            problem = f"mixture '{name}' is of an unknown measure '{part}'"
            remedy = choose_from(part, sorted(single), "capgrade list measures")
            raise InputError(problem, remedy=remedy)
    return Mixture(name, {part: _measure(part, params) for part in weights}, weights)


def _shortlisted(name: str, measure: Measure, params: MeasuresParams) -> Shortlisted:
    ranker = measure.params.of
    parts = parts_of([ranker], params) & MEASURES.keys()
    if any(isinstance(params.of(part), Shortlist) for part in parts):
        problem = f"measures.{name}.of is '{ranker}', which does not score every pair"
        raise InputError(problem, remedy="name a measure that does, such as sbert")
    try:
        return Shortlisted(measure, choose([ranker], params)[ranker])
    except InputError as error:
        raise InputError(f"measures.{name}.of: {error.problem}", remedy=error.remedy) from None


def file_digests(measures: Iterable[Measure]) -> dict[str, str]:
    """SHA-256 of every file that these measures read.

    Keys are the parameter that names a file, or the name of a file of an installed package.
    InputError when one is missing.
    """
    digests: dict[str, str] = {}
    for measure in measures:
        digests |= measure.files()
    return digests


def require_same_files(
    names: Sequence[str], params: MeasuresParams, inputs: Mapping[str, Any], made: Path
) -> None:
    """InputError where a file that the named measures read is not that of `inputs`.

    `inputs` are of the manifest in `made`: what is computed now would not fit what is stored there.
    """
    for key, sha in file_digests(choose(names, params).values()).items():
        if inputs.get(key) != sha:
            problem = f"{key} is another file than these labels were made with"
            raise InputError(
                problem, file=made, remedy="put that file back, or make the labels again"
            )
