"""Lists of pictures from folders, text files and captions folders, the sizes in headers, and what
is refused."""

from pathlib import Path

import pytest
from PIL import Image

from capgrade.pictures.listing import read_pictures
from capgrade.pictures.picture import Picture
from capgrade.pipelines.captions import captions
from capgrade.pipelines.stages.captions import CaptionsParams, ScenesParams
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.errors import InputError

PNG = b"\x89PNG\r\n\x1a\n"  # how one begins


def test_a_list_is_in_its_own_order_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    """A line feed alone ends a line, and the mark of UTF-8 that Windows writes is no part of an
    id."""
    (tmp_path / "in").mkdir()
    for name, grey in (("0", 0), ("4\u20284", 4)):
        Image.new("L", (3, 2), grey).save(tmp_path / "in" / f"{name}.png")
    (tmp_path / "list.txt").write_text(
        f"\ufeffb\t{tmp_path}/in/4\u20284.png\na\tin/0.png\n", encoding="utf-8"
    )
    found = [
        (picture.image_id, picture.decode()[0].max())
        for picture in read_pictures(tmp_path / "list.txt")
    ]
    assert found == [("b", 4), ("a", 0)]


def test_folders_below_are_looked_into_and_a_picture_is_itself(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "a/3.png", "1.webp", "a/.hidden.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    assert [p.image_id for p in read_pictures(tmp_path)] == ["1", "3", "2"]
    assert [p.image_id for p in read_pictures(tmp_path / "b/2.JPG")] == ["2"]


def test_pictures_of_a_captions_folder(tmp_path: Path) -> None:
    captions(tmp_path, CaptionsParams(scenes=ScenesParams(train=2, val=1, test=0, size=64)))
    found = read_pictures(tmp_path)
    assert [p.image_id for p in found] == read_arrow(tmp_path / "images.arrow")[
        "image_id"
    ].to_pylist()
    assert (
        all(p.decode()[0].shape == (64, 64, 3) for p in found)
        and len({p.decode()[1] for p in found}) == 3
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"list.txt": "a\tx.jpg\n\nb\ty.jpg"},
            "list.txt row 2: not image_id<TAB>path -> write one picture a line",
        ),
        ({"list.txt": "a\tx\0.jpg"}, "list.txt row 1: not image_id<TAB>path"),
        (
            {"list.txt": "a\tx.jpg\na\ty.jpg"},
            "y.jpg: image 'a' is .*x.jpg too -> give every image an id of its own",
        ),
        ({"list.txt": "a \tx.jpg"}, "x.jpg: image id 'a ': visible characters"),
        ({"list.txt": ""}, "list.txt: no picture -> give pictures: JPEG, PNG"),
        ({"list.txt": b"\xff\xfe\xff\xe0"}, "list.txt: no picture, and not text in UTF-8"),
        ({"in/a.jpg": PNG, "in/a.png": PNG}, r"a.png: image 'a' is a.jpg too"),
        ({}, "none: no such file or folder"),
    ],
)
def test_bad_lists(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    first = next(iter(files), "none").partition("/")[0]
    with pytest.raises(InputError, match=message):
        read_pictures(tmp_path / first)


def test_header_sizes(tmp_path: Path) -> None:
    """As pictures are decoded: some lie on their side."""
    exif = Image.Exif()
    for suffix in ("jpg", "png", "webp"):
        for turn in (1, 6):
            exif[0x0112] = turn
            Image.new("RGB", (9, 6)).save(tmp_path / f"{suffix}{turn}.{suffix}", exif=exif)
    for picture in read_pictures(tmp_path):
        height, width = picture.decode()[0].shape[:2]
        assert (
            picture.size()
            == (width, height)
            == ((6, 9) if picture.image_id.endswith("6") else (9, 6))
        )
    (tmp_path / "notes.txt").write_text("not a picture")
    assert Picture("x", str(tmp_path / "notes.txt")).size() is None
