"""Pictures where people hold them: folders with links and other things in them, zips, tars, Parquet
files, datasets."""

import io
import json
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from capgrade.pictures.listing import ImageColumns, list_pictures, match_pictures, read_pictures
from capgrade.pictures.picture import FORMATS, STARTS_WITHIN, is_picture
from capgrade.pipelines.regions import regions
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.dataset_files import split_of
from capgrade.schemas.errors import InputError


def picture(grey: int, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.new("L", (4, 3), grey).save(data, kind)
    return data.getvalue()


def greys(source: str | Path) -> dict[str, int]:
    """By path, the grey of each picture as it is decoded, also after it was sent about."""
    return {
        str(one.path): int(pickle.loads(pickle.dumps(one)).decode()[0].max())
        for one in list_pictures(source)
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_is_known_by_its_first_bytes(kind: str) -> None:
    assert is_picture(picture(9, kind)[:STARTS_WITHIN])


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>404</html>", b"BMW is a car, not it", b"P is for picture", b"\x89PN", b"PK\3\4"],
)
def test_other_bytes_are_no_picture(text: bytes) -> None:
    assert not is_picture(text[:STARTS_WITHIN])


def test_the_content_decides_and_the_rest_is_counted_by_reason(tmp_path: Path) -> None:
    files = {
        "a.jpg": picture(1),
        "b.jfif": picture(2, "JPEG"),
        "c.jpg_large": picture(3),
        "d": picture(4),
        "e/f.txt": picture(5),
        "damaged.jpg": picture(6, "JPEG")[:40],
        "gone.jpg": b"<html>404</html>",
        "notes.txt": b"a note",
        "captions.csv": b"image,caption\n",
        "photo.heic": b"\0\0\0\x18ftypheic",
        "photo.avif": b"\0\0\0\x1cftypavif",
        "pointer.jpg": b"version https://git-lfs.github.com/spec/v1\noid sha256:",
        "@eaDir/a.jpg/SYNO_THUMB.jpg": picture(7),
        ".ipynb_checkpoints/a-checkpoint.jpg": picture(8),
        "__MACOSX/._a.jpg": picture(9),
        "._a.jpg": b"\0\5\x16\7",
        ".hidden/g.jpg": picture(10),
        "README": b"read me",
    }
    write(tmp_path, files)
    (tmp_path / "dir.jpg").mkdir()
    found = list_pictures(tmp_path)
    assert [one.path for one in found] == [
        "a.jpg",
        "b.jfif",
        "c.jpg_large",
        "d",
        "damaged.jpg",
        "e/f.txt",
    ]
    assert {reason: sorted(names) for reason, names in found.not_taken.items()} == {
        "no picture by content": ["README", "gone.jpg"],
        "in HEIC, which is not read": ["photo.heic"],
        "in AVIF, which is not read": ["photo.avif"],
        "pointers of Git LFS, not files (git lfs pull)": ["pointer.jpg"],
        "other files": ["captions.csv", "notes.txt"],
        "thumbnails": [".ipynb_checkpoints/", "@eaDir/", "__MACOSX/"],
        "hidden": ["._a.jpg", ".hidden/"],
    }
    assert "not taken: 2 other files: captions.csv, notes.txt" in found.lines()


def test_links_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path / "disk", {"x/1.jpg": picture(1), "2.jpg": picture(2)})
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "x").symlink_to(tmp_path / "disk" / "x")
    (folder / "2.jpg").symlink_to(tmp_path / "disk" / "2.jpg")
    (folder / "back").symlink_to(folder)
    (folder / "broken.jpg").symlink_to(tmp_path / "nothing")
    assert greys(folder) == {"x/1.jpg": 1, "2.jpg": 2}
    (folder / "3.jpg").write_bytes(picture(3))
    (folder / "same.jpg").symlink_to(folder / "3.jpg")
    found = list_pictures(folder)
    assert [one.path for one in found] == [
        "2.jpg",
        "3.jpg",
        "same.jpg",
        "x/1.jpg",
    ], "by each of its names"
    assert found.not_taken["seen before by a link"] == ["back/"]
    assert found.not_taken["cannot be read"] == ["broken.jpg"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_counted(tmp_path: Path) -> None:
    write(tmp_path, {"a.jpg": picture(1), "closed/b.jpg": picture(2)})
    (tmp_path / "closed").chmod(0)
    try:
        assert list_pictures(tmp_path).not_taken == {"cannot be read": ["closed/"]}
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_an_error_of_the_system_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root sees no folder that may not be read."""
    write(tmp_path, {"a.jpg": picture(1), "closed/b.jpg": picture(2)})
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert list_pictures(tmp_path).not_taken == {"cannot be read": ["closed/"]}


def test_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for name, data in {
            "in/1.jpg": picture(1),
            "in/2": picture(2),
            "__MACOSX/in/._1.jpg": picture(3),
            "a.txt": b"x",
        }.items():
            packed.writestr(name, data)
    assert greys(tmp_path / "x.zip") == {"in/1.jpg": 1, "in/2": 2}
    assert list_pictures(tmp_path / "x.zip").not_taken == {
        "thumbnails": ["__MACOSX/in/._1.jpg"],
        "other files": ["a.txt"],
    }


def tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as packed:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))


def test_tars_are_read_in_their_place(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    tar(
        folder / "00000.tar",
        {"001.jpg": picture(1), "001.txt": b"a dog", "002.jpg": b"<html>", "002.txt": b"a cat"},
    )
    tar(folder / "00001.tar", {"sub/003.png": picture(3), "sub/003.json": b"{}"})
    (tmp_path / "tars.txt").write_text("shards/00000.tar\nshards/00001.tar\n")
    for source in (folder, f"{folder}/{{00000..00001}}.tar", tmp_path / "tars.txt"):
        found = list_pictures(source)
        assert [(one.image_id, one.path) for one in found] == [
            ("001", "001.jpg"),
            ("sub/003", "sub/003.png"),
        ]
        assert greys(source) == {"001.jpg": 1, "sub/003.png": 3}
        assert found.not_taken == {"no picture by content": ["002.jpg"]}
    with tarfile.open(tmp_path / "packed.tar", "w:gz"):
        pass
    with pytest.raises(InputError, match="a compressed tar -> decompress it"):
        list_pictures(tmp_path / "packed.tar")


ROWS = [{"bytes": picture(k), "path": f"{k}.jpg"} for k in range(1, 6)]


def test_parquet_files_are_read_row_group_by_row_group(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(
        pa.table({"image": ROWS[:3], "n": [1, 2, 3]}),
        folder / "train-00000-of-00002.parquet",
        row_group_size=2,
    )
    pq.write_table(
        pa.table({"image": ROWS[3:], "n": [4, 5]}),
        folder / "train-00001-of-00002.parquet",
        row_group_size=2,
    )
    assert greys(tmp_path) == {f"{k}.jpg": k for k in range(1, 6)}
    assert [one.image_id for one in read_pictures(folder)] == ["1", "2", "3", "4", "5"]
    assert list(greys(folder / "train-00001-of-00002.parquet").values()) == [4, 5]


def test_what_a_row_is_called(tmp_path: Path) -> None:
    """By image_id; by the path; by a column of files; else by its row in its split, through all
    files."""
    nameless = [{"bytes": row["bytes"], "path": None} for row in ROWS]
    cases = {
        "ids": ({"image": ROWS, "image_id": [9, 8, 7, 6, 5]}, [("9", "1.jpg"), ("8", "2.jpg")]),
        "elsewhere": (
            {"image": [{**row, "path": f"/other/machine/{row['path']}"} for row in ROWS]},
            [("1", "1.jpg")],
        ),
        "files": (
            {"image": nameless, "filename": [f"f{k}.png" for k in range(5)]},
            [("f0", "f0.png")],
        ),
        "none": ({"image": nameless}, [("test-0", "test-0"), ("test-1", "test-1")]),
        "bytes": ({"jpg": [row["bytes"] for row in ROWS]}, [("test-0", "test-0")]),
    }
    for name, (columns, expected) in cases.items():
        path = tmp_path / name / "test-00000-of-00001.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table(columns), path)
        found = list_pictures(path)
        assert [(one.image_id, one.path) for one in found][: len(expected)] == expected, name
        assert [int(one.decode()[0].max()) for one in found] == [1, 2, 3, 4, 5]
    pq.write_table(pa.table({"a": ROWS, "b": ROWS}), tmp_path / "two.parquet")
    with pytest.raises(
        InputError,
        match=r"several columns of pictures: a, b -> call .*rename_column\('a', 'image'\)$",
    ):
        list_pictures(tmp_path / "two.parquet")
    with pytest.raises(
        InputError, match="several columns of pictures: a, b -> choose one: --set regions.image_col"
    ):
        regions(tmp_path / "two.parquet", tmp_path / "out", RegionsParams())
    pq.write_table(
        pa.table({"a": ROWS, "b": ROWS}).rename_columns(["image", "b"]), tmp_path / "two.parquet"
    )
    assert len(list_pictures(tmp_path / "two.parquet")) == 5
    pq.write_table(pa.table({"n": [1]}), tmp_path / "none.parquet")
    with pytest.raises(InputError, match="no column of pictures"):
        list_pictures(tmp_path / "none.parquet")


@pytest.mark.parametrize("several", [True, False])
def test_what_save_to_disk_wrote(tmp_path: Path, several: bool) -> None:
    from datasets import Dataset, DatasetDict, Features
    from datasets import Image as ImageFeature

    features = Features({"image": ImageFeature()})
    whole = {
        split: Dataset.from_dict({"image": ROWS[a:b]}, features=features)
        for split, a, b in (("train", 0, 3), ("test", 3, 5))
    }
    (DatasetDict(whole) if several else whole["train"]).save_to_disk(tmp_path / "saved")
    expected = range(1, 6) if several else range(1, 4)
    assert greys(tmp_path / "saved") == {f"{k}.jpg": k for k in expected}


def test_a_damaged_row_is_known_when_it_is_read(tmp_path: Path) -> None:
    rows = [ROWS[0], {"bytes": None, "path": None}, {"bytes": b"nothing", "path": "x.jpg"}]
    pq.write_table(pa.table({"image": rows}), tmp_path / "a.parquet")
    first, absent, text = list_pictures(tmp_path / "a.parquet")
    assert first.size() == (4, 3) and absent.size() is None
    with pytest.raises(InputError, match=r"a.parquet row \[1\]: no picture in this row"):
        absent.decode()
    with pytest.raises(InputError, match=r"a.parquet row \[2\]: not a readable picture"):
        text.decode()


@pytest.mark.parametrize(
    ("name", "split"),
    [("data/train-00000-of-00001.parquet", "train"), ("validation-00000-of-00001.parquet", "validation"),
     ("my_val.parquet", "validation"), ("test.parquet", "test"), ("contest.parquet", "train"), ("x.parquet", "train")],
)  # fmt: skip
def test_splits_are_read_off_names_as_the_hub_does(name: str, split: str) -> None:
    assert (split_of(name) or "train") == split


def test_orientation_is_exifs_alone(tmp_path: Path) -> None:
    """XMP says that the picture lies on its side; cv2.imread does not read XMP."""
    xmp = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF'
        b' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    )
    xmp += (
        b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'
        b' tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
    )
    for name, how in {
        "x.jpg": {"xmp": xmp},
        "x.webp": {"xmp": xmp},
        "x.tif": {"tiffinfo": {700: xmp}},
    }.items():
        Image.new("L", (20, 10)).save(tmp_path / name, **how)
        one = list_pictures(tmp_path / name)[0]
        assert one.decode()[0].shape == (10, 20, 3) and one.size() == (20, 10), name


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_every_orientation_is_undone_and_its_size_known(
    kind: str, turn: int, tmp_path: Path
) -> None:
    """The corner that is bright where the picture stands upright, by EXIF's table of rows and
    columns."""
    upright = np.zeros((48, 64), np.uint8)
    upright[:16, :16] = 255
    undo = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).T,
        8: np.rot90(upright, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(np.ascontiguousarray(undo[turn])).save(tmp_path / f"x.{kind}", exif=exif)
    one = list_pictures(tmp_path / f"x.{kind}")[0]
    pixels = one.decode()[0]
    assert pixels.shape[:2] == (48, 64) and one.size() == (64, 48)
    assert pixels[4:12, 4:12].min() > 200 and pixels[24:, 24:].max() < 50


def test_metadata_beside_pictures_is_not_taken_for_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"1.jpg": picture(1), "metadata.jsonl": json.dumps({"file_name": "1.jpg"}).encode()},
    )
    pq.write_table(pa.table({"image": ROWS}), tmp_path / "more.parquet")
    found = list_pictures(tmp_path)
    assert [one.path for one in found] == ["1.jpg"]
    assert found.not_taken == {"other files": ["metadata.jsonl", "more.parquet"]}


def test_a_file_with_several_names_is_each_of_them(tmp_path: Path) -> None:
    """Hard links, as tools leave them that join equal files; of links those that repeat a name are
    left out."""
    folder = write(tmp_path, {"train/1.jpg": picture(1), "train/2.jpg": picture(2)})
    os.link(folder / "train" / "1.jpg", folder / "train" / "3.jpg")
    (folder / "again").symlink_to(folder / "train")
    (folder / "flat").mkdir()
    (folder / "flat" / "2.jpg").symlink_to("../train/2.jpg")
    (folder / "2.jpg").symlink_to("train/2.jpg")
    (folder / "flat" / "391895").symlink_to("../train/2.jpg")
    (folder / "train" / "4.jpg").symlink_to("../flat")
    found = list_pictures(folder)
    assert [one.path for one in found] == [
        "flat/391895",
        "train/1.jpg",
        "train/2.jpg",
        "train/3.jpg",
    ]
    assert found.not_taken == {
        "seen before by a link": ["2.jpg", "again/", "flat/2.jpg", "train/4.jpg/"]
    }


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, {"1.jpg": picture(1)})
    os.mkfifo(tmp_path / "2.jpg")
    assert list_pictures(tmp_path).not_taken == {"cannot be read": ["2.jpg"]}


def test_a_dataset_of_the_hub_with_a_picture_on_its_page(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": b"# Cats", "logo.png": picture(9)})
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"image": ROWS}), tmp_path / "data" / "train-00000-of-00001.parquet")
    found = list_pictures(tmp_path)
    assert [one.image_id for one in found] == ["1", "2", "3", "4", "5"]
    assert found.not_taken == {"pictures beside a dataset": ["logo.png"]}


def test_columns_are_chosen(tmp_path: Path) -> None:
    """Which one has the pictures, and which their ids."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ROWS, "b": ROWS[::-1], "cocoid": [11, 12, 13, 14, 15]}), path)
    found = read_pictures(path, ImageColumns("b", "cocoid"))
    assert [(one.image_id, int(one.decode()[0].max())) for one in found][:2] == [
        ("11", 5),
        ("12", 4),
    ]
    with pytest.raises(
        InputError, match="a.parquet: no column 'c' -> near it: cocoid; choose from: a, b, cocoid"
    ):
        list_pictures(path, ImageColumns("c"))
    with pytest.raises(InputError, match="a.parquet: no column 'id' -> choose from: a, b, cocoid"):
        list_pictures(path, ImageColumns("a", "id"))
    pq.write_table(pa.table({"a": ROWS, "cocoid": [11, None, 13, 14, 15]}), path)
    with pytest.raises(InputError, match=r"row train\[1\]: no 'cocoid' -> give every row its id"):
        list_pictures(path, ImageColumns(None, "cocoid"))


NAMES = [
    "data/train-00000-of-00002.parquet",
    "data/restval-00000-of-00001.parquet",
    "train/a.parquet",
    "dev/test.parquet",
    "a_val_1.parquet",
    "contest.parquet",
    "evaluation.parquet",
    "TRAIN.parquet",
    "Karpathy/test-00000-of-00001.parquet",
    "test_set/validation.parquet",
    "train2014.parquet",
    "x/val-images/a.parquet",
]


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_those_of_datasets(name: str, tmp_path: Path) -> None:
    from datasets.data_files import get_data_patterns

    write(tmp_path, {name: b""})
    assert list(map(str, get_data_patterns(str(tmp_path)))) == [split_of(name) or "train"]


def test_a_damaged_exif_is_none(tmp_path: Path) -> None:
    """The pixels are whole, and cv2.imread reads them."""
    Image.new("L", (20, 10)).save(tmp_path / "x.jpg", exif=b"Exif\0\0no more")
    one = list_pictures(tmp_path / "x.jpg")[0]
    assert one.decode()[0].shape == (10, 20, 3) and one.size() == (20, 10)


def test_two_samples_of_one_key_are_told_with_their_tars(tmp_path: Path) -> None:
    for name in ("00000", "00001"):
        tar(tmp_path / f"{name}.tar", {"001.jpg": picture(1)})
    with pytest.raises(
        InputError, match=r"00001.tar row 001.jpg: image '001' is 001.jpg of .*00000.tar too"
    ):
        read_pictures(tmp_path)
    both = r"'001' \(001.jpg of .*00000.tar\) and '001' \(001.jpg of .*00001.tar\)"
    with pytest.raises(InputError, match=f"image '001' has two, {both}"):
        match_pictures({"001": "001.jpg"}, list_pictures(tmp_path), tmp_path)
