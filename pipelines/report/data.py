"""The folder of a pipeline's outputs: what is there, and the command that makes what is not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from capgrade.pipelines.page.parts import Note
from capgrade.schemas.captions import CAPTIONS_FILE, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, UNFINISHED, numpy_type, read_manifest, unfinished_work
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.judges import read_agreement
from capgrade.schemas.lines import read_json
from capgrade.schemas.own_pairs import FILE as OWN_PAIRS
from capgrade.schemas.own_pairs import LEFT_OUT, read_own_pairs
from capgrade.schemas.relevance import Relevance, read_relevance
from capgrade.trainer.fit import CONFIG, EPOCHS

CAPTIONS_KIND, RELEVANCE, SHARDS = "captions", "relevance", "shards"
AGREEMENT, JUDGED_PAIRS = "agreement.json", "judged.arrow"
REGIONS, RUNS, EMBEDDINGS, EVALUATION, ALIGNMENT = (
    "regions",
    "runs",
    "embeddings",
    "evaluation",
    "alignment",
)
METRICS = "metrics.json"  # of an evaluation
# the measures that agree best with people, as `audit` prefers them
NEAREST_TO_PEOPLE = (
    "people",
    "sbert",
)
_COMMANDS = {  # of what a page may lack; {name} is a folder of the outputs'
    RELEVANCE: "relevance --captions {captions} --out {relevance}",
    SHARDS: "shards --captions {captions} --out {shards}",
    AGREEMENT: (
        "agree --captions {captions} --judgements FILE --out {agreement.json} --pairs"
        " {judged.arrow}"
    ),
    RUNS: "train --preset bcls --captions {captions} --regions {regions} --out {runs/bcls}",
    EMBEDDINGS: (
        "evaluate --run {runs/RUN} --captions {captions} --regions {regions} --index"
        " {embeddings/RUN}"
    ),
    EVALUATION: (
        "evaluate --captions {captions} --similarity FILE --relevance {relevance} --out"
        " {evaluation/RUN}"
    ),
    ALIGNMENT: (
        "search --run {runs/teran} --captions {captions} --regions {regions} --images {captions} "
        "--words {alignment}"
    ),
}


_BLOCK = 64  # images compared together


@dataclass(frozen=True)
class OwnAndOther:
    """Medians of own captions (as they are stored; with the caption left out of the references), of
    others the median and 99th percentile; NaN where no value is known. Then of each caption, own
    left out where there is such a value: `above`, the mean share of other images that are less
    relevant to it than its own image (ties half), and `rivals`, int64 [captions with a value], how
    many other images are as relevant as its own or more."""

    own: float
    left_out: float
    median: float
    percentile_99: float
    above: float
    rivals: np.ndarray

    @property
    def equalled(self) -> float:
        """The share of captions with a rival."""
        return _of(np.mean, self.rivals > 0)

    @property
    def images(self) -> float:
        """The median number of rivals of the captions that have one."""
        return _of(np.median, self.rivals[self.rivals > 0])


def own_and_other(
    relevance: Relevance, owner: np.ndarray, own: np.ndarray, left_out: np.ndarray | None
) -> OwnAndOther:
    """Of a dense file, images x captions; owner int [n_captions], own and left_out float32
    [n_captions], the latter NaN where an image has no other caption, and None for a measure that
    has no such values."""
    stored = numpy_type(relevance.schema.field("relevance").type.value_type)
    # rounded as others are
    compared = (own if left_out is None else left_out).astype(stored).astype(np.float32)
    images = len(relevance.image_ids)
    others, end = images - 1, 0
    values, (lower, equal) = (
        np.empty(others * len(owner), np.float32),
        np.zeros((2, len(owner)), np.int64),
    )
    for at in range(0, images, _BLOCK):
        rows = np.arange(at, min(at + _BLOCK, images))
        block, other = relevance.rows(rows), owner != rows[:, None]
        lower += ((block < compared) & other).sum(axis=0)
        equal += ((block == compared) & other).sum(axis=0)
        values[end : (end := end + other.sum())] = block[other]
    known = np.isfinite(compared) & (others > 0)
    above, rivals = ((lower + equal / 2) / max(others, 1))[known], (others - lower)[known]
    alone = np.array([]) if left_out is None else left_out[np.isfinite(left_out)]
    median, high = (
        np.quantile(values, (0.5, 0.99), overwrite_input=True).tolist()
        if others
        else (math.nan,) * 2
    )
    return OwnAndOther(
        _of(np.median, own), _of(np.median, alone), median, high, _of(np.mean, above), rivals
    )


def _of(figure: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float:
    return float(figure(values)) if len(values) else math.nan


@dataclass(frozen=True)
class ReportData:
    """Outputs of the stages under the names that dvc.yaml gives them. Of what is not there
    `lacking` is filled by whoever looks for it; what is there and damaged raises InputError when it
    is read. InputError without captions."""

    folder: Path
    lacking: dict[str, Note] = field(default_factory=dict)  # by its text, what the page cannot show

    def __post_init__(self) -> None:
        if not self.at(CAPTIONS_KIND, CAPTIONS_FILE).is_file():
            remedy = (
                "give --data a folder that holds captions/, relevance/ and the other outputs, or"
                " run `make repro`"
            )
            raise InputError("no captions to report on", file=self.at(CAPTIONS_KIND), remedy=remedy)

    def at(self, *names: str) -> Path:
        """A file or folder of the folder."""
        return self.folder.joinpath(*names)

    def has(self, *names: str, what: str = "") -> bool:
        """Whether a finished folder, or a file, is there; if not, the page lacks `what` it has."""
        path = self.at(*names)
        there = (path / MANIFEST).is_file() if path.suffix == "" else path.is_file()
        if what and not there:
            self.lacks(what, names[0])
        return there

    def note(self, text: str, command: str) -> Note:
        """With a command line, one of COMMANDS or like those."""
        line = _COMMANDS.get(command, command).replace("{", f"{self.folder}/").replace("}", "")
        return Note(text, f"capgrade {line}")

    def lacks(self, what: str, command: str | None = None) -> None:
        """The page cannot show this, which a command may change, given as `note` has it."""
        self.lacking[what] = Note(what) if command is None else self.note(what, command)

    @cached_property
    def captions_manifest(self) -> dict[str, Any]:
        """Of `captions`. InputError for a damaged one."""
        return read_manifest(self.at(CAPTIONS_KIND), "captions")

    @cached_property
    def relevance_manifest(self) -> dict[str, Any]:
        """Of `relevance`. InputError for a damaged one."""
        return read_manifest(self.at(RELEVANCE), "relevance")

    @cached_property
    def captions(self) -> Captions:
        """Those of the evaluated split: the one that has dense relevance, else the only one, else
        `test`."""
        splits = list(self.captions_manifest["splits"])
        split = splits[0] if len(splits) == 1 else "test" if "test" in splits else splits[-1]
        graded = self.has(RELEVANCE)
        return read_captions(
            self.at(CAPTIONS_KIND), self.relevance_manifest["inputs"]["split"] if graded else split
        )

    @cached_property
    def agreement(self) -> dict[str, Any] | None:
        """What `agree` found, where it is there. InputError for a file of something else."""
        what = "the agreement of the measures with judgements"
        figures = read_agreement(self.at(AGREEMENT)) if self.has(AGREEMENT, what=what) else None
        if figures is None:
            self.lacks(what, AGREEMENT)
        return figures

    @cached_property
    def relevance(self) -> dict[str, Relevance]:
        """By measure. InputError when computed for other captions."""
        names = self.relevance_manifest["params"]["measures"]
        files = {name: read_relevance(self.at(RELEVANCE, f"{name}.arrow")) for name in names}
        for file in files.values():
            file.require(self.captions)
        return files

    @property
    def measure(self) -> str:
        """The one that findings and examples are told by."""
        names = list(self.relevance_manifest["params"]["measures"])
        return next((name for name in NEAREST_TO_PEOPLE if name in names), names[-1])

    @cached_property
    def own_pairs(self) -> dict[str, np.ndarray]:
        """Column -> float32 [n_captions] of own pairs, NaN where null; columns as `write_own_pairs`
        names them."""
        if OWN_PAIRS not in self.relevance_manifest["files"]:
            remedy = "run `capgrade relevance` again: own pairs were not kept then"
            raise InputError(f"no {OWN_PAIRS}", file=self.at(RELEVANCE), remedy=remedy)
        return read_own_pairs(self.at(RELEVANCE))

    @cached_property
    def own_and_other(self) -> dict[str, OwnAndOther]:
        """What `relevance` says of own and of other captions, by measure."""
        pairs, owner = self.own_pairs, self.captions.owner
        return {
            name: own_and_other(matrix, owner, pairs[name], pairs.get(name + LEFT_OUT))
            for name, matrix in self.relevance.items()
        }

    def of_these(self, folder: Path) -> bool:
        """Whether an output says that it was made from these captions: their table, or their
        folder's manifest. Where it names a split, that is the evaluated one."""
        path = next(
            (folder / name for name in (CONFIG, MANIFEST) if (folder / name).is_file()), None
        )
        inputs = {} if path is None else read_json(path).get("inputs", {})
        these = (self.captions.digest, file_digest(self.at(CAPTIONS_KIND, MANIFEST)))
        return (
            inputs.get("captions") in these
            and inputs.get("split", self.captions.split) == self.captions.split
        )

    def folders(self, stage: str, file: str, what: str = "") -> dict[str, Path]:
        """The folders below a stage's that hold `file` and are of these captions, by name in order.
        The page lacks those that are of others, or `what` it has where there are none. A run counts
        while it trains."""
        at = self.at(stage)
        found = sorted(path.parent for path in at.glob(f"*/{file}"))
        training = [path for path in found if stage == RUNS and path.name.endswith(UNFINISHED)]
        found = [path for path in found if not unfinished_work(path)] + training
        below = {path.name.removesuffix(UNFINISHED): path for path in found}
        these = {name: path for name, path in below.items() if self.of_these(path)}
        others = [name for name in below if name not in these]
        if others:
            what = (
                f"{', '.join(others)} in {stage}: made with other captions or another split than"
                " this page's"
            )
        if others or (what and not these):
            self.lacks(what, stage)
        return these

    @cached_property
    def runs(self) -> list[str]:
        """Every run that was trained, embedded or evaluated, in one order for all charts."""
        files = ((RUNS, EPOCHS), (EVALUATION, METRICS), (EMBEDDINGS, MANIFEST))
        return sorted({name for stage, file in files for name in self.folders(stage, file)})


def columns(path: Path) -> dict[str, np.ndarray]:
    """A CSV file of numbers: float64 [rows] by column. InputError when it is not one."""
    try:
        table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(null_values=["nan"]))
        return {name: table[name].cast(pa.float64()).to_numpy() for name in table.column_names}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"not a table of numbers ({error})", file=path, remedy="run its stage again"
        ) from None
