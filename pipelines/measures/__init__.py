"""Relevance of every caption to every image's reference set: one measure a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.measures.base import Fitted, Measure
from pipelines.measures.cider import Cider, FittedCider
from pipelines.measures.imported import FittedImported, Imported
from pipelines.measures.meteor import FittedMeteor, Meteor
from pipelines.measures.rouge import FittedRougeL, RougeL
from pipelines.measures.sbert import FittedSbert, Sbert
from schemas.errors import InputError
from schemas.params import MeasuresParams

__all__ = ["FITTED", "MEASURES", "Fitted", "Measure", "choose"]

MEASURES: dict[str, Callable[[MeasuresParams], Measure]] = {
    "cider": lambda params: Cider(params.cider),
    "meteor": lambda params: Meteor(params.meteor),
    "rouge_l": lambda params: RougeL(params.rouge_l),
    "sbert": lambda params: Sbert(params.sbert),
}
FITTED = {kind.__name__: kind for kind in (FittedCider, FittedMeteor, FittedRougeL, FittedSbert, FittedImported)}


def choose(names: Sequence[str], params: MeasuresParams) -> dict[str, Measure]:
    """The named measures with their parameters: ours, and those that `params.imported` names.

    Raises InputError for an unknown or repeated name, listing the known ones.
    """
    known = dict(MEASURES)
    for name, path in params.imported.items():
        if name in MEASURES:
            raise InputError(f"imported measure '{name}' has the name of one of ours", remedy="call it otherwise")
        known[name] = lambda _, name=name, path=path: Imported(name, path)  # type: ignore[misc]
    for k, name in enumerate(names):
        if name not in known:
            raise InputError(f"unknown measure '{name}'", remedy=f"choose from: {', '.join(sorted(known))}")
        if name in names[:k]:
            raise InputError(f"measure '{name}' is named twice")
    return {name: known[name](params) for name in names}
