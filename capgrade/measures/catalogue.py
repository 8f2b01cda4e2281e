"""Every measure by its name: those of this package, and those that other packages bring."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from capgrade.measures.base import Measure
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MEASURES_OF_OTHERS, package_of
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.say import warn

# Ours, named as the entry points of other packages name theirs. The file named here says what a
# measure is; it imports kernels where they are called, so that parameters are read without them.
_OURS = {
    "bleu": "capgrade.measures.bleu:Bleu",
    "cider": "capgrade.measures.cider:Cider",
    "cider_plain": "capgrade.measures.cider:CiderPlain",
    "meteor": "capgrade.measures.meteor:Meteor",
    "rouge_l": "capgrade.measures.rouge:RougeL",
    "sbert": "capgrade.measures.sbert:Sbert",
    "scene_graph": "capgrade.measures.scene_graph:SceneGraph",
    "spice": "capgrade.measures.spice:Spice",
    "sbert_mean": "capgrade.measures.sbert:SbertMean",
    "sbert_shared": "capgrade.measures.sbert:SbertShared",
    "sbert_shared_mean": "capgrade.measures.sbert:SbertSharedMean",
    "tfidf_cosine": "capgrade.measures.tfidf:TfidfCosine",
    "image_text": "capgrade.measures.image_text:ImageText",
    "reranker": "capgrade.measures.reranker:Reranker",
    "image_reranker": "capgrade.measures.reranker:ImageReranker",
}
# Names of columns of shards and of judged and published pairs, and of rows of the agreement.
TAKEN = frozenset(
    ("image", "image_id", "caption", "captions", "caption_id", "original", "reasons", "weight")
    + ("score", "binary", "mixture", "human")
)


def require_name(name: str) -> None:
    """InputError for a name that no file or column can have."""
    taken = name.lower() in TAKEN or name.lower().endswith(LEFT_OUT)
    if taken or not re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII):
        names = f"{', '.join(sorted(TAKEN))}, and what ends in {LEFT_OUT}"
        remedy = f"a letter, then letters, digits and _, 64 at most; taken are {names}"
        raise InputError(f"a measure cannot be called {name!r}", remedy=remedy)


def measure_of(point: EntryPoint, known: dict[str, type[Measure[Any]]]) -> type[Measure[Any]]:
    """The class that an entry point names. InputError where it is no measure, or is taken."""
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, Measure)):
        raise InputError(f"{point.value} is no subclass of capgrade.measures.base.Measure")
    require_name(kind.name)
    if kind.name in known:
        raise InputError(f"there is a measure '{kind.name}' already", remedy="call it otherwise")
    return kind


def _all_measures() -> dict[str, type[Measure[Any]]]:
    kinds: dict[str, type[Measure[Any]]] = {}
    for name, value in _OURS.items():
        kind = measure_of(EntryPoint(name, value, MEASURES_OF_OTHERS), kinds)
        kinds[kind.name] = kind
    for point in entry_points(group=MEASURES_OF_OTHERS):
        try:
            kind = measure_of(point, kinds)
        except Exception as error:  # a broken package must not take the other measures away
            warn(f"measure '{point.name}' is left out: its package cannot be loaded ({error})")
        else:
            kinds[kind.name] = kind
    return kinds


MEASURES = _all_measures()


def packages_of(names: Iterable[str]) -> dict[str, str]:
    """By name, the versions of other packages that bring any of these measures."""
    modules = {MEASURES[name].__module__.partition(".")[0] for name in names if name in MEASURES}
    points = entry_points(group=MEASURES_OF_OTHERS)
    ours = (point for point in points if point.module.partition(".")[0] in modules)
    return dict(sorted(found for point in ours if (found := package_of(point))))
