"""A project over one dataset: params.yaml, dvc.yaml, .gitignore and README.md in a folder, and DVC
set up there.

Captions are read and pictures looked for before anything is written.
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
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text
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
from capgrade.text.language import count_without_english

PIPELINE, SCENES_PARAMS = (
    Path(__file__).with_name(name) for name in ("pipeline.yaml", "scenes.yaml")
)
PARAMS, _STAGES, IGNORED = "params.yaml", "dvc.yaml", ("/data/", "/dvc_plots/")
# of splits, the first that is there
_NAMES = {
    "train": ("train", "train2014", "train2017"),
    "validation": ("val", "dev", "validation", "valid"),
    "test": ("test", "val2014", "val2017"),
}
_DIVIDED = {"val": 0.1, "test": 0.1}  # shares of the images, where a source has no splits
_PATHS = {  # parameters that name a file or folder: a project's commands run in its own folder
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
_FIRST = 20  # images of a feature file that are looked at: to read it whole may take an hour
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
    """Where a dataset lies: the block `captions` of its parameters, and its pictures or
    features."""

    captions: dict[str, Any]
    images: str | None = None
    features: dict[str, Any] | None = None


SCENES_DATASET = Dataset({"source": "scenes"}, images="data/captions")


def absolute(name: str) -> str:
    """A path as it is from any folder: an experiment may run in another one. What is no path, such
    as a dataset's name on the hub, stays."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() or "{" in name else name


