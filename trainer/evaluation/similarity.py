"""The similarity of images and captions, from files of scores or of embeddings, each checked
against the captions table."""

import codecs
import csv
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from capgrade.schemas.arrays import Array, as_numpy, map_npy, read_npz, row_parts
from capgrade.schemas.arrow import ArrowFile
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    check_sizes,
    digest,
    file_digest,
    parse_manifest,
)
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading
from capgrade.schemas.scan_ids import REPEAT
from capgrade.trainer.evaluation.order import (
    BY_FILE,
    MatrixIds,
    columns_of_captions,
    ids_of,
    order_note,
    read_ids,
    require_as_many,
    rows_of_images,
)
from capgrade.trainer.fit import MODEL
from capgrade.trainer.stages.embed import EMBED

_FORMATS = ".npy, .npz, .pt or .pth (torch), .arrow, .csv"
_GIVE = f"give {_FORMATS}"
_FIRST_LINE = 2**16  # bytes of a CSV that hold its first field
ITEMS = "items.json"  # of `capgrade embed`
_IN_MEMORY = 2**28  # cosines: 1 GB
_PRODUCT = 2**24  # cosines that are computed at a time

log = logging.getLogger(__name__)


def select_items(matrix: Array, images: Array | None, kept: Array | None) -> Array:
    """Of a matrix [n_images, n_captions] these images and caption rows; all where None."""
    if images is not None and len(images) < len(matrix):
        return matrix[np.ix_(images, np.arange(matrix.shape[1]) if kept is None else kept)]
    return matrix if kept is None or len(kept) == matrix.shape[1] else matrix[:, kept]


def read_similarity(path: Path, captions: Captions, ids: MatrixIds | None = None) -> Array:
    """Similarity, images x captions in the order of the captions table, from any of `FORMATS`.

    An Arrow file has a column `image_id`, checked, and one fixed-size list per row; a .csv file has
    numbers, or ids too (`read_csv`). With `ids`, or image_ids and caption_ids beside it in an .npz,
    rows and columns may be in any order, and more than the table's. One of `capgrade
    embed` must be finished, of these captions, and of the model of the run that it lies in. Images
    that the run was made without get -inf, as their captions do. NaN is an InputError that names
    the pair. -inf ranks below and +inf above every number: a model that leaves pairs out may score
    them -inf.
    """
    _require_current(path, captions)
    if without := images_left_out(path):
        images = np.array([image_id not in without for image_id in captions.image_ids])
        rows = images[captions.owner]
        scored = read_similarity_of(path, captions.of_rows(np.flatnonzero(rows)), ids)
        kind = np.result_type(scored.dtype, np.float32)
        full = np.full((captions.n_images, captions.n_captions), -np.inf, kind)
        full[np.ix_(images, rows)] = scored
        return full
    return read_similarity_of(path, captions, ids)


def images_left_out(path: Path) -> dict[str, str]:
    """The images that a similarity of `capgrade embed` was made without, and why; none for
    any other."""
    if not (path.parent / MANIFEST).is_file():
        return {}
    manifest = parse_manifest(path.parent / MANIFEST)
    left_out = (
        manifest.get("left_out") or []
        if manifest["kind"] == EMBED.name and path.name in manifest["files"]
        else []
    )
    return {image["image_id"]: image["reason"] for image in left_out}


def note_of_order(paths: Sequence[Path], matrix: Array, captions: Captions) -> str | None:
    """`order_note` on a matrix of whole files, for a command that takes no ids; None for files with
    ids."""
    return None if any(map(has_ids, paths)) else order_note(matrix, captions, BY_FILE)


def read_similarity_of(path: Path, captions: Captions, ids: MatrixIds | None = None) -> Array:
    """A file with a row for each of these images and a column for each caption. Errors as
    `read_similarity`."""
    matrix = _read_matrix(path, captions.image_ids, "image_id", captions.caption_ids)
    expected = (captions.n_images, captions.n_captions)
    # Before rows are counted: with five captions an image it has five rows an image.
    if matrix.shape == expected[::-1] != expected:
        problem = f"{matrix.shape} scores are captions x images, not {expected} (images x captions)"
        raise InputError(problem, file=path, remedy="transpose it: numpy.save(file, scores.T)")
    matrix = _place_by_ids(matrix, path, captions, ids)
    # A matrix with ids has one row an image already, and stays as it is.
    matrix = _drop_repeated_rows(matrix, captions.n_images, path)
    if matrix.shape != expected:
        raise InputError(
            f"{matrix.shape} scores, not {expected} (images x captions)",
            file=path,
            remedy="score the same captions table",
        )
    # Row by row, as the matrix may lie in a file that is larger than memory.
    bad = np.flatnonzero(np.concatenate([np.isnan(rows).any(axis=1) for rows in row_parts(matrix)]))
    if bad.size:
        caption = int(np.flatnonzero(np.isnan(matrix[bad[0]]))[0])
        pair = f"image '{captions.image_ids[bad[0]]}', caption '{captions.caption_ids[caption]}'"
        raise InputError(
            f"NaN for {pair}, {bad.size} such rows", file=path, remedy="score every pair"
        )
    return matrix


