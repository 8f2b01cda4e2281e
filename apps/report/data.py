"""The folder of a pipeline's outputs: reads what is there, and notes what is missing with the
command that makes it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from capgrade.apps.page.parts import Note
from capgrade.pipelines.stages.agree import AGREE, JUDGED
from capgrade.pipelines.stages.agree import AGREEMENT as FIGURES
from capgrade.schemas.arrow import metadata_of, numpy_type, read_arrow
from capgrade.schemas.captions import CAPTIONS_FILE, Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    RUN_FILE,
    UNFINISHED,
    file_digest,
    output_of,
    read_manifest,
)
from capgrade.schemas.judges import PEOPLE, read_agreement, truth_file
from capgrade.schemas.lines import read_json
from capgrade.schemas.own_pairs import FILE as OWN_PAIRS
from capgrade.schemas.own_pairs import read_own_pairs
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.relevance import Relevance, read_relevance
from capgrade.stages import STAGES
from capgrade.trainer.fit import CONFIG, EPOCHS
from capgrade.trainer.stages.align import ALIGN

CAPTIONS_KIND, RELEVANCE, SHARDS = "captions", "relevance", "shards"
AGREEMENT, JUDGED_PAIRS = f"{AGREE.name}/{FIGURES}", f"{AGREE.name}/{JUDGED}"
REGIONS, RUNS = "regions", "runs"
EMBEDDINGS, EVALUATION = "embeddings", "evaluation"
METRICS = "metrics.json"  # of an evaluation
# The measures that agree best with people, in the order in which `audit` prefers them.
NEAREST_TO_PEOPLE = ("people", "sbert")
# The commands that make outputs; {name} stands for a file or folder among the outputs.
_COMMANDS = {
    **{
        (stage.place or name).split("/")[0]: stage.typed("{{{}}}").replace("${item.run}", "RUN")
        for name, stage in STAGES.items()
    },
    AGREE.name: AGREE.typed("{{{}}}", "--judgements FILE"),
    ALIGN.name: ALIGN.typed("{{{}}}", "--preset RUN", "--images PICTURES"),
}


_BLOCK = 64  # rows of images that are compared at once


@dataclass(frozen=True)
class OwnAndOther:
    """How a measure values own and other captions. NaN where no value is known. A rival of a
    caption is another image that is as relevant to it as its own image, or more; the value of the
    own image is the one with the caption left out of the references, where there is such a one."""

    own: float  # median of own captions, as they are stored
    left_out: float  # the same, each caption left out of its image's references
    median: float  # of other captions
    percentile_99: float  # of other captions
    own_above_other: float  # mean share of other images less relevant than the own; ties half
    rivals: np.ndarray  # int64 [captions with a value]: rivals of each

    @property
    def share_with_rival(self) -> float:
        """The share of captions that have a rival."""
        return _reduce(np.mean, self.rivals > 0)

    @property
    def median_rivals(self) -> float:
        """The median number of rivals of the captions that have one."""
        return _reduce(np.median, self.rivals[self.rivals > 0])


def compare_own_and_other(
    relevance: Relevance, owner: np.ndarray, own: np.ndarray, left_out: np.ndarray | None
) -> OwnAndOther:
    """The figures of a dense file, images x captions. owner int [n_captions]; own and left_out
    float32 [n_captions]; left_out is NaN where an image has no other caption, and None for a
    measure without such values."""
    stored = numpy_type(relevance.schema.field("relevance").type.value_type)
    # Own values are rounded to the file's type, as those of other captions are.
    compared = (own if left_out is None else left_out).astype(stored).astype(np.float32)
    images = len(relevance.image_ids)
    others, end = images - 1, 0
    values = np.empty(others * len(owner), np.float32)
    lower, equal = np.zeros((2, len(owner)), np.int64)
    for start in range(0, images, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, images))
        block, other = relevance.rows(rows), owner != rows[:, None]
        lower += ((block < compared) & other).sum(axis=0)
        equal += ((block == compared) & other).sum(axis=0)
        values[end : (end := end + other.sum())] = block[other]
    known = np.isfinite(compared) & (others > 0)
    above = ((lower + equal / 2) / max(others, 1))[known]
    rivals = (others - lower)[known]
    known_left_out = np.array([]) if left_out is None else left_out[np.isfinite(left_out)]
    median = high = math.nan
    if others:
        median, high = np.quantile(values, (0.5, 0.99), overwrite_input=True).tolist()
    return OwnAndOther(
        _reduce(np.median, own),
        _reduce(np.median, known_left_out),
        median,
        high,
        _reduce(np.mean, above),
        rivals,
    )


def _reduce(figure: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float:
    """NaN of no values."""
    return float(figure(values)) if len(values) else math.nan


@dataclass(frozen=True)
class ReportData:
    """Outputs of the stages under the names that dvc.yaml gives them, read when they are asked for.
    An output that is not there is added to `missing`; one that is damaged raises InputError. Raises
    InputError without captions."""

    folder: Path
    missing: dict[str, Note] = field(default_factory=dict)  # text -> note on the page

    def __post_init__(self) -> None:
        if not self.path(CAPTIONS_KIND, CAPTIONS_FILE).is_file():
            remedy = (
                "give --data a folder that holds captions/, relevance/ and the other outputs, or"
                " run `make repro`"
            )
            raise InputError(
                "no captions to report on", file=self.path(CAPTIONS_KIND), remedy=remedy
            )

    def path(self, *names: str) -> Path:
        """The path of an output, or of a file in one."""
        return self.folder.joinpath(*names)

    def has(self, *names: str, what: str = "") -> bool:
        """Whether a finished folder, or a file, is there. If not, `what` it holds is missing on the
        page; nothing is noted where `what` is empty."""
        path = self.path(*names)
        exists = (path / MANIFEST).is_file() if path.suffix == "" else path.is_file()
        if what and not exists:
            self.add_missing(what, names[0].partition("/")[0])
        return exists

    def note(self, text: str, command: str) -> Note:
        """A note with a command line: a key of _COMMANDS, or a line written as those are."""
        line = _COMMANDS.get(command, command).replace("{", f"{self.folder}/").replace("}", "")
        return Note(text, f"capgrade {line}")

    def add_missing(self, what: str, command: str | None = None) -> None:
        """List `what` as missing, with the command that makes it, as `note` takes it."""
        self.missing[what] = Note(what) if command is None else self.note(what, command)

    @cached_property
    def captions_manifest(self) -> dict[str, Any]:
        """The manifest of `captions`. InputError for a damaged one."""
        return read_manifest(self.path(CAPTIONS_KIND), "captions")

    @cached_property
    def relevance_manifest(self) -> dict[str, Any]:
        """The manifest of `relevance`. InputError for a damaged one."""
        return read_manifest(self.path(RELEVANCE), "relevance")

    @cached_property
    def captions(self) -> Captions:
        """The evaluated split's: the one that has dense relevance, else the only one, else `test`,
        else the last."""
        splits = list(self.captions_manifest["splits"])
        split = splits[0] if len(splits) == 1 else "test" if "test" in splits else splits[-1]
        graded = self.has(RELEVANCE)
        return read_captions(
            self.path(CAPTIONS_KIND),
            self.relevance_manifest["inputs"]["split"] if graded else split,
        )

    @cached_property
    def agreement(self) -> dict[str, Any] | None:
        """What `agree` found, where it is there. InputError for a file of something else."""
        what = "the agreement of the measures with judgements"
        figures = read_agreement(self.path(AGREEMENT)) if self.has(AGREEMENT, what=what) else None
        if figures is None:
            self.add_missing(what, AGREE.name)
        return figures

    @cached_property
    def relevance(self) -> dict[str, Relevance]:
        """By measure. InputError when computed for other captions."""
        names = self.relevance_manifest["params"]["measures"]
        files = {name: read_relevance(self.path(RELEVANCE, f"{name}.arrow")) for name in names}
        for file in files.values():
            file.require(self.captions)
        return files

    @property
    def measure(self) -> str:
        """The measure of the page's findings and examples."""
        names = list(self.relevance_manifest["params"]["measures"])
        return next((name for name in NEAREST_TO_PEOPLE if name in names), names[-1])

    @cached_property
    def own_pairs(self) -> dict[str, np.ndarray]:
        """Column -> float32 [n_captions] of own pairs, NaN where null; columns as `write_own_pairs`
        names them."""
        if OWN_PAIRS not in self.relevance_manifest["files"]:
            remedy = "run `capgrade relevance` again: own pairs were not kept then"
            raise InputError(f"no {OWN_PAIRS}", file=self.path(RELEVANCE), remedy=remedy)
        return read_own_pairs(self.path(RELEVANCE))

    @cached_property
    def own_and_other(self) -> dict[str, OwnAndOther]:
        """measure -> how it values own and other captions."""
        pairs, owner = self.own_pairs, self.captions.owner
        return {
            name: compare_own_and_other(matrix, owner, pairs[name], pairs.get(name + LEFT_OUT))
            for name, matrix in self.relevance.items()
        }

    @cached_property
    def truth(self) -> OwnAndOther | None:
        """How the truth of generated scenes values own and other captions; None of other data."""
        path = truth_file(self.path(CAPTIONS_KIND), self.captions.split)
        if path is None:
            return None
        matrix, owner = read_relevance(path), self.captions.owner
        matrix.require(self.captions)
        own = np.concatenate(
            [
                matrix.rows(np.array([image]))[0, self.captions.rows_of(image)]
                for image in range(self.captions.n_images)
            ]
        )
        order = np.argsort(self.captions.refs, kind="stable")
        return compare_own_and_other(matrix, owner, own[order], None)

    @cached_property
    def judged_rivals(self) -> np.ndarray | None:
        """Of each caption that people judged with its own image and with another one, whether a
        judged other image has at least the own image's score: bool. None without such judgements of
        these captions."""
        of_people = self.agreement is not None and self.agreement["judgements"]["by"] == PEOPLE
        if not of_people or not self.has(JUDGED_PAIRS):
            return None
        table = read_arrow(self.path(JUDGED_PAIRS))
        if metadata_of(table.schema)["captions"] != self.captions.digest:
            return None
        own = table["original"].to_numpy()
        caption, score = table["caption"].to_numpy(), table["score"].to_numpy()
        scores = np.full((2, self.captions.n_captions), -np.inf)
        for row, rows in zip(scores, (own, ~own), strict=True):
            np.maximum.at(row, caption[rows], score[rows])
        both = np.isfinite(scores).all(axis=0)
        return np.asarray(scores[1, both] >= scores[0, both])

    def is_of_these_captions(self, folder: Path) -> bool:
        """Whether an output was made from these captions: whether it has the digest of their table
        or of their folder's manifest, and no other split than the evaluated one."""
        path = next(
            (folder / name for name in (CONFIG, MANIFEST) if (folder / name).is_file()), None
        )
        inputs = {} if path is None else read_json(path).get("inputs", {})
        digests = (self.captions.digest, file_digest(self.path(CAPTIONS_KIND, MANIFEST)))
        return (
            inputs.get("captions") in digests
            and inputs.get("split", self.captions.split) == self.captions.split
        )

    def find_folders(self, stage: str, file: str, what: str = "") -> dict[str, Path]:
        """name -> folder below a stage's that holds `file` and is of these captions, sorted by
        name. Folders of other captions are listed as missing; where none is left, `what` they hold
        is. A run counts while it trains."""
        stage_folder = self.path(stage)
        by_name = {path.parent.name: path.parent for path in sorted(stage_folder.glob(f"*/{file}"))}
        training = stage_folder.glob(f"*{UNFINISHED}/*/{file}") if stage == RUNS else ()
        for path in sorted(training, key=lambda path: path.stat().st_mtime):
            if (path.parent / RUN_FILE).is_file():  # it has not ended
                by_name[output_of(path.parent).name] = path.parent
        matching = {name: path for name, path in by_name.items() if self.is_of_these_captions(path)}
        others = [name for name in by_name if name not in matching]
        if others:
            what = (
                f"{', '.join(others)} in {stage}: made with other captions or another split than"
                " this page's"
            )
        if others or (what and not matching):
            self.add_missing(what, stage)
        return matching

    @cached_property
    def runs(self) -> list[str]:
        """Every run that was trained, embedded or evaluated, in one order for all charts."""
        files = ((RUNS, EPOCHS), (EVALUATION, METRICS), (EMBEDDINGS, MANIFEST))
        return sorted({name for stage, file in files for name in self.find_folders(stage, file)})


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """A CSV file of numbers: float64 [rows] by column. InputError when it is not one."""
    try:
        table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(null_values=["nan"]))
        return {name: table[name].cast(pa.float64()).to_numpy() for name in table.column_names}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"not a table of numbers ({error})", file=path, remedy="run its stage again"
        ) from None
