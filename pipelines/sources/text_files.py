"""Text files with a caption a row, of fixed layouts: Flickr8k's and Flickr30K's token files, and SCAN's folders."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from capgrade.schemas.captions import Caption, parts_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_lines
from capgrade.schemas.params import CaptionsParams
from capgrade.schemas.scan_ids import REPEAT, read_ids

LAYOUT = "write each row as file.jpg#k, a tab, the caption"
TABLE = "use --source tsv, which takes any number of captions per image"
logger = logging.getLogger(__name__)
Listed = tuple[str, str, int]  # the split that a list gives an image, the list, and its row


def read_flickr(name: str, params: CaptionsParams) -> Iterator[Caption]:
    """Captions of Flickr8k.token.txt or results_20130124.token in file order; the image id is the file name, the
    caption id `file.jpg#k`.

    Without `params.split_lists` everything is in `params.split`, or "all". With lists the split of a caption is
    the name of the list that has its image, and captions of images in no list are left out: 460 of Flickr8k's,
    one of them of 2258277193_586949ec62.jpg.1, a slip in the file. How many is logged.
    Raises InputError for a malformed row, an image in two lists, and a listed image without captions.
    """
    listed = _read_lists(params.split_lists)
    bare, left_out = dict(listed), 0  # listed images without a caption so far
    for caption in _tokens(name, params.split or "all"):
        if not params.split_lists:
            yield caption
        elif caption.image_id in listed:
            bare.pop(caption.image_id, None)
            yield replace(caption, split=listed[caption.image_id][0])
        else:
            left_out += 1
    for image, (_, file, row) in bare.items():
        remedy = f"drop it from the list, or name images as {Path(name).name} does"
        raise InputError(f"image '{image}' has no caption in {name}", file=file, row=row, remedy=remedy)
    if left_out:
        logger.info("%s: %s captions left out, their images are in no list", name, f"{left_out:,}")


def _tokens(name: str, split: str) -> Iterator[Caption]:
    for row, line in read_lines(Path(name)):
        caption_id, tab, text = line.partition("\t")
        image, hash_sign, number = caption_id.rpartition("#")
        problem = None if tab else "no tab between the caption id and the caption"
        if tab and not (image and image == image.strip() and hash_sign and number.isdecimal()):
            problem = f"'{caption_id}' is not a file name, '#' and a number"
        if problem:
            raise InputError(problem, file=name, row=row, remedy=LAYOUT)
        yield Caption(image, caption_id, split, text, name, row, image_file=image)


def _read_lists(lists: Mapping[str, str]) -> dict[str, Listed]:
    listed: dict[str, Listed] = {}
    for split, file in lists.items():
        before = len(listed)
        for row, line in read_lines(Path(file)):
            image = line.strip()
            if not image:
                raise InputError("no image in this row", file=file, row=row, remedy="delete the empty row")
            if image in listed:
                problem = f"image '{image}' is already in {listed[image][1]} row {listed[image][2]}"
                raise InputError(problem, file=file, row=row, remedy="keep it in one list, once")
            listed[image] = split, file, row
        if len(listed) == before:
            remedy = "write one file name per row, or leave it out"
            raise InputError("no images in this list", file=file, remedy=remedy)
    return listed


def read_precomp(name: str, params: CaptionsParams) -> Iterator[Caption]:
    """Captions of `{params.split}_caps.txt` in a folder that SCAN shared, in file order, five per image; caption ids
    are `<image id>#<k>`. Of several splits joined by `+`, one after the other.

    `{split}_ids.txt`, where it exists, holds image ids, one per row of image features: SCAN's
    util/convert_data.py makes `{split}_ims.npy` from it row by row. So there is one per caption, repeated five
    times, or one per image. They are COCO's image ids in coco_precomp and `imgid` of Karpathy's JSON in f30k_precomp,
    never sentence ids. Without the file, images are called `{split}-0`, `{split}-1` and so on, as `regions import
    --format scan` calls them.
    Raises InputError for a missing split, a count of rows that fits neither form, and five rows that do not
    share one image id.
    """
    folder, split = Path(name), params.split
    splits = sorted(path.name.removesuffix("_caps.txt") for path in folder.glob("*_caps.txt"))
    if not splits:
        raise InputError("no {split}_caps.txt", file=folder, remedy="give the folder that holds them as --input")
    if split is None:
        problem = "which split is not said"
        raise InputError(problem, file=folder, remedy=f"choose with --split from: {', '.join(splits)}")
    for part in parts_of(split, splits, folder):
        path = folder / f"{part}_caps.txt"
        captions, ids = list(read_lines(path)), folder / f"{part}_ids.txt"
        images, times = read_ids(ids, len(captions), f"captions of {path.name}", TABLE)
        if times != REPEAT:
            remedy = f"give image ids, not sentence ids, each once or {REPEAT} times in a row, or {TABLE}"
            raise InputError(f"{len(captions)} different ids for {len(captions)} captions", file=ids, remedy=remedy)
        for index, (row, text) in enumerate(captions):
            image, k = divmod(index, REPEAT)
            yield Caption(images[image], f"{images[image]}#{k}", part, text, str(path), row)
