"""The files of well-known datasets, found by the names that their owners give them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from capgrade.pipelines.project.dataset import Dataset
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import read_yaml

DEEP = 3  # levels of folders in which a file is looked for: the given one and two below


def _find_flickr8k(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_flickr8k.json, else the original token file with its lists, else Kaggle's
    captions.txt; people's judgements where they lie there too."""
    images, judged = None, [_find_nearest(data, name) for name in _JUDGED]
    if pictures:
        names = ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images", *_ZIPS)
        images = str(_find(data, *names))
    beside: dict[str, Any] = {
        "judgements": tuple(str(path) for path in judged if path),
        "params": read_yaml(_FLICKR8K),
    }
    if karpathy := _find_nearest(data, "dataset_flickr8k.json"):
        return Dataset({"source": "karpathy", "input": str(karpathy)}, images, **beside)
    captions = _find(data, "Flickr8k.token.txt", "captions.txt")
    lists = {
        split: str(path)
        for split, name in _LISTS.items()
        if (path := _find_nearest(data, f"Flickr_8k.{name}Images.txt"))
    }
    read = {"source": "flickr", "input": str(captions), "split_lists": lists}
    return Dataset(read, images, **beside)


def _find_flickr30k(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_flickr30k.json, else the token file or Kaggle's results.csv, which have no
    splits."""
    images = None
    if pictures:
        images = str(_find(data, "flickr30k-images", "flickr30k_images", "Images", "images"))
    if karpathy := _find_nearest(data, "dataset_flickr30k.json"):
        return Dataset({"source": "karpathy", "input": str(karpathy)}, images)
    captions = _find(data, "results_20130124.token", "results.csv")
    return Dataset({"source": "flickr", "input": str(captions)}, images)


def _find_coco(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_coco.json, else the official annotations; pictures below train2014 and
    val2014, or 2017; instances of the official validation split where they lie there too, as a
    test split is of its images."""
    images = None
    if pictures:
        images = str(_find(data, "train2014", "val2014", "train2017", "val2017").parent)
    if karpathy := _find_nearest(data, "dataset_coco.json"):
        read = {"source": "karpathy", "input": str(karpathy)}
        return Dataset(read, images, instances=_instances(data, "val2014"))
    files = [
        (f"{part}{year}", path)
        for year in ("2014", "2017")
        for part in ("train", "val")
        if (path := _find_nearest(data, f"captions_{part}{year}.json"))
    ]
    if not files:
        raise _missing(data, "dataset_coco.json", "captions_train2014.json")
    evaluated = next((split for split, _ in files if split.startswith("val")), files[0][0])
    inputs = [str(path) for _, path in files]
    return Dataset(
        {"source": "coco", "input": inputs}, images, instances=_instances(data, evaluated)
    )


def _instances(data: Path, split: str) -> str | None:
    path = _find_nearest(data, f"instances_{split}.json")
    return None if path is None else str(path)


_FLICKR8K = Path(__file__).with_name("flickr8k.yaml")
# Judgements of pairs of the test split; the first is what measures are compared with.
_JUDGED = ("CrowdFlowerAnnotations.txt", "ExpertAnnotations.txt")
_ZIPS = ("Flickr8k_Dataset*.zip", "Flicker8k_*.zip")  # of pictures; texts are in Flickr8k_text.zip
_LISTS = {"train": "train", "val": "dev", "test": "test"}
LAYOUTS: dict[str, Callable[[Path, bool], Dataset]] = {
    "flickr8k": _find_flickr8k,
    "flickr30k": _find_flickr30k,
    "coco": _find_coco,
}


def _find_nearest(data: Path, name: str) -> Path | None:
    """The nearest file or folder of this name, or pattern of names; None without one."""
    for depth in range(DEEP):
        if paths := sorted(data.glob("*/" * depth + name)):
            return paths[0].resolve()
    return None


def _find(data: Path, *names: str) -> Path:
    """The first of these names that exists. InputError where none does."""
    path = next((path for name in names if (path := _find_nearest(data, name))), None)
    if path is None:
        raise _missing(data, *names)
    return path


def _missing(data: Path, *names: str) -> InputError:
    if not data.is_dir():
        remedy = "give --data the folder that the dataset lies in"
        return InputError("no such folder", file=data, remedy=remedy)
    remedy = "give --data the folder that has it, or --source, --input and --images by themselves"
    return InputError(f"none of {', '.join(names)} in it or below", file=data, remedy=remedy)