@dataclass(frozen=True)
class DatasetSummary:
    """What captions and pictures were seen: images by split, captions, how many images have a
    picture of those looked for, and lines about the others."""

    splits: dict[str, int]
    captions: int
    files: Mapping[str, str | None]  # image id -> the file that its source names
    not_english: int = 0  # captions without a common English word, where they are most
    with_picture: int = 0
    looked_for: int = 0
    notes: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Captions an image, splits, and pictures."""
        images = sum(self.splits.values())
        each = f"{self.captions / images:.3g}"
        splits = " / ".join(f"{name} {count:,}" for name, count in self.splits.items())
        said = f"{each} caption{'' if each == '1' else 's'} an image, splits {splits}"
        if not self.looked_for:
            return said
        return f"{said}, {self.with_picture:,} of {self.looked_for:,} pictures found"


def look(dataset: Dataset) -> DatasetSummary:
    """Read the captions, and find a picture, or regions, for each image. InputError for captions
    that cannot be read, and where there is a picture of none."""
    params = validated(CaptionsParams, dataset.captions)
    if params.source == "scenes":
        scenes = params.scenes
        splits = {"train": scenes.train, "val": scenes.val, "test": scenes.test}
        return DatasetSummary(splits, scenes.captions_per_image * sum(splits.values()), {})
    captions = list(read_source(params))
    split_of = {caption.image_id: caption.split for caption in captions}
    if not captions:
        raise InputError(
            "no captions", file=params.inputs[0], remedy="check the source and its input"
        )
    found = DatasetSummary(dict(Counter(split_of.values())), len(captions), _files(captions))
    if (without := count_without_english(caption.text for caption in captions)) > len(captions) / 2:
        found = replace(found, not_english=without)
    if dataset.images:
        return _with_pictures(found, dataset.images)
    return _with_features(found, dataset.features) if dataset.features else found


def _files(captions: Sequence[Caption]) -> dict[str, str | None]:
    return {caption.image_id: caption.image_file for caption in captions}


def _with_pictures(found: DatasetSummary, images: str) -> DatasetSummary:
    pictures = list_pictures(images)
    matched = match_pictures(found.files, pictures, images)
    if not matched.numbers:
        first = next(iter(found.files))
        problem = (
            f"{len(pictures):,} pictures, of none of the {len(found.files):,} images; the first is"
            f" '{first}'"
        )
        remedy = (
            "name files after the image ids or the captions' files, or give a list of"
            " image_id<TAB>path"
        )
        raise InputError(problem, file=images, remedy=remedy)
    notes = [*matched.lines(), *pictures.lines()]
    if matched.missing:
        notes.append(
            "the stage `regions` stops there, unless --set regions.unreadable=skip leaves such"
            " images out"
        )
    return replace(
        found, with_picture=len(matched.numbers), looked_for=len(found.files), notes=notes
    )


def _with_features(found: DatasetSummary, features: Mapping[str, Any]) -> DatasetSummary:
    params = validated(FeaturesParams, dict(features))
    sources, files = [Path(path) for path in params.input], [Path(path) for path in params.ids]
    ids = [
        one.image_id
        for one in islice(list_images(params.format, sources, files, params.input_dtype), _FIRST)
    ]
    matched = match_images(found.files, ids)
    if not matched.numbers:
        shown, first = ", ".join(f"'{image_id}'" for image_id in ids[:3]), next(iter(found.files))
        problem = (
            f"features of {shown}, which are none of the captions' images; their first is '{first}'"
        )
        raise InputError(
            problem, file=params.input[0], remedy="give the features of these captions' images"
        )
    # can be read
    next(GoodImages("skip").read(list_images(params.format, sources, files, params.input_dtype)))
    note = f"of the first {len(ids)} images with features, {len(matched.numbers)} have captions"
    return replace(found, notes=[note])


def split_names(found: DatasetSummary, sets: Sequence[str]) -> dict[str, str | None]:
    """Which split is learnt from, validated and evaluated on: as `sets` say it, else by the usual
    names. InputError where none can be learnt from or evaluated."""
    given = {key: value for key, _, value in (text.partition("=") for text in sets)}
    names = {
        use: next((one for one in known if one in found.splits), None)
        for use, known in _NAMES.items()
    }
    asked = {
        "train": given.get("train.split"),
        "test": given.get("evaluate.split", given.get("relevance.split")),
    }
    names |= {use: split for use, split in asked.items() if split is not None}
    if names["train"] is None or (names["test"] or names["validation"]) is None:
        problem = (
            f"splits {', '.join(found.splits)}: which are to learn from and to evaluate on is not"
            " known"
        )
        raise InputError(problem, remedy="say it: --set train.split=NAME --set evaluate.split=NAME")
    if names["test"] is None:  # then no epoch is chosen by what is evaluated on
        names["test"], names["validation"] = names["validation"], None
    if (
        "restval" in found.splits and asked["train"] is None
    ):  # Karpathy's, which everybody learns from too
        names["train"] = f"{names['train']}+restval"
    return names


def params_of(
    dataset: Dataset,
    found: DatasetSummary,
    name: str,
    presets: Sequence[str],
    license: str,
    language: str | None,
    sets: Sequence[str],
) -> dict[str, Any]:
    """The tree of params.yaml, upon which `sets` are put. InputError for what no stage would
    take."""
    if found.not_english and not language:
        problem = (
            f"{found.not_english:,} of {found.captions:,} captions have no common English word"
        )
        raise InputError(problem, remedy="say what they are in: --language de")
    if dataset is SCENES_DATASET:
        return _with_sets(read_yaml(SCENES_PARAMS), sets)
    captions, shards = dict(dataset.captions), ShardsParams()
    if len(found.splits) == 1:
        captions["divide"] = _DIVIDED
        found = replace(found, splits={"train": 0, "val": 0, "test": 0})
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
        "align": {
            "run": (
                next((one for one in presets if one.startswith("teran")), None)
                if dataset.images
                else None
            )
        },
        "publish": {
            "name": name,
            "license": license,
            **({"language": language} if language else {}),
        },
    }
    names = split_names(found, sets)
    tree["relevance"]["split"] = tree["evaluate"]["split"] = names["test"]
    tree["shards"]["split"] = tree["train"]["split"] = names["train"]
    tree["train"]["validation"] = names["validation"]
    return _with_sets(tree, sets)


def _with_sets(tree: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """The tree with these values. InputError for what no stage would take, and for pictures without
    a detector."""
    for text in sets:
        key, _, value = text.partition("=")
        override(tree, f"{key}={absolute(value)}" if key in _PATHS else text)
    train, more = tree["train"], tree["presets"]
    loaded = validated(Params, {**tree, "train": with_preset(train, more)})
    for preset in loaded.runs:
        validated(TrainParams, with_preset({**train, "preset": preset}, more))
    if loaded.regions.images and "detector" not in loaded.regions.model_fields_set:
        known = ("bottom_up --set regions.weights=FILE", "patches --set regions.model=MODEL")
        remedy = "give " + ", or ".join(f"--set regions.detector={one}" for one in known)
        problem = "no detector for these pictures"
        raise InputError(
            problem,
            file=loaded.regions.images,
            remedy=f"{remedy}; or --features FORMAT=PATH in place of --images",
        )
    if (weights := loaded.regions.weights) not in (None, "random") and not Path(
        str(weights)
    ).is_file():
        raise InputError("no such file", file=weights, remedy="check regions.weights")
    return tree


def init(folder: Path, tree: Mapping[str, Any], about: str) -> list[str]:
    """Write the project and set DVC up, unless there is one already; returns what was made.

    Raises InputError where one of the files is there.
    """
    if folder.is_file():
        raise InputError(
            "a file where a folder is to be made", file=folder, remedy="give another DIR"
        )
    for name in (PARAMS, _STAGES, "README.md"):
        if (folder / name).exists():
            remedy = "give an empty DIR, or change params.yaml by hand; nothing was touched"
            raise InputError("it is there", file=folder / name, remedy=remedy)
    write_text(folder / PARAMS, "\n".join(_lines(tree)))
    write_text(folder / _STAGES, PIPELINE.read_text(encoding="utf-8"))
    write_text(folder / "README.md", README.format(name=folder.resolve().name, about=about))
    ignored = folder / ".gitignore"
    before = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
    write_text(
        ignored,
        "".join(f"{line}\n" for line in [*before, *(one for one in IGNORED if one not in before)]),
    )
    made = [PARAMS, _STAGES, ".gitignore", "README.md"]
    return [*made, ".dvc"] if _set_up(folder) else made


def _lines(tree: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "# Parameters of this project: capgrade's docs/reference.md has every key. What is left out"
        " has its default."
    )
    for name, block in tree.items():
        yield f"\n# {name}: {_TITLES[name]}" if name in _TITLES else ""
        yield yaml.safe_dump({name: block}, sort_keys=False, allow_unicode=True, width=120).rstrip()
    yield ""


def _set_up(folder: Path) -> bool:
    """Make a folder one of DVC, in the git repository around it if there is one. False where DVC is
    there."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    if any((one / ".dvc").is_dir() for one in above):
        return False
    git = next((one for one in above if (one / ".git").exists()), None)
    how = ["--no-scm"] if git is None else [] if git == folder else ["--subdir"]
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet", *how], cwd=folder, check=True)
    return True


README = """# {name}

{about}

    dvc repro           # everything; type it again after a stop, or after a change of params.yaml
    dvc dag             # the stages, and what needs what
    dvc metrics show    # metrics of each run
    dvc exp run -S shards.top=8

`capgrade` and `dvc` are those of the active Python environment.
What was done before a stop is kept in `data/STAGE.unfinished`, and goes into `data/STAGE` at the end.

| file | what it has |
|---|---|
| `params.yaml` | where captions and pictures lie, measures, splits, runs |
| `dvc.yaml` | the stages; it needs no change for other data |
| `data/report.html` | every figure on one page |
| `data/comparison/runs.md` | the runs side by side |
| `data/dataset` | the labels as a Hugging Face dataset: `capgrade publish --push USER/NAME --out data/dataset` |
| `data/runs`, `data/evaluation` | trained models, and their metrics |
"""
