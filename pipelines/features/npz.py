"""One npz file per image: MILVLG's layout, and TERN's and TERAN's folders."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from capgrade.pipelines.features.damage import (
    AGAIN,
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
MOST_BYTES = 2**30  # of one image, unpacked: far beyond any, and less than a file made to fill the memory asks for


def read_npz(folder: Path) -> Iterator[Found]:
    """`{image_id}.npz` of a folder in order of name, keys x, bbox, num_bbox, image_h, image_w.

    x is [n, d] as bottom-up-attention.pytorch writes it (utils/extract_utils.py), or [d, n] as in the files of
    MCAN and OpenVQA, whose loaders transpose it; `num_bbox` tells which, [n, d] when both sides fit. `info` is a
    pickled dict, which could run any code when loaded: its bytes are never looked at, so the classes and attributes
    in it are not read. Those that `write_npz` stores as plain arrays are.
    Raises InputError for a damaged file, a missing key, and counts and shapes that do not fit.
    """
    for path in files_in(folder, "*.npz"):
        arrays = _load(path, KEYS, tuple(KEYS_OF_LISTS))
        n, height, width = (_whole(arrays, key, path) for key in ("num_bbox", "image_h", "image_w"))
        x = feature_array(arrays["x"], "x", path)
        if x.ndim == 2 and len(x) != n and x.shape[1] == n:
            x = np.ascontiguousarray(x.T)
        if x.ndim != 2 or len(x) != n:
            problem = f"x of shape {x.shape} where num_bbox is {n}"
            raise InputError(problem, file=path, remedy=f"x is [num_bbox, d] or [d, num_bbox]; {AGAIN}")
        found = {key: name for key, name in KEYS_OF_LISTS.items() if key in arrays}
        lists = {name: exact(arrays[key], LISTS[name], key, path) for key, name in found.items()}
        boxes = box_array(arrays["bbox"], "bbox", path)
        yield Regions(path.name.removesuffix(".npz"), width, height, boxes, x, **lists), path, None


def write_npz(folder: Path, images: Iterable[Regions]) -> int:
    """Write the files that `read_npz` reads, x as [n, d]; returns their number.

    There is no `info`: classes, attributes and confidences are plain arrays named as its entries are, which other
    readers of this layout pass over. InputError for an image without boxes or size.
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
            "x": regions.features, "bbox": regions.boxes, "num_bbox": np.array(len(regions)),
            "image_h": np.array(regions.height), "image_w": np.array(regions.width),
            **{key: values for key, values in lists.items() if values is not None},
        }  # fmt: skip
        with atomic(folder / f"{regions.image_id}.npz") as temporary, temporary.open("wb") as f:
            np.savez_compressed(f, allow_pickle=False, **arrays)
        count += 1
    return count


def read_teran(folder: Path) -> Iterator[Found]:
    """`bu_att/{image_id}.npz` with key feat [n, d] and `bu_box/{image_id}.npy` [n, 4], in order of name.

    The layout of TERN and TERAN (features.py). Image sizes are in their sizes.pkl, a pickle, which is not read:
    width and height are None. Raises InputError for damaged files and when either file of an image is missing.
    """
    features, boxes = folder / "bu_att", folder / "bu_box"
    paths = files_in(features, "*.npz")
    orphans = {p.stem for p in files_in(boxes, "*.npy")} ^ {p.stem for p in paths}
    if orphans:
        image_id = min(orphans)
        missing = features / f"{image_id}.npz" if (boxes / f"{image_id}.npy").exists() else boxes / f"{image_id}.npy"
        problem = f"missing, though image {image_id} has its other file ({len(orphans)} images like this)"
        raise InputError(problem, file=missing, remedy="an image needs both files: copy the rest, or delete the other")
    for path in paths:
        x = feature_array(_load(path, ("feat",))["feat"], "feat", path)
        box_path = boxes / f"{path.stem}.npy"
        with refused(box_path), box_path.open("rb") as f:
            box = np.lib.format.read_array(f, allow_pickle=False)
        wrong = box_path if x.ndim == 2 and box.shape[:1] != x.shape[:1] else path
        yield Regions(path.stem, None, None, box_array(box, "the array", box_path), x), wrong, None


def _load(path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The named arrays of an npz file and nothing else; a pickled one is refused, not loaded."""
    with refused(path), path.open("rb") as f, np.lib.npyio.NpzFile(f, allow_pickle=False) as npz:
        missing = [key for key in keys if key not in npz]
        assert npz.zip is not None
        size = sum(member.file_size for member in npz.zip.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size} bytes when unpacked")
        if missing:
            problem = f"no key {missing[0]!r}: it has {quoted(npz)}"
            raise InputError(problem, file=path, remedy=f"this layout needs {', '.join(keys)}; check --format")
        arrays = {key: npz[key] for key in (*keys, *optional) if key in npz}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a key that is not a numpy array")  # NpzFile gives the bytes of such a member
    return arrays


def _whole(arrays: dict[str, np.ndarray], key: str, path: Path) -> int:
    value = arrays[key]
    if value.size != 1 or value.dtype.kind not in "iu" or not 0 < int(value.reshape(-1)[0]) < 2**31:
        raise InputError(f"{key} is not one whole number from 1", file=path, remedy=AGAIN)
    return int(value.reshape(-1)[0])
