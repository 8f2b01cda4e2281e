"""What a command needs of the extras: all that is missing in one line, before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from capgrade.schemas.extras import require

if TYPE_CHECKING:
    from capgrade.schemas.params import MeasuresParams

ENCODER = "sentence_transformers"


def require_all(*modules: str, measures: Iterable[str] = (), params: MeasuresParams | None = None) -> None:
    """MissingExtraError that names those of the modules that are not installed, and the encoder where one of the
    measures, or a part of one, reads it. A mixture has its parts in `params`."""
    from capgrade.schemas.params import FORMS_OF_SBERT, MIXTURES

    mixtures = MIXTURES if params is None else params.all_mixtures
    parts = {part for name in measures for part in mixtures.get(name, (name,))}
    require(*modules, *([ENCODER] if parts & {"sbert", *FORMS_OF_SBERT} else []))


def parts_of(used: Mapping[str, Any]) -> set[str]:
    """The measures in a folder's manifest, and of a mixture its parts."""
    return {part for name, params in used.items() for part in params.get("measures", (name,))}
