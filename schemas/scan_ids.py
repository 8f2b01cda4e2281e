"""SCAN's `{split}_ids.txt`, which names the images of its captions and of its features."""

from collections import Counter
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_lines

REPEAT = 5  # captions of an image; SCAN's dev and test files hold its features once a caption


def read_ids(
    path: Path, rows: int, what: str, otherwise: str | None = None
) -> tuple[list[str], int]:
    """One id per image, and how many of the `rows` (of `what`) in turn it has: 1 or 5.

    The file has one id per row, with every id five times in turn when rows are repeated; or one per
    image for repeated rows; or one per caption, five in turn, for rows that are not. SCAN's data.py
    tells them apart by the count too (`im_div`). Without the file the ids are those of CC152K's
    `{split}_caps.tsv`. Without that images are called `{split}-0`, `{split}-1`, ..., and rows of
    `{split}_caps.txt` are counted instead. InputError for any
    other count, with the remedy `otherwise`, and for an id that comes again.
    """
    if not path.is_file():
        return _numbered(
            path, rows, what, otherwise or f"give {path.name}, which tells the images apart"
        )
    ids = [line.strip() for _, line in read_lines(path)]
    if "" in ids:
        remedy = "delete the empty row or write the image's id"
        raise InputError("no id in this row", file=path, row=ids.index("") + 1, remedy=remedy)
    return match_ids(ids, rows, what, path)


def match_ids(ids: list[str], rows: int, what: str, path: Path) -> tuple[list[str], int]:
    """As `read_ids`, of ids that are read already from `path`."""
    fives = len(ids) % REPEAT == 0 and all(ids[k] == ids[k - k % REPEAT] for k in range(len(ids)))
    unique = ids[::REPEAT] if fives else ids
    if not ids or rows not in (len(unique), len(unique) * REPEAT):
        problem = f"{len(ids)} ids ({len(unique)} images) for {rows} {what}"
        raise InputError(
            problem, file=path, remedy=f"give one id per row, or one for every {REPEAT} rows"
        )
    twice = {image_id: times for image_id, times in Counter(unique).items() if times > 1}
    for image_id, times in sorted(
        twice.items(), key=lambda one: one[1] == REPEAT
    ):  # five times may be right
        problem = (
            f"image {image_id} comes {times} times, neither once nor {REPEAT} times in turn like"
            " every other"
        )
        raise InputError(
            problem,
            file=path,
            row=ids.index(image_id) + 1,
            remedy="give image ids, each in one place",
        )
    return unique, rows // len(unique)


def read_id_rows(path: Path) -> list[tuple[int, str, str]]:
    """Row, image id and caption of each line of CC152K's `{split}_caps.tsv`. InputError for a line
    without a tab, or without an id."""
    rows = []
    for row, line in read_lines(path):
        image_id, tab, text = line.partition("\t")
        if not tab or not image_id.strip():
            remedy = "write each row as the image's id, a tab, the caption"
            raise InputError("no image id and caption", file=path, row=row, remedy=remedy)
        rows.append((row, image_id.strip(), text.partition("\t")[0].strip()))
    return rows


def _numbered(path: Path, rows: int, what: str, remedy: str) -> tuple[list[str], int]:
    split = path.name.removesuffix("_ids.txt")
    if (table := path.with_name(f"{split}_caps.tsv")).is_file():
        return match_ids([image_id for _, image_id, _ in read_id_rows(table)], rows, what, table)
    captions = path.with_name(f"{split}_caps.txt")
    if not captions.is_file():
        problem = f"no such file, and no {captions.name} that says how many {what} are one image"
        raise InputError(problem, file=path, remedy="give the image ids, one a row")
    count = sum(1 for _ in read_lines(captions))
    if rows not in (count, count / REPEAT) or count % REPEAT or not rows:
        problem = f"{count} captions, {REPEAT} an image, for {rows} {what}"
        raise InputError(problem, file=captions, remedy=remedy)
    images = count // REPEAT
    return [f"{split}-{k}" for k in range(images)], rows // images
