"""A DVC project over one dataset: params.yaml, dvc.yaml, .gitignore and README.md in a folder.

Captions are read and pictures are looked for before anything is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from shutil import which
from typing import Any

import yaml

from capgrade.measures.sbert import SbertParams
from capgrade.params import Params
from capgrade.pictures.listing import (
    ImageColumns,
    list_pictures,
    match_pictures,
)
from capgrade.pipelines.features.convert import images_of
from capgrade.pipelines.features.rows import GoodImages
from capgrade.pipelines.project.dataset import Dataset
from capgrade.pipelines.project.pipeline import outputs, pipeline_text
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.block import ParamsBlock, validated
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.files import UNFINISHED, write_text
from capgrade.schemas.image_matching import match_images
from capgrade.schemas.natures import (
    Manner,
    Nature,
    OfSplit,
    Place,
    changed,
    each,
    is_path,
    leaves_of,
    mark_of,
)
from capgrade.schemas.params import override, put, read_yaml, with_preset
from capgrade.stages import STAGES
from capgrade.text.language import NO_ENGLISH, count_without_english
from capgrade.trainer.stages.train import TrainParams

SCENES_PARAMS = Path(__file__).with_name("scenes.yaml")
PARAMS, _PIPELINE, IGNORED = "params.yaml", "dvc.yaml", ("/data/", "/dvc_plots/")
# The usual names of splits by their use: the first that a dataset has is taken.
_SPLIT_NAMES = {
    "train": ("train", "train2014", "train2017"),
    "validation": ("val", "dev", "validation", "valid"),
    "test": ("test", "val2014", "val2017"),
}
_DIVIDED = {"val": 0.1, "test": 0.1}  # shares of the images, where a source has no splits
_MEASURES = ("cider", "rouge_l", "sbert")
_FIRST = 20  # how many images of a feature file are checked: to read all may take an hour
_TITLES = {
    "measures": "how each is computed, where not by default",
    **{name: stage.summary for name, stage in STAGES.items()},
    "runs": "presets to train and compare: capgrade's own, or those below",
    "presets": "more presets, upon capgrade's (`base`)",
    "agree": "people's judgements to compare measures with, or null",
    "align": "the run of a TERAN whose words are drawn, or null",
}


SCENES_DATASET = Dataset({"source": "scenes"}, images="data/captions")


def with_sets(dataset: Dataset, sets: Sequence[str]) -> Dataset:
    """The dataset as `--set` changes it, its places as absolute paths. InputError for what is no
    KEY=VALUE."""
    regions = {"images": dataset.images, **(dataset.features or {})}
    tree = _put_sets(_from_here({"captions": dataset.captions, "regions": regions}), sets)
    regions = tree["regions"]
    columns = ImageColumns(
        regions.get("image_column"), regions.get("image_id"), "--set regions.image_column"
    )
    return replace(
        dataset,
        captions=tree["captions"],
        images=regions["images"],
        features=_of_features(regions),
        columns=columns,
    )


def _of_features(regions: Mapping[str, Any]) -> dict[str, Any] | None:
    """The block `regions` of a dataset whose features others made."""
    if not regions.get("features"):
        return None
    return {key: value for key, value in regions.items() if key != "images"}


def _put_sets(tree: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """A tree changed by `sets`, whose places become absolute paths."""
    given: dict[str, Any] = {}
    for text in sets:
        override(given, text)
    given = _from_here(given)
    for text in sets:
        key, value = text.partition("=")[0], given
        for name in key.split("."):
            value = value[name]
        put(tree, key, value)
    return tree


def _from_here(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of parameters with absolute paths, where the current folder is what they are relative
    to; but what the pipeline itself makes in the project stays as it is."""

    def absolute(key: str, nature: Nature | None, value: Any) -> Any:
        if isinstance(nature, Place) or (isinstance(nature, Manner) and nature.path):
            place = nature if isinstance(nature, Place) else Place()
            return each(value, lambda one: _absolute(place, one))
        return value

    return changed(Params, tree, absolute)


def _absolute(place: Place, value: str) -> str:
    path = Path(value).expanduser()
    is_made = path.parts[:1] == ("data",) and path.parts[1:2] and path.parts[1] in outputs()
    if not is_path(place, value) or (is_made and not path.exists()):
        return value
    return os.path.normpath(Path.cwd() / path)


