"""Relevance of every caption to every image's reference set: one measure a file, and the files that measures read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.measures.base import Fitted, Measure, State
from capgrade.measures.bleu import Bleu
from capgrade.measures.cider import Cider, CiderPlain
from capgrade.measures.imported import Imported
from capgrade.measures.meteor import Meteor
from capgrade.measures.meteor.data import JAR, PARAPHRASES, meteor_folder
from capgrade.measures.mixture import Mixture
from capgrade.measures.rouge import RougeL
from capgrade.measures.sbert import Sbert
from capgrade.measures.sbert_shared import SbertShared
from capgrade.measures.scene_graph import SceneGraph
from capgrade.measures.spice import Spice, jars
from capgrade.measures.tfidf import TfidfCosine
from capgrade.pretrained import fingerprint
from capgrade.schemas.captions import FILE
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.own_pairs import LEFT_OUT
from capgrade.schemas.params import FORMS_OF_SBERT, MeasuresParams

__all__ = ["FITTED", "MEASURES", "Fitted", "Measure", "choose"]

MEASURES: dict[str, Callable[[MeasuresParams], Measure]] = {
    "bleu": lambda params: Bleu(params.bleu),
    "cider": lambda params: Cider(params.cider),
    "cider_plain": lambda params: CiderPlain(params.cider_plain),
    "meteor": lambda params: Meteor(params.meteor),
    "rouge_l": lambda params: RougeL(params.rouge_l),
    "sbert": lambda params: Sbert(params.sbert),
    "scene_graph": lambda params: SceneGraph(params.scene_graph),
    "spice": lambda params: Spice(params.spice),
    "sbert_mean": lambda params: Sbert(params.of("sbert_mean")),
    "sbert_shared": lambda params: SbertShared(params.of("sbert_shared")),
    "sbert_shared_mean": lambda params: SbertShared(params.of("sbert_shared_mean")),
    "tfidf_cosine": lambda params: TfidfCosine(params.tfidf_cosine),
}
# Columns of shards, of judged and of published pairs; rows of the agreement.
TAKEN = frozenset(
    ("image", "image_id", "caption", "captions", "caption_id", "original", "reasons", "weight")
    + ("score", "binary", "mixture", "human")
)
FITTED = State.kinds
Digests = Iterator[tuple[str, str]]


def choose(names: Sequence[str], params: MeasuresParams) -> dict[str, Measure]:
    """The named measures with their parameters: ours, those that `params.imported` names, and mixtures of them.

    Raises InputError for an unknown or repeated name, listing the known ones, and for one that no file or
    column can have.
    """
    for name in (*params.imported, *params.mixtures):
        taken = name.lower() in TAKEN or name.lower().endswith(LEFT_OUT)
        if taken or not re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII):
            remedy = f"a letter, then letters, digits and _, 64 at most; taken are {', '.join(sorted(TAKEN))}, "
            remedy += f"and what ends in {LEFT_OUT}"
            raise InputError(f"a measure cannot be called {name!r}", remedy=remedy)
    known = _single(params)
    for name, weights in params.all_mixtures.items():
        if name in known:
            raise InputError(f"mixture '{name}' has the name of a measure", remedy="call it otherwise")
        known[name] = lambda params, name=name, weights=weights: _mixture(name, weights, params)  # type: ignore[misc, assignment]
    for k, name in enumerate(names):
        if name not in known:
            raise InputError(f"unknown measure '{name}'", remedy=f"choose from: {', '.join(sorted(known))}")
        if name in names[:k]:
            raise InputError(f"measure '{name}' is named twice")
    return {name: known[name](params) for name in names}


def names_of(params: MeasuresParams) -> set[str]:
    """The measures that can be computed with these parameters."""
    return {*_single(params), *params.all_mixtures}


def _single(params: MeasuresParams) -> dict[str, Callable[[MeasuresParams], Measure]]:
    known = dict(MEASURES)
    for name, path in params.imported.items():
        if name in MEASURES:
            raise InputError(f"imported measure '{name}' has the name of one of ours", remedy="call it otherwise")
        known[name] = lambda _, name=name, path=path: Imported(name, path)  # type: ignore[misc]
    return known


def _mixture(name: str, weights: dict[str, float], params: MeasuresParams) -> Mixture:
    known = _single(params)
    for part in weights:
        if part not in known:
            problem = f"mixture '{name}' is of an unknown measure '{part}'"
            raise InputError(problem, remedy=f"choose from: {', '.join(sorted(known))}")
    return Mixture({part: known[part](params) for part in weights}, weights)


def read_by(names: Sequence[str], params: MeasuresParams) -> dict[str, str]:
    """SHA-256 of every file that the named measures read, by the parameter that names it or, of an installed package,
    by the file's name. InputError when one is missing."""
    return {key: sha for name in names for key, sha in _reads(name, params)}


def require_read(names: Sequence[str], params: MeasuresParams, inputs: Mapping[str, Any], made: Path) -> None:
    """InputError where a file that the named measures read is another one than `inputs` of the manifest in `made` say:
    what is computed now would not fit what is stored there."""
    for key, sha in read_by(names, params).items():
        if inputs.get(key) != sha:
            problem = f"{key} is another file than these labels were made with"
            raise InputError(problem, file=made, remedy="put that file back, or make the labels again")


def _reads(name: str, params: MeasuresParams) -> Digests:
    if name in params.imported:
        yield f"measures.imported.{name}", file_digest(Path(params.imported[name]))
    elif name in params.all_mixtures:
        yield from read_by(list(params.all_mixtures[name]), params).items()
    elif name in _READS:
        yield from _READS[name](params)


def _frequencies(name: str, source: str | None) -> Digests:
    """FOLDER and FOLDER#split by the captions in it, of which the split is a part."""
    if source is not None:
        folder = Path(source.partition("#")[0])
        path = folder / FILE if folder.is_dir() else Path(source)
        yield f"measures.{name}.document_frequency", file_digest(path)


def _model(params: MeasuresParams) -> Digests:
    yield "measures.sbert.model", fingerprint(params.sbert.model)


def _meteor(*files: str) -> Digests:
    folder = meteor_folder()
    return ((Path(name).name, file_digest(folder / name)) for name in files)


_READS: Mapping[str, Callable[[MeasuresParams], Digests]] = {
    "cider": lambda params: _frequencies("cider", params.cider.document_frequency),
    "cider_plain": lambda params: _frequencies("cider_plain", params.cider_plain.document_frequency),
    **dict.fromkeys(("sbert", *FORMS_OF_SBERT), _model),
    "meteor": lambda _: _meteor(JAR, PARAPHRASES),
    "scene_graph": lambda _: _meteor(JAR),
    "spice": lambda _: ((path.name, file_digest(path)) for path in jars()),
}
