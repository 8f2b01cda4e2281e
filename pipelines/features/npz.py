"""One npz file per image: MILVLG's layout, and TERN's and TERAN's folders."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from capgrade.pipelines.features.damage import (
    FETCH_AGAIN,
    KEYS_OF_LISTS,
    ImageEntry,
    box_array,
    cast_exactly,
    feature_array,
    files_in,
    quote_names,
    require_boxes,
)
from capgrade.schemas.arrays import read_npy, read_npz
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import LISTS, Regions

KEYS = ("x", "bbox", "num_bbox", "image_h", "image_w")
ATT, BOX = "_att", "_box"  # ends of the names of TERAN's folders
# Bytes of one image when unpacked. No image has as many; a file made to fill the memory has more.
LARGEST_IMAGE = 2**30

log = logging.getLogger(__name__)


def read_npz_folder(folder: Path) -> Iterator[ImageEntry]:
    """`{image_id}.npz` of a folder in order of name, keys x, bbox, num_bbox, image_h, image_w.

    x is [n, d] as bottom-up-attention.pytorch writes it (utils/extract_utils.py), else [d, n] as
    MCAN and OpenVQA have it: `num_bbox` tells which. Classes and attributes are read where
    `write_npz` stored them. Those in `info`, a pickle that could run any code, are not. Raises
    InputError for a damaged file, a missing key, and counts and shapes that do not fit.
    """
    for path in files_in(folder, "*.npz"):
        yield ImageEntry(path.name.removesuffix(".npz"), path, None, partial(_read_npz, path))


def _read_npz(path: Path) -> Regions:
    arrays = _load_arrays(path, KEYS, tuple(KEYS_OF_LISTS))
    sizes = "num_bbox", "image_h", "image_w"
    n, height, width = (_read_integer(arrays, key, path) for key in sizes)
    x = feature_array(arrays["x"], "x", path)
    if x.ndim == 2 and len(x) != n and x.shape[1] == n:
        x = np.ascontiguousarray(x.T)
    if x.ndim != 2 or len(x) != n:
        problem = f"x of shape {x.shape} where num_bbox is {n}"
        raise InputError(
            problem, file=path, remedy=f"x is [num_bbox, d] or [d, num_bbox]; {FETCH_AGAIN}"
        )
    lists = {
        name: cast_exactly(arrays[key], LISTS[name], key, path)
        for key, name in KEYS_OF_LISTS.items()
        if key in arrays
    }
    boxes = box_array(arrays["bbox"], "bbox", path)
    return Regions(path.name.removesuffix(".npz"), width, height, boxes, x, **lists)


def write_npz(folder: Path, images: Iterable[Regions]) -> int:
    """Write the files that `read_npz_folder` reads, x as [n, d]; returns their number.

    Classes, attributes and confidences are plain arrays, in place of the pickled `info`; other
    readers of this layout ignore them. InputError for an image without boxes or size.
    """
    count = 0
    for regions in images:
        require_boxes(regions.check())
        if "/" in regions.image_id or "\\" in regions.image_id or regions.image_id.startswith("."):
            problem = f"image id {regions.image_id!r} cannot be a file name"
            raise InputError(problem, remedy="export as tsv, which takes any id")
        lists = {key: getattr(regions, name) for key, name in KEYS_OF_LISTS.items()}
        arrays = {
            "x": regions.features,
            "bbox": regions.boxes,
            "num_bbox": np.array(len(regions)),
            "image_h": np.array(regions.height),
            "image_w": np.array(regions.width),
            **{key: values for key, values in lists.items() if values is not None},
        }
        with atomic(folder / f"{regions.image_id}.npz") as temporary, temporary.open("wb") as f:
            np.savez_compressed(f, allow_pickle=False, **arrays)
        count += 1
    return count


def read_teran(features: Path, boxes: Path | None = None) -> Iterator[ImageEntry]:
    """`{image_id}.npz` with key feat [n, d] in one folder and `{image_id}.npy` [n, 4] in another,
    in order of name, as TERN and TERAN (features.py) and self-critical.pytorch
    (scripts/make_bu_data.py) have them.

    feat may also be a grid [h, w, d] or a vector [d], under the key z or in a file .npy. Image
    sizes are unknown, as TERAN's are in a pickle. Raises InputError for damaged files, and where an
    image lacks either file.
    """
    suffix = ".npz" if any(features.glob("*.npz")) else ".npy"
    ids = {path.name.removesuffix(suffix) for path in files_in(features, f"*{suffix}")}
    if boxes is not None:
        ids |= {path.name.removesuffix(".npy") for path in files_in(boxes, "*.npy")}
    for image_id in sorted(ids):
        path = features / f"{image_id}{suffix}"
        box_path = None if boxes is None else boxes / f"{image_id}.npy"
        yield ImageEntry(image_id, path, None, partial(_read_teran, image_id, path, box_path))


def _read_teran(image_id: str, path: Path, box_path: Path | None) -> Regions:
    for file in (path, box_path):
        if file is not None and not file.is_file():
            problem = f"missing, though image {image_id} has its other file"
            remedy = "an image needs both files: copy the rest, or delete the other"
            raise InputError(problem, file=file, remedy=remedy)
    if path.suffix == ".npy":
        x = feature_array(read_npy(path), "the array", path)
    else:
        loaded = _load_arrays(path, (), ("feat", "z"), "feat")
        key = "feat" if "feat" in loaded else "z"
        x = feature_array(loaded[key], key, path)
    if x.ndim in (1, 3):
        x = x.reshape(-1, x.shape[-1])
    if box_path is None:
        return Regions(image_id, None, None, None, x)
    box = read_npy(box_path)
    wrong = box_path if x.ndim == 2 and box.shape[:1] != x.shape[:1] else path
    return Regions(image_id, None, None, box_array(box, "the array", box_path), x).check(file=wrong)


def pair_teran_folders(sources: Sequence[Path]) -> list[tuple[Path, Path | None]]:
    """Pairs of a folder of features and one of boxes, or None, in what `sources` name.

    A source holds one pair, such as `bu_att` and `bu_box`, or one `*_att` alone; or it is itself a
    folder of features or of boxes. The latter are paired in their order.
    """
    pairs: list[tuple[Path, Path | None]] = []
    features: list[Path] = []
    boxes: list[Path] = []
    for source in sources:
        if not source.is_dir():
            raise InputError("no such folder", file=source, remedy="check the path")
        if any(source.glob(f"*{ATT}")) or not any(source.glob("*.np[yz]")):
            pairs.append(_find_pair(source))
        else:
            (boxes if _has_boxes(source) else features).append(source)
    if boxes and len(boxes) != len(features):
        problem = f"{len(features)} folders of features and {len(boxes)} of boxes"
        remedy = "name each folder of features and of boxes, once"
        raise InputError(problem, file=boxes[0], remedy=remedy)
    box_folders: list[Path | None] = [*boxes] or [None for _ in features]
    return [*pairs, *zip(features, box_folders, strict=True)]


def _has_boxes(folder: Path) -> bool:
    first = next(folder.glob("*.npy"), None)
    if first is None or any(folder.glob("*.npz")):
        return False
    shape = read_npy(first).shape
    return len(shape) == 2 and shape[1] == 4


def _find_pair(folder: Path) -> tuple[Path, Path | None]:
    names: dict[str, set[str]] = {
        kind: {path.name.removesuffix(kind) for path in folder.glob(f"*{kind}") if path.is_dir()}
        for kind in (ATT, BOX)
    }
    pairs = names[ATT] & names[BOX]
    if not pairs and not names[BOX]:
        pairs = names[ATT]
    if len(pairs) != 1:
        folders = [f"{name}{kind}" for kind in (ATT, BOX) for name in sorted(names[kind])]
        problem = f"not one pair of folders *{ATT} and *{BOX}: it has {quote_names(folders)}"
        remedy = f"name the two folders that belong together: NAME{ATT} and NAME{BOX}"
        raise InputError(problem, file=folder, remedy=remedy)
    (name,) = pairs
    if others := sorted(names[ATT] - pairs):
        unread = ", ".join(f"{other}{ATT}" for other in others)
        log.info("%s: %s%s is read; not read: %s", folder, name, ATT, unread)
    boxes = folder / f"{name}{BOX}" if name in names[BOX] else None
    return folder / f"{name}{ATT}", boxes


def _load_arrays(
    path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = (), either: str | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an npz file that `keys` and `optional` name; a pickled one is an error and is
    not loaded. With `either`, one of `optional` must be present, and the error calls it so."""

    def choose(names: list[str]) -> list[str]:
        missing = [key for key in keys if key not in names]
        missing += [either] if either and not any(key in names for key in optional) else []
        if missing:
            problem = f"no key {missing[0]!r}: it has {quote_names(names)}"
            remedy = f"this layout needs {', '.join(keys or [*missing])}; check regions.format"
            raise InputError(problem, file=path, remedy=remedy)
        return [key for key in (*keys, *optional) if key in names]

    return read_npz(path, choose, most=LARGEST_IMAGE)


def _read_integer(arrays: dict[str, np.ndarray], key: str, path: Path) -> int:
    value = arrays[key]
    if value.size != 1 or value.dtype.kind not in "iu" or not 0 < int(value.reshape(-1)[0]) < 2**31:
        raise InputError(f"{key} is not one whole number from 1", file=path, remedy=FETCH_AGAIN)
    return int(value.reshape(-1)[0])
