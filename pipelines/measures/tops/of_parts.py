"""What finds tops of a mixture has what finds those of its parts: its values are sums of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capgrade.pipelines.measures.mixture import FittedMixture

if TYPE_CHECKING:
    from capgrade.pipelines.measures.tops.find import Finder


@dataclass(frozen=True)
class OfParts:
    """A fitted mixture and, in the order of its parts, what finds tops of each."""

    fitted: FittedMixture
    finders: tuple[Finder, ...]