def mean_similarity(
    paths: Sequence[Path],
    captions: Captions,
    ids: MatrixIds | None = None,
    images: Array | None = None,
    kept: Array | None = None,
) -> Array:
    """The mean of similarities, as SCAN, SGRAF and BCLS average those of two models; of one file,
    what it holds.

    Each is read by `read_similarity`. InputError for the same matrix twice, and for one with an
    infinite score beside others: a mean would leave a pair out that another model ranked. With
    `images` and `kept`, of these images and caption rows alone.
    """
    matrices = [select_items(read_similarity(path, captions, ids), images, kept) for path in paths]
    if len(matrices) == 1:
        return matrices[0]
    first_with: dict[str, Path] = {}
    for path, matrix in zip(paths, matrices, strict=True):
        twin = first_with.setdefault(file_digest(path), path)
        if twin is not path:
            raise InputError(
                f"the same matrix as {twin}", file=path, remedy="give each model's similarity once"
            )
        if not np.isfinite(matrix).all():
            row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
            image = captions.image_ids[row if images is None else images[row]]
            problem = f"an infinite score for image '{image}', and a mean with others is asked for"
            raise InputError(
                problem,
                file=path,
                remedy="score every pair with a number, or evaluate this one alone",
            )
    # The mean of float64 is float64: float32 would make ties of scores that differ.
    total = np.zeros(matrices[0].shape, np.result_type(np.float32, *matrices))
    for matrix in matrices:
        total += matrix
    return total / len(matrices)


def coarse_note(path: Path) -> str | None:
    """What a similarity of `capgrade embed` with `coarse` leaves out, as a note; None for
    any other."""
    if not (path.parent / MANIFEST).is_file():
        return None
    manifest = parse_manifest(path.parent / MANIFEST)
    params = manifest["params"][EMBED.name] if manifest["kind"] == EMBED.name else {}
    if not params.get("coarse"):
        return None
    top = params["coarse_top"]
    return (
        f"{path.name}: only the {top} best pairs of each image and caption by a coarse model were"
        " scored"
    )


def _require_current(path: Path, captions: Captions) -> None:
    """InputError for a similarity of `capgrade embed` that is not of what is evaluated."""
    folder, remedy = path.parent, "run `capgrade embed` again"
    if not (folder / MANIFEST).is_file():
        if (folder / ITEMS).is_file():
            raise InputError(
                f"no {MANIFEST} beside it: of an unfinished run", file=path, remedy=remedy
            )
        return
    manifest = parse_manifest(folder / MANIFEST, remedy)
    if manifest["kind"] != EMBED.name or path.name not in manifest["files"]:
        return
    check_sizes(folder, {path.name: manifest["files"][path.name]}, remedy)
    inputs, model = manifest["inputs"], folder.parent / manifest.get("weights", MODEL)
    if (inputs["captions"], inputs["split"]) != (captions.digest, captions.split):
        problem = (
            f"made from other captions, or another split than '{captions.split}'"
            f" ('{inputs['split']}')"
        )
        raise InputError(
            problem, file=path, remedy=f"{remedy}, or evaluate the split it was made from"
        )
    if model.is_file() and digest(model) != inputs["model"]:
        raise InputError(f"made from another model than {model}", file=path, remedy=remedy)


def similarity_of(
    images: Path, texts: Path, captions: Captions, ids: MatrixIds | None = None
) -> Array:
    """Cosines of two embedding tables (n_images, d) and (n_captions, d), from any of `FORMATS`,
    float32.

    Arrow tables have a column `image_id` or `caption_id`, checked, and one fixed-size list per row.
    With `ids`, or image_ids or caption_ids in an .npz, rows may be in any order.
    """
    rows, columns = (ids.rows, ids.columns) if ids else (None, None)
    left = _read_matrix(images, captions.image_ids, "image_id")
    left = _drop_repeated_rows(
        _place_by_ids(left, images, captions, MatrixIds(rows)), captions.n_images, images
    )
    left = _normalise(left, images, captions.n_images)
    right = _read_matrix(texts, captions.caption_ids, "caption_id")
    right = _place_by_ids(right.T, texts, captions, MatrixIds(columns=columns)).T
    right = _normalise(right, texts, captions.n_captions)
    if left.shape[1] != right.shape[1]:
        problem = f"embeddings of {left.shape[1]} dimensions beside {right.shape[1]}"
        raise InputError(problem, file=texts, remedy="use the tables of one model")
    return cosine_matrix(left, right)


