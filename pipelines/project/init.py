"""A DVC project over one dataset: params.yaml, dvc.yaml, .gitignore and README.md in a folder.

Captions are read and pictures are looked for before anything is written.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from capgrade.measures.sbert import SbertParams
from capgrade.params import Params
from capgrade.pictures.listing import list_pictures, match_pictures
from capgrade.pipelines.features.convert import list_images
from capgrade.pipelines.features.rows import GoodImages
from capgrade.pipelines.sources import read_source
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import UNFINISHED, write_text
from capgrade.schemas.image_matching import match_images
from capgrade.schemas.params import (
    CaptionsParams,
    FeaturesParams,
    ShardsParams,
    TrainParams,
    override,
    read_yaml,
    validated,
    with_preset,
)
from capgrade.text.language import NO_ENGLISH, count_without_english

PIPELINE = Path(__file__).with_name("pipeline.yaml")
SCENES_PARAMS = Path(__file__).with_name("scenes.yaml")
PARAMS, _STAGES, IGNORED = "params.yaml", "dvc.yaml", ("/data/", "/dvc_plots/")
# The usual names of splits by their use: the first that a dataset has is taken.
_SPLIT_NAMES = {
    "train": ("train", "train2014", "train2017"),
    "validation": ("val", "dev", "validation", "valid"),
    "test": ("test", "val2014", "val2017"),
}
_DIVIDED = {"val": 0.1, "test": 0.1}  # shares of the images, where a source has no splits
# Parameters that name a file or folder. They are made absolute, because a project's commands run
# in its own folder.
_PATHS = {
    "regions.weights",
    "regions.config",
    "regions.model",
    "regions.boxes_of",
    "agree.judgements",
    "evaluate.instances",
    "measures.sbert.model",
    "measures.cider.document_frequency",
    "train.init",
}
_MEASURES = ("cider", "rouge_l", "sbert")
_FIRST = 20  # how many images of a feature file are checked: to read all may take an hour
_TITLES = {
    "captions": "where captions come from",
    "regions": "pictures and the detector, or features that others made",
    "measures": "how each is computed, where not by default",
    "relevance": "every pair of this split, to evaluate on",
    "shards": "a sample of the pairs of this split, to train on",
    "train": "what all runs share",
    "runs": "presets to train and compare: capgrade's own, or those below",
    "presets": "more presets, upon capgrade's (`base`)",
    "evaluate": "metrics of each run",
    "agree": "people's judgements to compare measures with, or null",
    "align": "the run of a TERAN whose words are drawn, or null",
    "publish": "what the dataset card says",
}


@dataclass(frozen=True)
class Dataset:
    """The block `captions` of a dataset's parameters, and its pictures or features."""

    captions: dict[str, Any]
    images: str | None = None
    features: dict[str, Any] | None = None


SCENES_DATASET = Dataset({"source": "scenes"}, images="data/captions")


