"""SPICE by its own Java scorer, the one that pycocoevalcap carries (Anderson et al. 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from capgrade.measures.base import Measure
from capgrade.schemas.block import ParamsBlock, Positive, SelfReference
from capgrade.schemas.files import file_digest
from capgrade.schemas.natures import How, Scratch

if TYPE_CHECKING:
    from capgrade.measures.spice.fitted import FittedSpice
    from capgrade.schemas.captions import Captions


class SpiceParams(ParamsBlock):
    """SPICE by its Java scorer: its memory, where it keeps parsed references, and pairs per run."""

    memory: How[Annotated[str, Field(pattern=r"^[1-9]\d*[MG]$")]] = "8G"
    """of the Java heap"""
    cache: Scratch | None = None
    """a folder; None: references are parsed again in every run"""
    batch: How[Positive] = 20_000
    self_reference: SelfReference = "included"


class Spice(Measure[SpiceParams]):
    """SPICE, 0..1: F1 of the scene graph tuples of a caption and of all references of an image.

    Synonyms match. `spice-1.0.jar` of pycocoevalcap computes it on the captions' tokens, as its
    evaluation does.
    """

    name, parameters, modules = "spice", SpiceParams, ("pycocoevalcap",)
    at_once = False  # a Java process scores pairs one by one
    low, high = 0.0, 1.0

    def fit(self, captions: Captions) -> FittedSpice:
        """Check that the scorer can run.

        InputError when Java is missing or not of version 8 to 14, a jar is missing, or `left_out`
        leaves an image without references.
        """
        from capgrade.measures.spice.fitted import fit

        return fit(captions, self.params)

    def meaning(self) -> str:
        return "SPICE, 0..1: the caption's scene graph with one of all references together"

    def files(self) -> dict[str, str]:
        from capgrade.measures.spice.fitted import jars

        return {path.name: file_digest(path) for path in jars()}
