"""A run of a stage: what its result and its parts depend on, where it writes, and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol

from pydantic import BaseModel

from capgrade.schemas.files import write_manifest
from capgrade.schemas.natures import measure_names, of_parts, recorded
from capgrade.schemas.output import output_folder
from capgrade.schemas.stage import P, Stage


class Blocks(Protocol):
    """The block `measures` of params.yaml."""

    def used(
        self, names: Sequence[str], view: Callable[[BaseModel], dict[str, Any]] = recorded
    ) -> dict[str, Any]:
        """The parameters of the named measures, as `view` tells each block."""


@dataclass(frozen=True, kw_only=True)
class StageRun(Generic[P]):
    """What a run of a stage is made of, known when it has read its inputs."""

    stage: Stage[P]
    params: P
    # Digests of what was read, by name, and the split, as the manifest has them.
    inputs: Mapping[str, str]
    measures: Blocks | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)  # of the result, beside its parameters
    of_parts: Mapping[str, Any] = field(default_factory=dict)  # what parts alone depend on
    # By name, the versions of other packages whose measures these are.
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def made_with(self) -> dict[str, Any]:
        """The parameters, as a manifest has them."""
        return {self.stage.name: recorded(self.params), **self._measures(recorded), **self.rule}

    @property
    def made_of(self) -> dict[str, Any] | None:
        """All that parts depend on; None for a stage that keeps none."""
        if self.stage.format is None:
            return None
        return {
            "format": self.stage.format,
            **self.rule,
            self.stage.name: of_parts(self.params),
            **self._measures(of_parts),
            **self.of_parts,
            "inputs": dict(self.inputs),
            **self._packages,
        }

    @property
    def _packages(self) -> dict[str, Any]:
        return {"packages": dict(self.packages)} if self.packages else {}

    def _measures(self, view: Callable[[BaseModel], dict[str, Any]]) -> dict[str, Any]:
        if self.measures is None:
            return {}
        return {"measures": self.measures.used(measure_names(self.params), view)}

    def folder(self, out: Path, kind: str | None = None) -> AbstractContextManager[Path]:
        """The folder to write to, whose files take the place of `out` when the block ends with a
        manifest. `kind` is that of a folder which is not the whole result. InputError as
        `output_folder`."""
        return output_folder(out, kind or self.stage.name, self.made_of)

    def finish(
        self, folder: Path, rows: dict[str, int], kind: str | None = None, **facts: Any
    ) -> dict[str, Any]:
        """Write the manifest of files with so many rows, and return it; call it last."""
        return write_manifest(
            folder,
            kind or self.stage.name,
            params=self.made_with,
            inputs=dict(self.inputs),
            rows=rows,
            **self._packages,
            **facts,
        )
