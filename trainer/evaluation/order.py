"""Rows and columns of somebody else's scores, put into the order of the captions table by their
ids, and what is said where they have none and rank as chance does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capgrade.schemas.arrays import Array, read_npy
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.image_matching import by_name, match_images
from capgrade.schemas.lines import read_json, read_lines

WRITE_IDS = (
    "write one id a line (.txt), a JSON list, or numpy.save(file, numpy.array(ids, dtype=str))"
)
BY_OPTION = "give --row-ids and --column-ids, or .npz with ids"
BY_FILE = "give it as .npz with image_ids and caption_ids"  # For commands without these options.
LEAST_IMAGES = 10  # of fewer the order cannot be told from chance
CHANCE = 3.0  # standard errors that a mean rank is above chance, at most
_FEW = 1000  # captions that an order is tried on


@dataclass(frozen=True)
class MatrixIds:
    """Files with the ids of a matrix's rows (images) and columns (captions); for two tables of
    embeddings, of both."""

    rows: Path | None = None
    columns: Path | None = None


def read_ids(path: Path) -> list[str]:
    """Ids from a text file, one a line, a JSON list, or a one-dimensional .npy. InputError for
    anything else."""
    if path.suffix == ".npy":
        return ids_of(read_npy(path, WRITE_IDS), path)
    if path.suffix == ".json":
        return ids_of(read_json(path), path)
    lines = [line for _, line in read_lines(path)]
    return ids_of(lines[:-1] if lines and not lines[-1] else lines, path)


def ids_of(values: object, path: Path) -> list[str]:
    """Ids, texts or whole numbers, of a list or an array. InputError for anything else."""
    array = np.asarray(values) if isinstance(values, list | np.ndarray) else np.empty(0)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "USiu":
        raise InputError("no list of ids", file=path, remedy=WRITE_IDS)
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.tolist()]
    if "" in texts:
        raise InputError(
            "an empty id", file=path, row=texts.index("") + 1, remedy="give every row its id"
        )
    return texts


def rows_of_images(ids: Sequence[str], captions: Captions, path: Path) -> Array:
    """The place among `ids` of each image of the table, int64 [n_images], by the rule of
    `match_images`. InputError where an image has no id, or two."""
    match = match_images(captions.image_files, ids, path)
    if match.missing:
        raise InputError(
            match.lines("rows")[0], file=path, remedy="give the id of each row, of every image"
        )
    return np.array([match.numbers[image] for image in captions.image_ids], np.int64)


def columns_of_captions(ids: Sequence[str], captions: Captions, path: Path) -> Array:
    """The place among `ids` of each caption of the table, int64 [n_captions]. InputError where a
    caption has no id, or two."""
    where = by_name({name: k for k, name in enumerate(ids)})
    if len(where) < len(ids):
        twice = next(name for k, name in enumerate(ids) if where[name] != k)
        raise InputError(
            f"caption '{twice}' comes twice", file=path, remedy="give each column its own id"
        )
    missing = [name for name in captions.caption_ids if name not in where]
    if missing:
        problem = (
            f"no column of {len(missing):,} of the {captions.n_captions:,} captions: '{missing[0]}'"
            " the first"
        )
        raise InputError(
            problem, file=path, remedy="give the id of each column, of every caption of the split"
        )
    return np.array([where[name] for name in captions.caption_ids], np.int64)


def require_as_many(ids: Sequence[str], size: int, what: str, path: Path) -> None:
    """InputError where a matrix has not as many rows or columns as there are ids."""
    if len(ids) != size:
        raise InputError(
            f"{len(ids)} ids for {size} {what}",
            file=path,
            remedy="give one id for each, in their order",
        )


def order_note(matrix: Array, captions: Captions, remedy: str = BY_OPTION) -> str | None:
    """A note on scores without ids that rank images for a caption as chance does; None for better
    scores."""
    if captions.n_images < LEAST_IMAGES:
        return None
    above, mean = _above_chance(matrix, captions)
    if above >= CHANCE:
        return None
    ranked = f"the mean rank of a caption's image is {mean:.1f} of {captions.n_images}"
    return f"no better than chance: {ranked}: are rows in the table's order? {remedy}"


def _above_chance(matrix: Array, captions: Captions) -> tuple[float, float]:
    """How many standard errors the mean rank of a caption's image is better than chance, images
    being independent; and that mean rank."""
    sample = np.unique(
        np.linspace(0, captions.n_captions - 1, min(_FEW, captions.n_captions)).astype(np.int64)
    )
    scores = np.asarray(matrix[:, sample])
    own = scores[captions.owner[sample], np.arange(len(sample))]
    mean = float(((scores > own).sum(axis=0) + ((scores == own).sum(axis=0) + 1) / 2).mean())
    n, independent = captions.n_images, len(np.unique(captions.owner[sample]))
    return ((n + 1) / 2 - mean) / np.sqrt((n**2 - 1) / 12 / independent), mean
