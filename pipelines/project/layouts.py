"""Where the files of known datasets lie, by the names that their owners give them."""

from collections.abc import Callable
from pathlib import Path

from capgrade.pipelines.project.init import Dataset
from capgrade.schemas.errors import InputError

DEEP = 3  # folders below the one given in which a file is looked for


def flickr8k(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_flickr8k.json, else the original token file with its lists, else Kaggle's
    captions.txt."""
    images = (
        str(_find(data, "Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images"))
        if pictures
        else None
    )
    karpathy = _found(data, "dataset_flickr8k.json")
    if karpathy:
        return Dataset({"source": "karpathy", "input": str(karpathy)}, images)
    captions = _find(data, "Flickr8k.token.txt", "captions.txt")
    lists = {split: _found(data, f"Flickr_8k.{name}Images.txt") for split, name in _LISTS.items()}
    given = {split: str(path) for split, path in lists.items() if path}
    return Dataset({"source": "flickr", "input": str(captions), "split_lists": given}, images)


def flickr30k(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_flickr30k.json, else the token file or Kaggle's results.csv, which have no
    splits."""
    images = (
        str(_find(data, "flickr30k-images", "flickr30k_images", "Images", "images"))
        if pictures
        else None
    )
    karpathy = _found(data, "dataset_flickr30k.json")
    if karpathy:
        return Dataset({"source": "karpathy", "input": str(karpathy)}, images)
    captions = _find(data, "results_20130124.token", "results.csv")
    return Dataset({"source": "flickr", "input": str(captions)}, images)


def coco(data: Path, pictures: bool) -> Dataset:
    """Karpathy's dataset_coco.json, else the official annotations; pictures below train2014 and
    val2014, or 2017."""
    images = (
        str(_find(data, "train2014", "val2014", "train2017", "val2017").parent)
        if pictures
        else None
    )
    karpathy = _found(data, "dataset_coco.json")
    if karpathy:
        return Dataset({"source": "karpathy", "input": str(karpathy)}, images)
    known = [
        path
        for year in ("2014", "2017")
        for part in ("train", "val")
        if (path := _found(data, f"captions_{part}{year}.json"))
    ]
    if not known:
        raise _missing(data, "dataset_coco.json", "captions_train2014.json")
    return Dataset({"source": "coco", "input": [str(path) for path in known]}, images)


_LISTS = {"train": "train", "val": "dev", "test": "test"}
LAYOUTS: dict[str, Callable[[Path, bool], Dataset]] = {
    "flickr8k": flickr8k,
    "flickr30k": flickr30k,
    "coco": coco,
}


def _found(data: Path, name: str) -> Path | None:
    """The nearest file or folder of this name."""
    for depth in range(DEEP):
        if there := sorted(data.glob("*/" * depth + name)):
            return there[0].resolve()
    return None


def _find(data: Path, *names: str) -> Path:
    """The first of these that is there. InputError that names them all."""
    found = next((path for name in names if (path := _found(data, name))), None)
    if found is None:
        raise _missing(data, *names)
    return found


def _missing(data: Path, *names: str) -> InputError:
    if not data.is_dir():
        return InputError(
            "no such folder", file=data, remedy="give --data the folder that the dataset lies in"
        )
    remedy = "give --data the folder that has it, or --source, --input and --images by themselves"
    return InputError(f"none of {', '.join(names)} in it or below", file=data, remedy=remedy)