def cosine_matrix(left: Array, right: Array) -> Array:
    """left @ right.T, float32. A large one lies in a file that nobody else sees, and that ends with
    the process: of 29,000 images and 145,000 captions it has 17 GB."""
    if len(left) * len(right) <= _IN_MEMORY:
        return np.asarray(left @ right.T)
    shape, step = (len(left), len(right)), max(1, _PRODUCT // len(right))
    with tempfile.TemporaryFile() as file:
        for start in range(0, len(left), step):
            cosines = np.ascontiguousarray(left[start : start + step] @ right.T, np.float32)
            file.write(cosines.data)
        file.flush()
        return np.memmap(file, np.float32, "r", shape=shape)


def _drop_repeated_rows(matrix: Array, images: int, path: Path) -> Array:
    """One row an image of a table that has each row five times in turn, as VSE++ dumps them; any
    other table as it is. A log line says so. InputError for five rows that differ."""
    if len(matrix) != images * REPEAT or not images:
        return matrix
    for first in range(0, len(matrix), REPEAT):
        if not (matrix[first : first + REPEAT] == matrix[first]).all():
            problem = (
                f"{len(matrix)} rows for {images} images, and rows {first} to {first + REPEAT - 1}"
                " differ"
            )
            raise InputError(
                problem, file=path, remedy="give one row an image, or five equal rows in turn"
            )
    log.info("%s: each image has %d equal rows in turn, taken as one", path.name, REPEAT)
    return matrix[::REPEAT]


def _normalise(vectors: Array, path: Path, rows: int) -> Array:
    if len(vectors) != rows:
        raise InputError(
            f"{len(vectors)} embeddings for {rows} ids",
            file=path,
            remedy="embed the same captions table",
        )
    # float16 is too coarse to add up squares.
    vectors = vectors.astype(np.float32) if vectors.dtype == np.float16 else vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        row = int(np.argmin(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
        raise InputError(
            "embedding is zero, infinite or NaN", file=path, row=str(row), remedy="embed it again"
        )
    return np.asarray(vectors / lengths, dtype=np.float32)


_IDS = ("image_ids", "caption_ids")  # in an .npz, beside its matrix


def has_ids(path: Path) -> bool:
    """Whether a file's rows or columns were checked, or placed, by ids: one with ids, or of
    `embed`."""
    if path.suffix == ".npz":
        return bool(read_npz(path, _names_of_ids, remedy=_GIVE))
    if path.suffix == ".csv":
        with open_bytes(path) as file:
            first = file.readline(_FIRST_LINE).removeprefix(codecs.BOM_UTF8)
        return not _is_number(first.partition(b",")[0].decode("utf-8", "replace"))
    return path.suffix == ".arrow" or (path.parent / MANIFEST).is_file()


def _place_by_ids(matrix: Array, path: Path, captions: Captions, ids: MatrixIds | None) -> Array:
    """A matrix with rows and columns in the order of the captions table, by the ids given or in the
    .npz itself."""
    files = ids or MatrixIds()
    sources: list[Path | None] = [files.rows, files.columns]
    known = [None if source is None else read_ids(source) for source in sources]
    if path.suffix == ".npz":
        arrays = read_npz(path, _names_of_ids, remedy=_GIVE)
        for axis, name in enumerate(_IDS):
            if name in arrays and known[axis] is None:
                known[axis], sources[axis] = ids_of(arrays[name], path), path
    places = (rows_of_images, columns_of_captions)
    for axis, (names, source, place) in enumerate(zip(known, sources, places, strict=True)):
        if names is not None and source is not None:
            require_as_many(names, matrix.shape[axis], ("rows", "columns")[axis], source)
            matrix = np.take(matrix, place(names, captions, source), axis)
    return matrix


def _names_of_ids(names: list[str]) -> list[str]:
    return [name for name in _IDS if name in names]


def _read_npz(path: Path) -> Array:
    """The one matrix of an .npz; of several, `similarity`."""

    def choose(names: list[str]) -> list[str]:
        others = [name for name in names if name not in _IDS]
        if "similarity" in others:
            return ["similarity"]
        if len(others) != 1:
            remedy = "name one `similarity`, and ids image_ids and caption_ids"
            raise InputError(f"arrays {', '.join(others) or 'none'}", file=path, remedy=remedy)
        return others

    (matrix,) = read_npz(path, choose, remedy=_GIVE).values()
    return matrix


def _read_matrix(
    path: Path, ids: Sequence[str], column: str, names: Sequence[str] | None = None
) -> Array:
    open_bytes(path).close()
    if path.suffix == ".arrow":
        return _read_arrow(path, ids, column)
    if path.suffix == ".csv":
        return read_csv(path, ids, names)
    if path.suffix in (".pt", ".pth"):
        from capgrade.pickles import read_torch

        content = read_torch(path)
        with reading(path, remedy=_GIVE):
            matrix = as_numpy(content)
    elif path.suffix == ".npz":
        matrix = _read_npz(path)
    else:
        matrix = map_npy(path, _GIVE)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise InputError(
            "holds no matrix of numbers", file=path, remedy="save one two-dimensional array"
        )
    return matrix


def _read_arrow(path: Path, ids: Sequence[str], column: str) -> Array:
    table = ArrowFile(path).read_all()
    lists = [field.name for field in table.schema if pa.types.is_fixed_size_list(field.type)]
    if column not in table.schema.names or len(lists) != 1:
        problem = f"columns {', '.join(table.schema.names)}"
        raise InputError(
            problem, file=path, remedy=f"write {column} and one fixed-size list of numbers"
        )
    stored_ids = [str(value) for value in table[column].to_pylist()]
    if stored_ids != list(ids):
        row = next(
            (k for k, (a, b) in enumerate(zip(stored_ids, ids, strict=False)) if a != b),
            min(len(stored_ids), len(ids)),
        )
        problem = (
            f"{column}s are not those of the captions table in its order ({len(stored_ids)} against"
            f" {len(ids)})"
        )
        raise InputError(
            problem,
            file=path,
            row=str(row),
            remedy="write the rows in the order of the captions table",
        )
    values = table[lists[0]].combine_chunks()
    return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(stored_ids), -1)


_PLAIN = "np.savetxt(file, matrix, delimiter=',') writes one that is read"


def read_csv(path: Path, ids: Sequence[str], names: Sequence[str] | None) -> Array:
    """float64 [rows, columns] of numbers between commas. Rows end with a line feed, a carriage
    return, or both.

    A file whose first field is no number has ids: a first row of `names` and a first column of
    `ids`, both in their order (`DataFrame(matrix, ids, names).to_csv`). Without `names` a file has
    numbers alone. InputError that names the row: for a field that is no number, a row of another
    length, another id, and for an empty file.
    """
    rows: list[Array] = []
    labelled = None
    try:
        with path.open(encoding="utf-8-sig") as file:  # any line end
            reader = csv.reader(file, skipinitialspace=True)
            for fields in reader:
                row = reader.line_num
                if len(fields) < 2 and not "".join(fields).strip():
                    continue
                if labelled is None:
                    labelled = names is not None and not _is_number(fields[0])
                    if labelled and names is not None:
                        _require_ids(fields[1:], names, path, row, "column")
                        continue
                if labelled:
                    _require_ids(
                        fields[:1], ids[len(rows) : len(rows) + 1] or fields[:1], path, row, "row"
                    )
                    fields = fields[1:]
                try:
                    rows.append(np.array(fields, np.float64))
                except ValueError:
                    at, field = next((k, f) for k, f in enumerate(fields, 1) if not _is_number(f))
                    problem = f"field {at} is {field.strip()!r}, not a number"
                    raise InputError(problem, file=path, row=row, remedy=_PLAIN) from None
                if len(rows[-1]) != len(rows[0]):
                    problem = f"{len(rows[-1])} numbers, in the first row {len(rows[0])}"
                    raise InputError(problem, file=path, row=row, remedy="give every row as many")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text ({error.reason})", file=path, remedy=_PLAIN) from None
    except csv.Error as error:
        raise InputError(f"not a CSV file ({error})", file=path, remedy=_PLAIN) from None
    if not rows:
        raise InputError(
            "a header without rows" if labelled else "holds no numbers", file=path, remedy=_PLAIN
        )
    return np.stack(rows)


def _is_number(text: str) -> bool:
    """What numpy reads as a float."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require_ids(
    stored: Sequence[str], ids: Sequence[str], path: Path, row: int, what: str
) -> None:
    stored, ids = ([name.strip() for name in names] for names in (stored, ids))
    if stored == ids:
        return
    pairs = zip(stored, ids, strict=False)
    problem = next(
        (f"'{a}' where '{b}' is expected" for a, b in pairs if a != b),
        f"{len(stored)}, not {len(ids)}",
    )
    remedy = (
        "write images x captions with the ids of the captions table in its order, or numbers"
        f" alone: {_PLAIN}"
    )
    raise InputError(f"ids of the {what}s: {problem}", file=path, row=row, remedy=remedy)
