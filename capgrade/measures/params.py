"""The block `measures` of params.yaml, made of the blocks that measures declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, create_model

from capgrade.measures.base import NoParams, Shortlist
from capgrade.measures.catalogue import MEASURES
from capgrade.schemas.block import Finite, ParamsBlock
from capgrade.schemas.natures import Where, recorded

# Weighted sums of measures, known by name. docs/measures.md has where they come from.
MIXTURES = {
    "daa_average": {"tfidf_cosine": 1 / 3, "bleu": 1 / 3, "rouge_l": 1 / 3},
    "people": {"sbert": 0.53, "sbert_mean": 0.24, "scene_graph": 0.23},
    "people_shared": {"sbert_shared": 0.65, "sbert_shared_mean": 0.08, "scene_graph": 0.27},
}


class _Shared(ParamsBlock):
    """Parameters of every measure, shared by the stages that compute relevance."""

    imported: dict[str, Where] = {}
    """name -> values that someone else computed: a matrix, or a file of some pairs"""
    mixtures: dict[str, Annotated[dict[str, Finite], Field(min_length=1)]] = {}
    """name -> measure -> weight"""

    def of(self, name: str) -> ParamsBlock:
        """The parameters of one of MEASURES."""
        kind = MEASURES[name]
        block = getattr(self, kind.block or name, None)
        return (kind.parameters() if block is None else block).model_copy(update=kind.fixed)

    @property
    def all_mixtures(self) -> dict[str, dict[str, float]]:
        """Those given, and the named ones where none given has their name."""
        return {**MIXTURES, **self.mixtures}

    def used(
        self, names: Sequence[str], view: Callable[[BaseModel], dict[str, Any]] = recorded
    ) -> dict[str, Any]:
        """The parameters of the named measures, as `view` tells each block.

        An imported one is known by its file, a mixture by its weights and its parts' parameters.
        With a measure of a `Shortlist` stand those of the one that ranks.
        """
        used_params: dict[str, Any] = {}
        imported = view(self)["imported"]
        for name in names:
            if name in imported:
                used_params[name] = {"imported": imported[name]}
            elif weights := self.all_mixtures.get(name):
                used_params[name] = {"weights": weights, "measures": self.used(list(weights), view)}
            else:
                block = self.of(name)
                used_params[name] = view(block)
                if isinstance(block, Shortlist):
                    used_params[name]["measures"] = self.used([block.of], view)
        return used_params


# The measures that bring a block, by its name; their other forms have no blocks of their own.
OWNERS = {
    name: kind
    for name, kind in MEASURES.items()
    if kind.parameters is not NoParams and kind.block in (None, name)
}
if TYPE_CHECKING:

    class MeasuresParams(_Shared):
        """As `create_model` makes it below; installed packages decide which blocks it has."""

        def __getattr__(self, name: str) -> Any: ...

else:
    MeasuresParams = create_model(
        "MeasuresParams",
        __base__=_Shared,
        __module__=__name__,
        __doc__=_Shared.__doc__,
        **{name: (kind.parameters, kind.parameters()) for name, kind in OWNERS.items()},
    )
