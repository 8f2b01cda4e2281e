"""Text files with a caption a row, of fixed layouts: Flickr8k's and Flickr30K's, and SCAN's
folders."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath
from textwrap import shorten

from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption, parts_of_split
from capgrade.schemas.errors import InputError
from capgrade.schemas.image_matching import by_name
from capgrade.schemas.lines import open_table, read_lines
from capgrade.schemas.say import tell
from capgrade.schemas.scan_ids import REPEAT, read_id_rows, read_ids

_LAYOUT = "write each row as file.jpg#k, a tab, the caption"
_TABLE = "use --source tsv, which takes any number of captions per image"
_NOT_LISTED = "captions of images in no list"
# The names of the first and of the last column of Kaggle's tables.
_HEADS = {"image": "caption", "image_name": "comment"}
BARRED = re.compile(r"(?P<image>[^|]+)\|\s*(?P<number>\d+)(?:\s*(?P<bar>\|) ?|\s+)(?P<text>.*)")
ListRow = tuple[str, str, int]  # the split that a list gives an image, the list, and its row


def read_flickr(name: str, params: CaptionsParams, left_out: Counter[str]) -> Iterator[Caption]:
    """Captions of Flickr8k.token.txt, results_20130124.token, or Kaggle's captions.txt or
    results.csv (the first row tells which), in file order. The image id is the file name, the
    caption id `file.jpg#k`.

    Without `params.split_lists` all are in `params.split` or "all". With lists the split is that
    of the list that has the image, with or without its ending, and other captions are left out
    (460 of Flickr8k's). Raises InputError for a malformed row, an image in two lists, and a listed
    image without captions."""
    lists = _read_lists(params.split_lists)
    listed, found = by_name(lists), set[ListRow]()
    for caption in _read_flickr_rows(Path(name), params.split or "all"):
        if not params.split_lists:
            yield caption
            continue
        row_of = listed.get(caption.image_id) or listed.get(PurePath(caption.image_id).stem)
        if row_of is not None:
            found.add(row_of)
            yield replace(caption, split=row_of[0])
        else:
            left_out[_NOT_LISTED] += 1
    for image, row_of in lists.items():
        if row_of in found:
            continue
        _, file, row = row_of
        remedy = f"drop it from the list, or name images as {Path(name).name} does"
        raise InputError(
            f"image '{image}' has no caption in {name}", file=file, row=row, remedy=remedy
        )


def _read_flickr_rows(path: Path, split: str) -> Iterator[Caption]:
    _, first = next(read_lines(path), (1, ""))
    head = [field.strip() for field in re.split(r"[,|]", first)]
    if len(head) < 2 or _HEADS.get(head[0]) != head[-1]:
        yield from _read_token_rows(path, split)
        return
    counts = Counter[str]()
    for row, image, number, text in _read_bar_rows(path) if "|" in first else _read_csv_rows(path):
        if not image or image != image.strip():
            remedy = f"write the picture's file name under {head[0]}"
            raise InputError(f"'{image}' is not a file name", file=path, row=row, remedy=remedy)
        caption_id = f"{image}#{number or counts[image]}"
        yield Caption(image, caption_id, split, text, str(path), row, image_file=image)
        counts[image] += 1


def _read_csv_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for row, values in open_table(path)[1]:
        image, *number, text = values.values()
        yield row, image, "".join(number), text


def _read_bar_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Rows `image| number| caption`. One of Flickr30K's lacks the second bar: `2199200615.jpg| 4
    A dog runs ...`."""
    for row, line in islice(read_lines(path), 1, None):
        if (match := BARRED.fullmatch(line)) is None:
            remedy = "write each row as image| number| caption"
            raise InputError(
                f"{shorten(line, 60)!r} has too few bars", file=path, row=row, remedy=remedy
            )
        if match["bar"] is None:
            tell(
                f"{path} row {row}: the bar behind the number is missing; read as caption"
                f" {match['number']}"
            )
        yield row, match["image"], match["number"], match["text"]


def _read_token_rows(path: Path, split: str) -> Iterator[Caption]:
    for row, line in read_lines(path):
        caption_id, tab, text = line.partition("\t")
        image, hash_sign, number = caption_id.rpartition("#")
        problem = None if tab else "no tab between the caption id and the caption"
        if tab and not (image and image == image.strip() and hash_sign and number.isdecimal()):
            problem = f"'{caption_id}' is not a file name, '#' and a number"
        if problem:
            raise InputError(problem, file=path, row=row, remedy=_LAYOUT)
        yield Caption(image, caption_id, split, text, str(path), row, image_file=image)


def _read_lists(lists: Mapping[str, str]) -> dict[str, ListRow]:
    listed: dict[str, ListRow] = {}
    for split, file in lists.items():
        before = len(listed)
        for row, line in read_lines(Path(file)):
            image = line.strip()
            if not image:
                remedy = "delete the empty row"
                raise InputError("no image in this row", file=file, row=row, remedy=remedy)
            if image in listed:
                problem = f"image '{image}' is already in {listed[image][1]} row {listed[image][2]}"
                raise InputError(problem, file=file, row=row, remedy="keep it in one list, once")
            listed[image] = split, file, row
        if len(listed) == before:
            remedy = "write one file name per row, or leave it out"
            raise InputError("no images in this list", file=file, remedy=remedy)
    return listed


def read_precomp(name: str, params: CaptionsParams, _: Counter[str]) -> Iterator[Caption]:
    """Captions of `{split}_caps.txt` in a folder that SCAN shared, for each of the splits that `+`
    joins; five captions per image, whose ids are `<image id>#<k>`.

    `{split}_ids.txt`, where it exists, has an image id per row of `{split}_ims.npy`, so one per
    image, or the same five times. Without it images are called `{split}-0`, `{split}-1`, ..., as
    `regions --format scan` calls them. CC152K's `{split}_caps.tsv` has the image's id before
    each caption, and one caption an image or more. Raises InputError for a missing split, a number
    of rows that fits neither form, and five rows that do not share one image id."""
    # The ids are COCO's in coco_precomp and `imgid` of Karpathy's JSON in f30k_precomp, never
    # sentence ids: SCAN's util/convert_data.py makes the array from them row by row.
    folder, split = Path(name), params.split
    files = {
        path.stem.removesuffix("_caps"): path
        for pattern in ("*_caps.tsv", "*_caps.txt")
        for path in folder.glob(pattern)
    }
    splits = sorted(files)
    if not splits:
        remedy = "give the folder that holds them as --input"
        problem = "no {split}_caps.txt or {split}_caps.tsv"
        raise InputError(problem, file=folder, remedy=remedy)
    if split is None:
        remedy = f"choose with --split from: {', '.join(splits)}"
        raise InputError("which split is not said", file=folder, remedy=remedy)
    for part in parts_of_split(split, splits, folder):
        path = files[part]
        if path.suffix == ".tsv":
            yield from _read_id_rows(path, part)
            continue
        captions, ids_path = list(read_lines(path)), folder / f"{part}_ids.txt"
        images, times = read_ids(ids_path, len(captions), f"captions of {path.name}", _TABLE)
        if times != REPEAT:
            problem = f"{len(captions)} different ids for {len(captions)} captions"
            remedy = (
                f"give image ids, not sentence ids, each once or {REPEAT} times in a row, or"
                f" {_TABLE}"
            )
            raise InputError(problem, file=ids_path, remedy=remedy)
        for index, (row, text) in enumerate(captions):
            image, k = divmod(index, REPEAT)
            yield Caption(images[image], f"{images[image]}#{k}", part, text, str(path), row)


def _read_id_rows(path: Path, split: str) -> Iterator[Caption]:
    times = Counter[str]()  # captions of each image so far
    for row, image_id, text in read_id_rows(path):
        yield Caption(image_id, f"{image_id}#{times[image_id]}", split, text, str(path), row)
        times[image_id] += 1
