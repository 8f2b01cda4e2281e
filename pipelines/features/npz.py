"""One npz file per image: MILVLG's layout, and TERN's and TERAN's folders."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from capgrade.pipelines.features.damage import (
    FETCH_AGAIN,
    KEYS_OF_LISTS,
    Found,
    box_array,
    exact,
    feature_array,
    files_in,
    quoted,
    refused,
    require_boxes,
)
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.regions import LISTS, Regions

KEYS = ("x", "bbox", "num_bbox", "image_h", "image_w")
ATT, BOX = "_att", "_box"  # ends of the names of TERAN's folders
# of one image, unpacked: far beyond any, and less than a file made to fill the memory asks for
LARGEST_IMAGE = 2**30

log = logging.getLogger(__name__)


def read_npz(folder: Path) -> Iterator[Found]:
    """`{image_id}.npz` of a folder in order of name, keys x, bbox, num_bbox, image_h, image_w.

    x is [n, d] as bottom-up-attention.pytorch writes it (utils/extract_utils.py), or [d, n] as in
    the files of MCAN and OpenVQA, whose loaders transpose it; `num_bbox` tells which, [n, d] when
    both sides fit. `info` is a pickled dict, which could run any code when loaded: its bytes are
    never looked at, so the classes and attributes in it are not read. Those that `write_npz` stores
    as plain arrays are. Raises InputError for a damaged file, a missing key, and counts and shapes
    that do not fit.
    """
    for path in files_in(folder, "*.npz"):
        yield Found(path.name.removesuffix(".npz"), path, None, partial(_read_npz, path))


def _read_npz(path: Path) -> Regions:
    arrays = _load(path, KEYS, tuple(KEYS_OF_LISTS))
    n, height, width = (_whole(arrays, key, path) for key in ("num_bbox", "image_h", "image_w"))
    x = feature_array(arrays["x"], "x", path)
    if x.ndim == 2 and len(x) != n and x.shape[1] == n:
        x = np.ascontiguousarray(x.T)
    if x.ndim != 2 or len(x) != n:
        problem = f"x of shape {x.shape} where num_bbox is {n}"
        raise InputError(
            problem, file=path, remedy=f"x is [num_bbox, d] or [d, num_bbox]; {FETCH_AGAIN}"
        )
    found = {key: name for key, name in KEYS_OF_LISTS.items() if key in arrays}
    lists = {name: exact(arrays[key], LISTS[name], key, path) for key, name in found.items()}
    boxes = box_array(arrays["bbox"], "bbox", path)
    return Regions(path.name.removesuffix(".npz"), width, height, boxes, x, **lists)


def write_npz(folder: Path, images: Iterable[Regions]) -> int:
    """Write the files that `read_npz` reads, x as [n, d]; returns their number.

    There is no `info`: classes, attributes and confidences are plain arrays named as its entries
    are, which other readers of this layout pass over. InputError for an image without boxes or
    size.
    """
    count = 0
    for regions in images:
        require_boxes(regions.check())
        if "/" in regions.image_id or "\\" in regions.image_id or regions.image_id.startswith("."):
            problem, remedy = (
                f"image id {regions.image_id!r} cannot be a file name",
                "export as tsv, which takes any id",
            )
            raise InputError(problem, remedy=remedy)
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


def read_teran(features: Path, boxes: Path | None = None) -> Iterator[Found]:
    """`{image_id}.npz` with key feat [n, d] in one folder and `{image_id}.npy` [n, 4] in another,
    in order of name.

    The layout of TERN and TERAN (features.py), and of self-critical.pytorch
    (scripts/make_bu_data.py), whose ids are COCO's numbers. feat may be a grid [h, w, d] or a
    vector [d] too, and the key z, or the file .npy. Image sizes are unknown: TERAN's sizes.pkl is a
    pickle. Raises InputError for damaged files, and when an image lacks either file.
    """
    suffix = ".npz" if any(features.glob("*.npz")) else ".npy"
    ids = {path.name.removesuffix(suffix) for path in files_in(features, f"*{suffix}")}
    if boxes is not None:
        ids |= {path.name.removesuffix(".npy") for path in files_in(boxes, "*.npy")}
    for image_id in sorted(ids):
        path = features / f"{image_id}{suffix}"
        box_path = None if boxes is None else boxes / f"{image_id}.npy"
        yield Found(image_id, path, None, partial(_read_teran, image_id, path, box_path))


def _read_teran(image_id: str, path: Path, box_path: Path | None) -> Regions:
    for one in (path, box_path):
        if one is not None and not one.is_file():
            remedy = "an image needs both files: copy the rest, or delete the other"
            raise InputError(
                f"missing, though image {image_id} has its other file", file=one, remedy=remedy
            )
    if path.suffix == ".npy":
        x = feature_array(_read_array(path), "the array", path)
    else:
        loaded = _load(path, (), ("feat", "z"), "feat")
        key = "feat" if "feat" in loaded else "z"
        x = feature_array(loaded[key], key, path)
    if x.ndim in (1, 3):
        x = x.reshape(-1, x.shape[-1])
    if box_path is None:
        return Regions(image_id, None, None, None, x)
    box = _read_array(box_path)
    wrong = box_path if x.ndim == 2 and box.shape[:1] != x.shape[:1] else path
    return Regions(image_id, None, None, box_array(box, "the array", box_path), x).check(file=wrong)


def _read_array(path: Path) -> np.ndarray:
    with refused(path), path.open("rb") as f:
        array: np.ndarray = np.lib.format.read_array(f, allow_pickle=False)
        return array


def teran_folders(sources: Sequence[Path]) -> list[tuple[Path, Path | None]]:
    """The folders of features and of boxes, None where there are none, in what `--input` names.

    A source is the folder around one pair, `bu_att` and `bu_box`, `cocobu_att` and `cocobu_box`, or
    around one `*_att` alone; or it is such a folder itself. Of those, folders of features and of
    boxes are paired in their order.
    """
    found: list[tuple[Path, Path | None]] = []
    given: dict[str, list[Path]] = {"features": [], "boxes": []}
    for source in sources:
        if not source.is_dir():
            raise InputError("no such folder", file=source, remedy="check the path")
        if any(source.glob(f"*{ATT}")) or not any(source.glob("*.np[yz]")):
            found.append(_pair_in(source))
        else:
            given["boxes" if _of_boxes(source) else "features"].append(source)
    features, boxes = given.values()
    if boxes and len(boxes) != len(features):
        problem = f"{len(features)} folders of features and {len(boxes)} of boxes"
        raise InputError(
            problem,
            file=boxes[0],
            remedy="give --input once for each folder of features and of boxes",
        )
    beside: list[Path | None] = [*boxes] or [None for _ in features]
    return [*found, *zip(features, beside, strict=True)]


def _of_boxes(folder: Path) -> bool:
    first = next(folder.glob("*.npy"), None)
    if first is None or any(folder.glob("*.npz")):
        return False
    shape = _read_array(first).shape
    return len(shape) == 2 and shape[1] == 4


def _pair_in(folder: Path) -> tuple[Path, Path | None]:
    names: dict[str, set[str]] = {
        kind: {path.name.removesuffix(kind) for path in folder.glob(f"*{kind}") if path.is_dir()}
        for kind in (ATT, BOX)
    }
    pairs = names[ATT] & names[BOX]
    if not pairs and not names[BOX]:
        pairs = names[ATT]
    if len(pairs) != 1:
        there = [f"{name}{kind}" for kind in (ATT, BOX) for name in sorted(names[kind])]
        problem = f"not one pair of folders *{ATT} and *{BOX}: it has {quoted(there)}"
        remedy = f"give the two folders that belong together: --input NAME{ATT} --input NAME{BOX}"
        raise InputError(problem, file=folder, remedy=remedy)
    (name,) = pairs
    if others := sorted(names[ATT] - pairs):
        log.info(
            "%s: %s%s is read; not read: %s",
            folder,
            name,
            ATT,
            ", ".join(f"{one}{ATT}" for one in others),
        )
    boxes = folder / f"{name}{BOX}" if name in names[BOX] else None
    return folder / f"{name}{ATT}", boxes


def _load(
    path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = (), either: str | None = None
) -> dict[str, np.ndarray]:
    """The named arrays of an npz file and nothing else; a pickled one is refused, not loaded.
    `either` is the name in the error where none of the optional ones is there."""
    with refused(path), path.open("rb") as f, np.lib.npyio.NpzFile(f, allow_pickle=False) as npz:
        missing = [key for key in keys if key not in npz]
        missing += [either] if either and not any(key in npz for key in optional) else []
        assert npz.zip is not None
        size = sum(member.file_size for member in npz.zip.infolist())
        if size > LARGEST_IMAGE:
            raise ValueError(f"{size} bytes when unpacked")
        if missing:
            problem = f"no key {missing[0]!r}: it has {quoted(npz)}"
            raise InputError(
                problem,
                file=path,
                remedy=f"this layout needs {', '.join(keys or [*missing])}; check --format",
            )
        arrays = {key: npz[key] for key in (*keys, *optional) if key in npz}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError(
                "a key that is not a numpy array"
            )  # NpzFile gives the bytes of such a member
    return arrays


def _whole(arrays: dict[str, np.ndarray], key: str, path: Path) -> int:
    value = arrays[key]
    if value.size != 1 or value.dtype.kind not in "iu" or not 0 < int(value.reshape(-1)[0]) < 2**31:
        raise InputError(f"{key} is not one whole number from 1", file=path, remedy=FETCH_AGAIN)
    return int(value.reshape(-1)[0])
