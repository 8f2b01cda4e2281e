"""Files of captions that are refused, with the row and the remedy. What all sources check alike
stands once."""

from typing import Any

import pytest

from capgrade.schemas.errors import InputError

from .conftest import NAMES, Read
from .test_json_files import ANNOTATIONS, IMAGES, KARPATHY, image
from .test_table import TSV
from .test_text_files import TOKENS

CSV, JSONL = "image_id,caption\n7,A\n", '{"image_id": 7, "caption": "A"}\n'
COCOID = "give every image its cocoid, or none"


def coco(index: int, **fields: Any) -> dict[str, Any]:
    """The document with an annotation's fields changed; None takes a field away."""
    annotation = {k: v for k, v in {**ANNOTATIONS[index], **fields}.items() if v is not None}
    return {
        "images": IMAGES,
        "annotations": [*ANNOTATIONS[:index], annotation, *ANNOTATIONS[index + 1 :]],
    }


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k != key}


REFUSED: dict[str, list[tuple[Any, str]]] = {
    "coco": [
        ("[]", r": no list 'images' -> give a COCO caption file"),
        ({"images": IMAGES}, r": no list 'annotations' -> give a COCO caption file"),
        (
            {"images": [7], "annotations": []},
            r" row images\[0\]: 7 is not a JSON object -> give a COCO",
        ),
        (
            {"images": [{}], "annotations": []},
            r" row images\[0\]: no 'id' \(there is nothing\) -> give a COCO",
        ),
        (
            coco(1, caption=None),
            r" row annotations\[1\]: no 'caption' \(there is image_id, id\) -> .*not instances",
        ),
        (
            coco(1, caption=5),
            r" row annotations\[1\]: 'caption' is 5, not a text -> correct 'caption' there",
        ),
        (coco(1, id=True), r" row annotations\[1\]: 'id' is True, not an id"),
        (
            coco(1, caption="\ud83d"),
            r" row annotations\[1\]: 'caption' is '.ud83d', with half of a surrogate pair",
        ),
        (
            coco(2, image_id=8),
            r" row annotations\[2\]: image 8 is not in 'images' -> list the image or drop",
        ),
        (
            coco(1, image_id=25),
            r" row images\[0\]: image 9 has no caption -> drop the image from 'images'",
        ),
        (
            {"images": [*IMAGES, {"id": "9"}], "annotations": ANNOTATIONS},
            r" row images\[2\]: image 9 is listed twice -> keep one",
        ),
    ],
    "karpathy": [
        ({}, ": no list 'images' -> give one of Karpathy's files"),
        ([image("a", "test")], r" row images\[0\]: image a has no sentences -> drop the image"),
        (
            [without(KARPATHY[0], "sentences")],
            r" row images\[0\]: no 'sentences' .* -> give one of Karpathy's",
        ),
        (
            [image("a", "b") | {"sentences": [{"raw": "A"}]}],
            r" row images\[0\].sentences\[0\]: no 'sentid' \(there",
        ),
        ([image("a", "b", cocoid=[])], r" row images\[0\]: 'cocoid' is \[\], not an id"),
        ([KARPATHY[1], KARPATHY[1]], r" row images\[1\]: image 5 is listed twice -> keep one"),
        (  # COCO's ids beside file names would be ids of two kinds in one table
            [*KARPATHY[:2], without(KARPATHY[2], "cocoid")],
            rf" row images\[2\]: no 'cocoid', which images before this one have -> {COCOID}",
        ),
        (
            [without(KARPATHY[0], "cocoid"), *KARPATHY[1:]],
            rf" row images\[1\]: a 'cocoid', which no images before this one have -> {COCOID}",
        ),
    ],
    "tsv": [
        (
            TSV.replace("\n", "\r"),
            ": rows end with carriage returns alone, as on old Macs -> end them with line feeds",
        ),
        ("", r" row 1: no header -> name the columns in the first row"),
        (
            "image\tcaption\n",
            r" row 1: no column 'image_id' for the image_id -> .*; near it: image; choose from: image, caption",
        ),
        (
            "image_id\ttext\n",
            r" row 1: no column 'caption' for the caption -> .*--columns caption=NAME",
        ),
        ("image_id\tcaption\tcaption\n", r" row 1: column 'caption' comes twice -> rename one"),
        (
            "image_id,caption\n7,A\n",
            r" row 1: one column, 'image_id,caption' -> part columns by tabs",
        ),
        (
            TSV + "9\tA\tbird.\n",
            r" row 5: the row has 3 fields, the header 2 -> a tab inside a field\?",
        ),
        (TSV + "\n", r" row 5: an empty row -> delete it"),
        (
            TSV + "\tA bird.\n",
            r" row 5: 'image_id' is '', not an id, .* -> correct 'image_id' there",
        ),
        (
            TSV + "7 \tA bird.\n",
            r" row 5: 'image_id' is '7 ', with a space around it -> correct 'image_id'",
        ),
    ],
    "csv": [
        (
            "image_id,caption\n7,A dog, brown\n",
            r" row 2: the row has 3 fields, the header 2 -> a comma or quote",
        ),
        (CSV + '8,"B\n9,C\n', r" row 3: not valid CSV: unexpected end of data -> close the quotes"),
        ('image_id,caption\n7,"A"B\n', r" row 2: not valid CSV: .* -> close the quotes"),
        (
            "image_id;caption\n7;A\n",
            r" row 1: one column, 'image_id;caption' -> part columns by commas",
        ),
    ],
    "jsonl": [
        (
            JSONL + '{"image_id": 8}',
            r" row 2: no 'caption' \(there is image_id\) -> give every row the fields of",
        ),
        (JSONL + '{"image_id": 8,', r" row 2: not valid JSON at column 16.* -> correct this row"),
        (JSONL + "\n", r" row 2: an empty row -> delete it"),
        (
            JSONL + '{"caption": 1, "image_id": 8, "caption": 2}',
            r" row 2: 'caption' comes twice in one object -> k",
        ),
        (JSONL + '["A"]', r" row 2: not a JSON object -> write one"),
        (
            '{"image_id": 7}',
            r" row 1: no column 'caption' for the caption -> .*=NAME; choose from: image_id",
        ),
        ('{"image_id": 7, "caption": "A", "split": null}', r" row 1: 'split' is None, not an id"),
        (
            '{"image_id": 7, "caption": "A", "caption_id": null}',
            r" row 1: 'caption_id' is None, not an id",
        ),
        (
            '{"image_id": 7, "caption": ["A", "B"], "caption_id": 1}',
            r" row 1: 1 caption ids in 'caption_id' for 2 captions -> give an id",
        ),
    ],
    "flickr": [
        (
            TOKENS + "b.jpg#0 A cat .\n",
            " row 5: no tab between .* -> write each row as file.jpg#k, a tab",
        ),
        (
            TOKENS + "b.jpg\tA cat .\n",
            " row 5: 'b.jpg' is not a file name, '#' and a number -> write each row",
        ),
        (TOKENS + "b.jpg#one\tA cat .\n", " row 5: 'b.jpg#one' is not a file name"),
        (TOKENS + " b.jpg#0\tA cat .\n", " row 5: ' b.jpg#0' is not a file name"),
        (TOKENS + "#0\tA cat .\n", " row 5: '#0' is not a file name"),
    ],
}


@pytest.mark.parametrize(
    ("source", "content", "message"), [(s, *one) for s, found in REFUSED.items() for one in found]
)
def test_bad_files_are_refused(read: Read, source: str, content: Any, message: str) -> None:
    with pytest.raises(InputError, match=NAMES.get(source, f"captions.{source}") + message):
        read(source, {"images": content} if source == "karpathy" else content)
