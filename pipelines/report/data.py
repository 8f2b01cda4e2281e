"""The folder of a pipeline's outputs: what is there, and the command that makes what is not."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from capgrade.pipelines.measures.own_pairs import FILE as OWN_PAIRS
from capgrade.pipelines.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.report.own_above import OwnAndOther, own_and_other
from capgrade.pipelines.report.parts import Missing
from capgrade.schemas.captions import FILE, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_json, read_manifest
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.relevance import Relevance, read_relevance
from capgrade.trainer.fit import CONFIG, EPOCHS

CAPTIONS, RELEVANCE, SHARDS = "captions", "relevance", "shards"
AGREEMENT, JUDGED = "agreement.json", "judged.arrow"
REGIONS, RUNS, EMBEDDINGS, EVALUATION, ALIGNMENT = "regions", "runs", "embeddings", "evaluation", "alignment"


@dataclass(frozen=True)
class ReportData:
    """Outputs of the stages under the names that dvc.yaml gives them. What is not there is told by `has`; what is
    there and damaged raises InputError when it is read."""

    folder: Path

    def at(self, *names: str) -> Path:
        """A file or folder of the folder."""
        return self.folder.joinpath(*names)

    def has(self, *names: str) -> bool:
        """Whether a finished folder, or a file, is there."""
        path = self.at(*names)
        return (path / MANIFEST).is_file() if path.suffix == "" else path.is_file()

    def command(self, stage: str, options: str) -> str:
        """`capgrade STAGE`, with {name} in the options standing for the folders of this one."""
        return f"capgrade {stage} {options.replace('{', f'{self.folder}/').replace('}', '')}"

    @cached_property
    def captions_manifest(self) -> dict[str, Any]:
        """Of `captions`. InputError for a damaged one."""
        return read_manifest(self.at(CAPTIONS), "captions")

    @cached_property
    def relevance_manifest(self) -> dict[str, Any]:
        """Of `relevance`. InputError for a damaged one."""
        return read_manifest(self.at(RELEVANCE), "relevance")

    @cached_property
    def captions(self) -> Captions:
        """Those of the evaluated split: the one that has dense relevance, else the only one, else `test`."""
        splits = list(self.captions_manifest["splits"])
        split = splits[0] if len(splits) == 1 else "test" if "test" in splits else splits[-1]
        return read_captions(self.at(CAPTIONS), self.relevance_manifest["inputs"]["split"] if self.graded else split)

    @property
    def graded(self) -> bool:
        """Whether there is dense relevance."""
        return self.has(RELEVANCE)

    @cached_property
    def relevance(self) -> dict[str, Relevance]:
        """By measure. InputError when computed for other captions."""
        names = self.relevance_manifest["params"]["measures"]
        files = {name: read_relevance(self.at(RELEVANCE, f"{name}.arrow")) for name in names}
        for file in files.values():
            file.require(self.captions)
        return files

    @cached_property
    def own_pairs(self) -> dict[str, np.ndarray]:
        """Column -> float32 [n_captions] of own pairs, NaN where null; columns as `write_own_pairs` names them."""
        if OWN_PAIRS not in self.relevance_manifest["files"]:
            remedy = "run `capgrade relevance` again: own pairs were not kept then"
            raise InputError(f"no {OWN_PAIRS}", file=self.at(RELEVANCE), remedy=remedy)
        table = pq.read_table(self.at(RELEVANCE, OWN_PAIRS))
        return {name: table[name].to_numpy() for name in table.schema.names if name != "caption_id"}

    @cached_property
    def own_and_other(self) -> dict[str, OwnAndOther]:
        """What `relevance` says of own and of other pairs, by measure."""
        pairs, owner = self.own_pairs, self.captions.owner
        return {
            name: own_and_other(matrix, owner, pairs[name], pairs.get(name + LEFT_OUT))
            for name, matrix in self.relevance.items()
        }

    def of_these(self, folder: Path) -> bool:
        """Whether an output says that it was made from these captions: their table, or their folder's manifest. Where
        it names a split, that is the evaluated one."""
        path = next((folder / name for name in (CONFIG, MANIFEST) if (folder / name).is_file()), None)
        inputs = {} if path is None else read_json(path).get("inputs", {})
        these = (self.captions.digest, file_digest(self.at(CAPTIONS, MANIFEST)))
        return inputs.get("captions") in these and inputs.get("split", self.captions.split) == self.captions.split

    def _below(self, stage: str, file: str) -> dict[str, Path]:
        return {path.parent.name: path.parent for path in sorted(self.at(stage).glob(f"*/{file}"))}

    def folders(self, stage: str, file: str) -> dict[str, Path]:
        """The folders below a stage's that hold `file` and are of these captions, by name in order."""
        return {name: path for name, path in self._below(stage, file).items() if self.of_these(path)}

    def left_out(self, stage: str, file: str, done: str, command: str | None = None) -> list[Missing]:
        """What the page says of the folders that `folders` leaves out; nothing where there are none. `done` is what
        was done with them: evaluated."""
        names = [name for name, path in self._below(stage, file).items() if not self.of_these(path)]
        told = f"{', '.join(names)}: {done} on other captions or another split than this page's"
        return [Missing(told, command)] if names else []

    @cached_property
    def runs(self) -> list[str]:
        """Every run that was trained, embedded or evaluated, in one order for all charts."""
        named = ((RUNS, EPOCHS), (EVALUATION, "metrics.json"), (EMBEDDINGS, MANIFEST))
        return sorted({name for stage, file in named for name in self.folders(stage, file)})


def open_data(folder: Path) -> ReportData:
    """InputError without captions: there is nothing to report then."""
    if not (folder / CAPTIONS / FILE).is_file():
        remedy = "run `make repro`, or give --data the folder that holds captions/, relevance/ and the other outputs"
        raise InputError("no captions to report on", file=folder / CAPTIONS, remedy=remedy)
    return ReportData(folder)


def columns(path: Path) -> dict[str, np.ndarray]:
    """A CSV file of numbers: float64 [rows] by column. InputError when it is not one."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {name: np.array([float(row[name]) for row in rows]) for name in (rows[0] if rows else ())}
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"not a table of numbers ({error})", file=path, remedy="run its stage again") from None
