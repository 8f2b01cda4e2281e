"""The folders that SCAN shared: {split}_caps.txt, one caption per row, and {split}_ids.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from capgrade.pipelines.sources.fields import Position, read_lines, source_path
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams

PER_IMAGE = 5  # rows of captions per image, in this layout always
TABLE = "use --source tsv, which takes any number of captions per image"


def read_precomp(params: CaptionsParams) -> Iterator[Caption]:
    """Captions of `{params.split}_caps.txt` in file order, five per image; caption ids are `<image id>#<k>`. Of several
    splits joined by `+`, one after the other.

    `{split}_ids.txt`, where it exists, holds image ids, one per row of image features: SCAN's
    util/convert_data.py makes `{split}_ims.npy` from it row by row. So there is one per caption, repeated five
    times, or one per image; SCAN's data.py tells the two apart by the count too (`im_div`). They are COCO's image
    ids in coco_precomp and `imgid` of Karpathy's JSON in f30k_precomp, never sentence ids. Without the file,
    images are called `{split}-0`, `{split}-1` and so on, as `regions import --format scan` calls them.
    Raises InputError for a missing split, a count of rows that fits neither form, and five rows that do not
    share one image id.
    """
    folder = source_path(params)
    split = params.split
    if split is None:
        raise InputError("which split is not said", file=folder, remedy=_choices(folder))
    for part in [split] if (folder / f"{split}_caps.txt").is_file() else split.split("+"):
        yield from _read_split(folder, part)


def _read_split(folder: Path, split: str) -> Iterator[Caption]:
    path = folder / f"{split}_caps.txt"
    if not path.is_file():
        raise InputError(f"no {path.name}", file=folder, remedy=_choices(folder))
    captions = list(read_lines(path))
    images = _image_ids(folder / f"{split}_ids.txt", path, len(captions))
    for index, (row, text) in enumerate(captions):
        image, k = divmod(index, PER_IMAGE)
        yield Caption(images[image], f"{images[image]}#{k}", split, text, str(path), row)


def _choices(folder: Path) -> str:
    """The splits that the folder has, as a remedy."""
    if not folder.is_dir():
        return "give the folder that holds {split}_caps.txt as --input"
    found = sorted(path.name.removesuffix("_caps.txt") for path in folder.glob("*_caps.txt"))
    if not found:
        return "give a folder that holds {split}_caps.txt as --input; this one has none"
    return f"choose with --split from: {', '.join(found)}"


def _image_ids(path: Path, captions: Path, n_captions: int) -> list[str]:
    """One id per image."""
    if not path.is_file():
        if n_captions % PER_IMAGE:
            raise InputError(f"{n_captions} captions, not a multiple of {PER_IMAGE}", file=captions, remedy=TABLE)
        split = captions.name.removesuffix("_caps.txt")
        return [f"{split}-{image}" for image in range(n_captions // PER_IMAGE)]
    ids = [_image_id(line, Position(str(path), row)) for row, line in read_lines(path)]
    if len(ids) == n_captions and n_captions % PER_IMAGE == 0:
        _check_fives(ids, path)
        ids = ids[::PER_IMAGE]
    elif len(ids) * PER_IMAGE != n_captions:
        problem = f"{len(ids)} ids for the {n_captions} captions of {captions.name}"
        remedy = f"give one id per caption or one for every {PER_IMAGE} captions, or {TABLE}"
        raise InputError(problem, file=path, remedy=remedy)
    for image_id, times in Counter(ids).items():
        if times > 1:
            problem = f"image {image_id} comes {times} times, {PER_IMAGE} captions each"
            raise InputError(problem, file=path, remedy=TABLE)
    return ids


def _image_id(line: str, position: Position) -> str:
    if not line.strip():
        raise position.refuse("no id in this row", "delete the empty row or write the image's id")
    return line.strip()


def _check_fives(ids: list[str], path: Path) -> None:
    for index, image_id in enumerate(ids):
        first = ids[index - index % PER_IMAGE]
        if image_id != first:
            problem = f"id {image_id} where {first} is expected, as in the other rows of its {PER_IMAGE}"
            remedy = f"give image ids, not sentence ids, each {PER_IMAGE} times in a row, or {TABLE}"
            raise Position(str(path), index + 1).refuse(problem, remedy)