def absolute_path(name: str) -> str:
    """An absolute path, because an experiment may run in another folder. What is no path, such as a
    dataset's name on the hub, is returned unchanged."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() or "{" in name else name


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
        text = f"{each} caption{'' if each == '1' else 's'} an image, splits {splits}"
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
        return _match_pictures(summary, dataset.images)
    return _match_features(summary, dataset.features) if dataset.features else summary


def _match_pictures(summary: DatasetSummary, images: str) -> DatasetSummary:
    pictures = list_pictures(images)
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
    params = validated(FeaturesParams, dict(features))
    sources, files = [Path(path) for path in params.input], [Path(path) for path in params.ids]
    entries = list_images(params.format, sources, files, params.input_dtype)
    ids = [entry.image_id for entry in islice(entries, _FIRST)]
    matches = match_images(summary.files, ids)
    if not matches.numbers:
        shown = ", ".join(f"'{image_id}'" for image_id in ids[:3])
        problem = f"features of {shown}, which are none of the captions' images"
        problem += f"; their first is '{next(iter(summary.files))}'"
        remedy = "give the features of these captions' images"
        raise InputError(problem, file=params.input[0], remedy=remedy)
    # One image is read here, so that a damaged file stops `write_project` and not a later stage.
    next(GoodImages("skip").read(list_images(params.format, sources, files, params.input_dtype)))
    note = f"of the first {len(ids)} images with features, {len(matches.numbers)} have captions"
    return replace(summary, notes=[note])


def choose_splits(summary: DatasetSummary, sets: Sequence[str]) -> dict[str, str | None]:
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


def params_of(
    dataset: Dataset,
    summary: DatasetSummary,
    name: str,
    presets: Sequence[str],
    license: str,
    language: str | None,
    sets: Sequence[str],
) -> dict[str, Any]:
    """The tree of params.yaml, changed by `sets`. InputError for values that a stage refuses."""
    if summary.not_english and not language:
        counts = f"{summary.not_english:,} of {summary.captions:,} captions"
        problem = f"{counts} have {NO_ENGLISH}"
        raise InputError(problem, remedy="say what they are in: --language en, or de")
    if dataset is SCENES_DATASET:
        return _with_sets(read_yaml(SCENES_PARAMS), sets)
    captions, shards = dict(dataset.captions), ShardsParams()
    if len(summary.splits) == 1:
        captions["divide"] = _DIVIDED
        summary = replace(summary, splits={"train": 0, "val": 0, "test": 0})
    teran = next((preset for preset in presets if preset.startswith("teran")), None)
    tree: dict[str, Any] = {
        "captions": captions,
        "regions": {
            "images": dataset.images,
            **({"features": dataset.features} if dataset.features else {}),
        },
        "measures": {
            "sbert": {"model": SbertParams().model, "references": SbertParams().references}
        },
        "relevance": {"measures": list(_MEASURES)},
        "shards": {"measures": list(_MEASURES), "top": shards.top, "uniform": shards.uniform},
        "train": {},
        "runs": list(presets),
        "presets": {},
        "evaluate": {},
        "agree": {"judgements": None},
        "align": {"run": teran if dataset.images else None},
        "publish": {
            "name": name,
            "license": license,
            **({"language": language} if language else {}),
        },
    }
    names = choose_splits(summary, sets)
    tree["relevance"]["split"] = tree["evaluate"]["split"] = names["test"]
    tree["shards"]["split"] = tree["train"]["split"] = names["train"]
    tree["train"]["validation"] = names["validation"]
    return _with_sets(tree, sets)


def _with_sets(tree: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """The tree changed by `sets`. InputError for values that a stage refuses, and for pictures
    without a detector."""
    for text in sets:
        key, _, value = text.partition("=")
        override(tree, f"{key}={absolute_path(value)}" if key in _PATHS else text)
    train, presets = tree["train"], tree["presets"]
    params = validated(Params, {**tree, "train": with_preset(train, presets)})
    for preset in params.runs:
        validated(TrainParams, with_preset({**train, "preset": preset}, presets))
    if params.regions.images and "detector" not in params.regions.model_fields_set:
        options = ("bottom_up --set regions.weights=FILE", "patches --set regions.model=MODEL")
        remedy = "give " + ", or ".join(f"--set regions.detector={option}" for option in options)
        remedy += "; or --features FORMAT=PATH in place of --images"
        problem = "no detector for these pictures"
        raise InputError(problem, file=params.regions.images, remedy=remedy)
    weights = params.regions.weights
    if weights not in (None, "random") and not Path(str(weights)).is_file():
        raise InputError("no such file", file=weights, remedy="check regions.weights")
    return tree


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
        if tree["captions"].get("divide"):
            pairs = int(summary.captions * (1 - sum(tree["captions"]["divide"].values())))
        else:
            pairs = sum(summary.split_captions.get(one, 0) for one in params.split.split("+"))
        if pairs < params.batch_size:
            lines.append(
                f"{preset} trains in batches of {params.batch_size}, and {params.split} has"
                f" {pairs:,} captions: --set train.batch_size=N makes them smaller"
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
    for name in (PARAMS, _STAGES, "README.md"):
        if (folder / name).exists():
            remedy = "give an empty DIR, or change params.yaml by hand; nothing was touched"
            raise InputError("it is there", file=folder / name, remedy=remedy)
    write_text(folder / PARAMS, "\n".join(_params_lines(tree)))
    write_text(folder / _STAGES, PIPELINE.read_text(encoding="utf-8"))
    write_text(folder / "README.md", README.format(name=folder.resolve().name, about=about))
    # Unfinished work beside outputs would be a part of the folder that holds both.
    for name, wanted in ((".gitignore", IGNORED), (".dvcignore", (f"*{UNFINISHED}*",))):
        ignored = folder / name
        lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        lines += [line for line in wanted if line not in lines]
        write_text(ignored, "".join(f"{line}\n" for line in lines))
    written = [PARAMS, _STAGES, ".gitignore", "README.md"]
    return [*written, ".dvc"] if _set_up_dvc(folder) else written


def _params_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "# Parameters of this project; `capgrade list parameters` names every key. What is left out"
        " has its default."
    )
    for name, block in tree.items():
        yield f"\n# {name}: {_TITLES[name]}" if name in _TITLES else ""
        yield yaml.safe_dump({name: block}, sort_keys=False, allow_unicode=True, width=120).rstrip()
    yield ""


def _set_up_dvc(folder: Path) -> bool:
    """Set DVC up in a folder, and in the git repository around it if there is one. False where it
    is set up already."""
    folder = folder.resolve()
    folders = [folder, *folder.parents]
    if any((path / ".dvc").is_dir() for path in folders):
        return False
    git = next((path for path in folders if (path / ".git").exists()), None)
    options = ["--no-scm"] if git is None else [] if git == folder else ["--subdir"]
    command = [sys.executable, "-m", "dvc", "init", "--quiet", *options]
    subprocess.run(command, cwd=folder, check=True)
    # Outputs are links to DVC's cache, and no second copy. Stages replace files, and never write
    # into one that is there. Where a file system has no links, DVC copies.
    command = [sys.executable, "-m", "dvc", "config", "--quiet", "cache.type", "hardlink,copy"]
    subprocess.run(command, cwd=folder, check=True)
    return True


README = """# {name}

{about}

    dvc repro           # everything; type it again after a stop, or after a change of params.yaml
    dvc dag             # the stages, and what needs what
    dvc metrics show    # metrics of each run
    dvc exp run -S shards.top=8

`capgrade` and `dvc` are those of the active Python environment.
What was done before a stop is kept in `data/STAGE.unfinished`, until the last stage, `report`, deletes it. Files in
`data` are read-only links to DVC's cache: `dvc unprotect FILE` makes one yours to change.

| file | what it has |
|---|---|
| `params.yaml` | where captions and pictures lie, measures, splits, runs |
| `dvc.yaml` | the stages; it needs no change for other data |
| `data/report.html` | every figure on one page |
| `data/comparison/runs.md` | the runs side by side |
| `data/dataset` | the labels as a Hugging Face dataset: `capgrade publish --push USER/NAME --out data/dataset` |
| `data/runs`, `data/evaluation` | trained models, and their metrics |
"""
