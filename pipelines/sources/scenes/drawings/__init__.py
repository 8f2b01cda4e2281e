"""The drawing of each kind: `draw(pen, colour)` fills the unit square of the pen."""

from __future__ import annotations

from collections.abc import Callable

from capgrade.pipelines.sources.scenes.drawings import animals, indoors, outdoors, people, vehicles
from capgrade.pipelines.sources.scenes.drawings.pen import Pen, Rgb
from capgrade.pipelines.sources.scenes.kinds import KINDS

Drawing = Callable[[Pen, Rgb], None]
_MODULES = (animals, people, vehicles, indoors, outdoors)


def _drawing(kind: str) -> Drawing:
    name = kind.replace(" ", "_")
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


DRAWINGS: dict[str, Drawing] = {kind: _drawing(kind) for kind in KINDS}