def in_project(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A tree with paths as a project's params.yaml has them: relative to it where they lie in the
    project or beside it, absolute elsewhere."""
    project = folder.resolve()
    root = project.parent if project.parent != project.parent.parent else project

    def relative(value: str) -> str:
        path = Path(value)
        if not path.is_absolute():
            return value
        for one in (path, path.parent.resolve() / path.name):
            if one.is_relative_to(root):
                return os.path.relpath(one, project)
        return value

    def written(key: str, nature: Nature | None, value: Any) -> Any:
        is_place = isinstance(nature, Place) or (isinstance(nature, Manner) and nature.path)
        return each(value, relative) if is_place else value

    return changed(Params, tree, written)


@dataclass(frozen=True)
class DatasetSummary:
    """The images and captions of a dataset, and how many of its images have a picture."""

    splits: dict[str, int]  # split -> images
    captions: int
    files: Mapping[str, str | None]  # image id -> the file that its source names
    split_captions: Mapping[str, int] = field(default_factory=dict)  # split -> captions
    not_english: int = 0  # captions without a word that tells English, if they are most
    with_picture: int = 0  # images with a picture
    looked_for: int = 0  # images for which a picture was looked for
    notes: list[str] = field(default_factory=list)  # lines about images without a picture

    def line(self) -> str:
        """Captions an image, splits, and pictures."""
        images = sum(self.splits.values())
        each = f"{self.captions / images:.3g}"
        splits = " / ".join(f"{name} {count:,}" for name, count in self.splits.items())
        if len(self.splits) == 1:
            splits = f"{images:,} images in one split, {next(iter(self.splits))}"
        else:
            splits = f"splits {splits}"
        text = f"{each} caption{'' if each == '1' else 's'} an image, {splits}"
        if not self.looked_for:
            return text
        return f"{text}, {self.with_picture:,} of {self.looked_for:,} pictures found"


def inspect_dataset(dataset: Dataset) -> DatasetSummary:
    """Read the captions, and look for a picture or features of each image. InputError for captions
    that cannot be read, and where no image has a picture or features."""
    params = validated(CaptionsParams, dataset.captions)
    if params.source == "scenes":
        scenes = params.scenes
        splits = {"train": scenes.train, "val": scenes.val, "test": scenes.test}
        return DatasetSummary(splits, scenes.captions_per_image * sum(splits.values()), {})
    captions = read_source(params)
    split_of = {caption.image_id: caption.split for caption in captions}
    if not captions:
        remedy = "check the source and its input"
        raise InputError("no captions", file=params.inputs[0], remedy=remedy)
    files = {caption.image_id: caption.image_file for caption in captions}
    not_english = count_without_english(caption.text for caption in captions)
    summary = DatasetSummary(
        dict(Counter(split_of.values())),
        len(captions),
        files,
        Counter(caption.split for caption in captions),
        not_english=not_english if not_english > len(captions) / 2 else 0,
    )
    if dataset.images:
        return _match_pictures(summary, dataset.images, dataset.columns)
    return _match_features(summary, dataset.features) if dataset.features else summary


def _match_pictures(summary: DatasetSummary, images: str, columns: ImageColumns) -> DatasetSummary:
    pictures = list_pictures(images, columns)
    matches = match_pictures(summary.files, pictures, images)
    if not matches.numbers:
        first = next(iter(summary.files))
        problem = (
            f"{len(pictures):,} pictures, of none of the {len(summary.files):,} images; the first"
            f" is '{first}'"
        )
        remedy = (
            "name files after the image ids or the captions' files, or give a list of"
            " image_id<TAB>path"
        )
        raise InputError(problem, file=images, remedy=remedy)
    notes = [*matches.lines(), *pictures.lines()]
    with_picture, looked_for = len(matches.numbers), len(summary.files)
    return replace(summary, with_picture=with_picture, looked_for=looked_for, notes=notes)


def _match_features(summary: DatasetSummary, features: Mapping[str, Any]) -> DatasetSummary:
    params = validated(RegionsParams, dict(features))
    entries = images_of(params)
    ids = [entry.image_id for entry in islice(entries, _FIRST)]
    matches = match_images(summary.files, ids)
    if not matches.numbers:
        shown = ", ".join(f"'{image_id}'" for image_id in ids[:3])
        problem = f"features of {shown}, which are none of the captions' images"
        problem += f"; their first is '{next(iter(summary.files))}'"
        remedy = "give the features of these captions' images"
        raise InputError(problem, file=params.features[0], remedy=remedy)
    # One image is read here, so that a damaged file stops `write_project` and not a later stage.
    next(GoodImages("skip").read(images_of(params)))
    note = f"of the first {len(ids)} images with features, {len(matches.numbers)} have captions"
    return replace(summary, notes=[note])


def _choose_splits(summary: DatasetSummary, sets: Sequence[str]) -> dict[str, str | None]:
    """The splits to train, validate and test on: as `sets` name them, else by their usual names.
    InputError where there is none to train or test on."""
    values = {key: value for key, _, value in (text.partition("=") for text in sets)}
    names = {
        use: next((name for name in usual if name in summary.splits), None)
        for use, usual in _SPLIT_NAMES.items()
    }
    asked = {
        "train": values.get("train.split"),
        "test": values.get("evaluate.split", values.get("relevance.split")),
    }
    names |= {use: split for use, split in asked.items() if split is not None}
    if names["train"] is None or (names["test"] or names["validation"]) is None:
        problem = (
            f"splits {', '.join(summary.splits)}: which are to learn from and to evaluate on is not"
            " known"
        )
        raise InputError(problem, remedy="say it: --set train.split=NAME --set evaluate.split=NAME")
    if names["test"] is None:
        # The only other split serves as the test, and no epoch is chosen by it.
        names["test"], names["validation"] = names["validation"], None
    # Papers train on Karpathy's split `restval` too.
    if "restval" in summary.splits and asked["train"] is None:
        names["train"] = f"{names['train']}+restval"
    return names


def params_of_dataset(
    dataset: Dataset,
    summary: DatasetSummary,
    name: str,
    presets: Sequence[str],
    license: str | None,
    language: str | None,
    sets: Sequence[str],
) -> dict[str, Any]:
    """The tree of params.yaml, changed by `sets`. InputError for values that a stage refuses, and
    for splits and presets that are not there."""
    if summary.not_english and not language:
        counts = f"{summary.not_english:,} of {summary.captions:,} captions"
        problem = f"{counts} have {NO_ENGLISH}"
        raise InputError(problem, remedy="say what they are in: --language en, or de")
    if presets and any(text.partition("=")[0] == "runs" for text in sets):
        raise InputError("--preset and --set runs name two lists", remedy="give one of them")
    told = {"license": license, "language": language}
    told = {key: value for key, value in told.items() if value is not None}
    if dataset.captions["source"] == "scenes":
        tree = read_yaml(SCENES_PARAMS)
        tree["publish"] |= told
        tree["runs"] = list(presets) or tree["runs"]
        return _checked(_put_sets(tree, sets), summary.splits)
    captions, shards, template = dict(dataset.captions), ShardsParams(), dataset.params
    given = {text.partition("=")[0] for text in sets}
    judgements = dataset.judgements
    # What a template says of its detector goes with no other one.
    is_detected = dataset.images is None or "regions.detector" in given
    splits = list(summary.splits)
    if len(splits) == 1 and not captions.get("split"):
        captions["divide"] = _DIVIDED
        splits = ["train", *_DIVIDED]
    tree = {
        "captions": captions,
        "regions": {
            "images": dataset.images,
            **(dataset.features or {}),
            **({} if is_detected else template.get("regions", {})),
        },
        "measures": {
            "sbert": {"model": SbertParams().model, "references": SbertParams().references}
        },
        "relevance": {"measures": list(_MEASURES)},
        "shards": {"measures": list(_MEASURES), "top": shards.top, "uniform": shards.uniform},
        "train": {},
        "runs": list(presets) or template.get("runs", ["triplet"]),
        "presets": template.get("presets", {}),
        "evaluate": {
            **({"instances": dataset.instances} if dataset.instances else {}),
            **({"judgements": list(judgements)} if judgements else {}),
        },
        "agree": {"judgements": judgements[0] if judgements else None},
        "align": {"preset": None},
        "publish": {"name": name, "license": "unknown", **told},
    }
    for key, _, value in (text.partition("=") for text in sets):
        if key in _split_keys(Params) and value != "null":  # others follow from it
            _require_split(key, value, splits)
    names = _choose_splits(replace(summary, splits=dict.fromkeys(splits, 0)), sets)
    tree["relevance"]["split"] = tree["evaluate"]["split"] = names["test"]
    tree["shards"]["split"] = tree["train"]["split"] = names["train"]
    tree["train"]["validation"] = names["validation"]
    tree = _put_sets(tree, sets)
    blocks = {key.partition(".")[0] for key in given}
    if dataset.images and "align" not in blocks and isinstance(tree["runs"], list):
        teran = (run for run in tree["runs"] if str(run).startswith("teran"))
        tree["align"]["preset"] = next(teran, None)
    return _checked(tree, splits)


def _checked(tree: dict[str, Any], splits: Iterable[str]) -> dict[str, Any]:
    """The tree. InputError for values that a stage refuses, for splits that the captions do not
    have, for pictures without a detector, and for a missing checkpoint."""
    train, presets = tree["train"], tree["presets"]
    params = validated(Params, {**tree, "train": with_preset(train, presets)})
    known = list(splits)
    _require_splits(params, known)
    for preset in params.runs:
        block = validated(TrainParams, with_preset({**train, "preset": preset}, presets))
        _require_splits(block, known, f" of preset {preset}")
    if params.regions.images and "detector" not in params.regions.model_fields_set:
        options = ("bottom_up --set regions.weights=FILE", "patches --set regions.model=MODEL")
        remedy = "give " + ", or ".join(f"--set regions.detector={option}" for option in options)
        remedy += "; or --features PATH and --format in place of --images"
        problem = "no detector for these pictures"
        raise InputError(problem, file=params.regions.images, remedy=remedy)
    weights = params.regions.weights
    if weights not in (None, "random") and not Path(str(weights)).is_file():
        raise InputError("no such file", file=weights, remedy="check regions.weights")
    return tree


def _require_splits(block: ParamsBlock, splits: Sequence[str], of: str = "") -> None:
    """InputError for a parameter that names a split which is none of these."""
    for key in _split_keys(type(block)):
        value: Any = block
        for name in key.split("."):  # presets are looked at one by one
            value = getattr(value, name, None)
        if value is not None:
            _require_split(f"{key}{of}", value, splits)


def _split_keys(block: type[ParamsBlock]) -> list[str]:
    return [key for key, leaf in leaves_of(block) if mark_of(leaf, OfSplit)]


def _require_split(key: str, value: str, splits: Sequence[str]) -> None:
    for name in value.split("+"):
        if name not in splits:
            problem = f"{key} is '{value}': the captions have no split '{name}'"
            raise InputError(problem, remedy=choose_from(name, splits))


def stages_that_stop(tree: Mapping[str, Any], summary: DatasetSummary) -> list[str]:
    """A line for each stage that will stop with an error: `regions` where pictures are missing, and
    `train` where batches are larger than the split."""
    lines = []
    missing = summary.looked_for - summary.with_picture
    if missing and tree["regions"].get("unreadable") != "skip":
        lines.append(
            "the stage `regions` stops for these pictures, unless --set regions.unreadable=skip leaves"
            " such images out"
        )
    if not summary.split_captions:
        return lines
    for preset in tree["runs"]:
        block = with_preset({**tree["train"], "preset": preset}, tree["presets"])
        params = validated(TrainParams, block)
        # A batch may have each image once.
        whole, of_split, items = (
            (sum(summary.splits.values()), summary.splits, "images")
            if params.unique_images
            else (summary.captions, summary.split_captions, "captions")
        )
        if tree["captions"].get("divide"):
            available = int(whole * (1 - sum(tree["captions"]["divide"].values())))
        else:
            available = sum(of_split.get(one, 0) for one in params.split.split("+"))
        if available < params.batch_size:
            lines.append(
                f"{preset} trains in batches of {params.batch_size}, and {params.split} has"
                f" {available:,} {items}: --set train.batch_size=N makes them smaller"
            )
    return lines


def write_project(folder: Path, tree: Mapping[str, Any], about: str) -> list[str]:
    """Write the files of a project and, where there is no DVC yet, set it up; returns the names of
    what was written.

    Raises InputError where one of the files exists.
    """
    if folder.is_file():
        problem = "a file where a folder is to be made"
        raise InputError(problem, file=folder, remedy="give another DIR")
    for name in (PARAMS, _PIPELINE, "README.md"):
        if (folder / name).exists():
            remedy = "give an empty DIR, or change params.yaml by hand; nothing was touched"
            raise InputError("it is there", file=folder / name, remedy=remedy)
    write_text(folder / PARAMS, "\n".join(_params_lines(tree)))
    write_text(folder / _PIPELINE, pipeline_text())
    # Unfinished work beside outputs would be a part of the folder that holds both.
    for name, wanted in ((".gitignore", IGNORED), (".dvcignore", (f"*{UNFINISHED}*",))):
        ignored = folder / name
        lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        lines += [line for line in wanted if line not in lines]
        write_text(ignored, "".join(f"{line}\n" for line in lines))
    made = _set_up_dvc(folder)
    experiments = EXPERIMENTS if _has_experiments(folder) else ""
    text = README.format(name=folder.resolve().name, about=about, experiments=experiments)
    write_text(folder / "README.md", text)
    return [PARAMS, _PIPELINE, ".gitignore", "README.md", *made]


def _params_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "# Parameters of this project; `capgrade list parameters` names every key. What is left out"
        " has its default."
    )
    for name, block in tree.items():
        yield f"\n# {name}: {_TITLES[name]}" if name in _TITLES else ""
        yield yaml.safe_dump({name: block}, sort_keys=False, allow_unicode=True, width=120).rstrip()
    yield ""


def _set_up_dvc(folder: Path) -> list[str]:
    """Set DVC up in a folder, unless it is set up already, and git where there is none: DVC's
    experiments need it. Returns the names of what was made."""
    folder, program = folder.resolve(), which("git")
    folders, made = [folder, *folder.parents], []
    git = next((path for path in folders if (path / ".git").exists()), None)
    if git is not None and git != folder and program is not None:
        ignored = subprocess.run([program, "check-ignore", "--quiet", folder], cwd=git, check=False)
        if ignored.returncode == 0:  # a folder that its repository ignores stands alone
            folders, git = [folder], None
    if any((path / ".dvc").is_dir() for path in folders):
        return []
    if git is None and program is not None:
        subprocess.run([program, "init", "--quiet"], cwd=folder, check=True)
        git, made = folder, [".git"]
    options = ["--no-scm"] if git is None else [] if git == folder else ["--subdir"]
    command = [sys.executable, "-m", "dvc", "init", "--quiet", *options]
    subprocess.run(command, cwd=folder, check=True)
    # Outputs are links to DVC's cache, and no second copy. Stages replace files, and never write
    # into one that is there. Where a file system has no links, DVC copies.
    command = [sys.executable, "-m", "dvc", "config", "--quiet", "cache.type", "hardlink,copy"]
    subprocess.run(command, cwd=folder, check=True)
    return [*made, ".dvc"]


def _has_experiments(folder: Path) -> bool:
    """Whether DVC knows a git repository here."""
    config = next(
        path / ".dvc" / "config"
        for path in (folder.resolve(), *folder.resolve().parents)
        if (path / ".dvc").is_dir()
    )
    return "no_scm = true" not in config.read_text(encoding="utf-8").lower()


EXPERIMENTS = """
An experiment stands upon a commit of this folder: `dvc exp run -S shards.top=8`, then `dvc exp show`.
"""
README = """# {name}

{about}

    dvc repro           # everything; type it again after a stop, or after a change of params.yaml
    dvc dag             # the stages, and what needs what
    dvc metrics show    # metrics of each run
{experiments}
`capgrade` and `dvc` are those of the active Python environment. What was done before a stop is kept in
`data/STAGE.unfinished`, until `report` deletes it. Files in `data` are read-only: `dvc unprotect FILE` makes one yours.

| file | what it has |
|---|---|
| `params.yaml` | where captions and pictures lie, measures, splits, runs |
| `dvc.yaml` | the stages; it needs no change for other data |
| `data/report.html` | every figure on one page |
| `data/comparison/runs.md` | the runs side by side |
| `data/dataset` | the labels as a Hugging Face dataset: `capgrade publish push data/dataset USER/NAME` |
| `data/runs`, `data/evaluation` | trained models, and their metrics |

The dataset holds the texts of the captions. Before you push it, look at `publish` in `params.yaml`: `license` is theirs, and
`captions: ids` leaves the texts out.
"""
