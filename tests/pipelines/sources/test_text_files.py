"""Text files, strictly: UTF-8 and line feeds; Flickr's token files with lists of splits; SCAN's
folders of fives."""

from collections import Counter
from pathlib import Path

import pytest

from capgrade.pipelines.sources import digest_inputs, read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json, read_lines
from capgrade.schemas.scan_ids import read_ids

from .conftest import Read

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA brown dog .\nb.jpg#0\tA cat .\nc.jpg.1#0\tNobody's .\n"
FLICKR8K = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "flickr8k"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"one\r\ntwo\n\nfour", ["one", "two", "", "four"]),
        ("\ufeffone\n\ufefftwo\n".encode(), ["one", "\ufefftwo"]),
        *[
            (f"a{mark}b\nc\n".encode(), [f"a{mark}b", "c"])
            for mark in "\u2028\u2029\x85\x0b\x0c\x1c\r"
        ],
    ],
)
def test_only_a_line_feed_ends_a_row(tmp_path: Path, content: bytes, rows: list[str]) -> None:
    (tmp_path / "rows.txt").write_bytes(content)
    assert list(read_lines(tmp_path / "rows.txt")) == list(enumerate(rows, 1))
    kept = "".join(line for _, line in read_lines(tmp_path / "rows.txt", keep_ends=True))
    assert kept == content.decode().removeprefix("\ufeff")


def test_what_is_no_text_is_located(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_bytes("fine\ncafé\n".encode("latin-1"))
    rows = read_lines(file)
    assert next(rows) == (1, "fine")
    with pytest.raises(
        InputError, match=r"rows.txt row 2: byte 0xe9 at position 4 .* -> .*iconv"
    ) as error:
        next(rows)
    assert (error.value.file, error.value.row) == (file, 2)
    for content, message in (
        (
            '{\n"caption": "café"}'.encode("latin-1"),
            r"row 2: byte 0xe9 at position 16 is not UTF-8 -> .*iconv",
        ),
        (b"\x1f\x8b\x08\x00", r"row 1: compressed by gzip -> gunzip"),
        (
            b'{"a": 1,\n "b" 2}',
            r"row 2: not valid JSON at column 6: Expecting ':' .* -> correct this row",
        ),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_json(file)
    file.write_bytes('\ufeff{"a": 1}'.encode())
    assert read_json(file) == {"a": 1}
    with pytest.raises(InputError, match=r"absent.txt: no such file -> check the path"):
        next(read_lines(tmp_path / "absent.txt"))
    with pytest.raises(InputError, match=r"a folder where a file is needed -> name the file"):
        read_json(tmp_path)


def flickr(
    read: Read,
    folder: Path,
    split: str | None = None,
    left_out: Counter[str] | None = None,
    **lists: str,
) -> list[Caption]:
    for name, text in lists.items():
        (folder / f"{name}.txt").write_text(text)
    files = {name: str(folder / f"{name}.txt") for name in lists}
    return read("flickr", TOKENS, split, left_out=left_out, split_lists=files)


def test_flickr_without_lists_is_one_split(read: Read, tmp_path: Path) -> None:
    captions = flickr(read, tmp_path)
    file = str(tmp_path / "tokens.txt")
    assert captions[1] == Caption("a.jpg", "a.jpg#1", "all", "A brown dog .", file, 2, "a.jpg")
    assert [c.image_id for c in captions] == ["a.jpg", "a.jpg", "b.jpg", "c.jpg.1"]
    assert {c.split for c in flickr(read, tmp_path, split="test")} == {"test"}


def test_lists_give_the_split_and_the_rest_is_counted(read: Read, tmp_path: Path) -> None:
    left_out = Counter[str]()
    # b: as Flickr30K's lists say it
    captions = flickr(read, tmp_path, train="b\n", dev="a.jpg\r\n", left_out=left_out)
    assert [(c.caption_id, c.split) for c in captions] == [
        ("a.jpg#0", "dev"),
        ("a.jpg#1", "dev"),
        ("b.jpg#0", "train"),
    ]
    assert left_out == {"captions of images in no list": 1}
    lists = {"train": "b.jpg\n", "dev": "a.jpg\n"}
    assert [c.caption_id for c in flickr(read, tmp_path, split="train", **lists)] == ["b.jpg#0"]


def test_lists_and_table_may_spell_an_accent_differently(read: Read, tmp_path: Path) -> None:
    """A Mac's names are decomposed, those of a table mostly composed."""
    one, other = "caf\u00e9.jpg", "cafe\u0301.jpg"
    (tmp_path / "test.txt").write_text(f"{other}\n")
    found = read("flickr", f"{one}#0\tA cup .\n", split_lists={"test": str(tmp_path / "test.txt")})
    assert [(c.image_id, c.split) for c in found] == [(one, "test")]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            {"train": "a.jpg\nb.jpg\n", "dev": "b.jpg\n"},
            r"dev.txt row 1: image 'b.jpg' is already in .*in.txt row 2",
        ),
        (
            {"train": "a.jpg\na.jpg\n"},
            r"train.txt row 2: image 'a.jpg' is already in .* -> keep it in one list, once",
        ),
        (
            {"train": "a.jpg\nz.jpg\n"},
            r"train.txt row 2: image 'z.jpg' has no caption in .* -> drop it from the list",
        ),
        ({"train": "a.jpg\n\n"}, r"train.txt row 2: no image in this row -> delete the empty row"),
        ({"train": ""}, r"train.txt: no images in this list"),
    ],
)
def test_bad_lists_are_refused(
    read: Read, tmp_path: Path, lists: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        flickr(read, tmp_path, **lists)


@pytest.mark.skipif(not FLICKR8K.is_dir(), reason=f"no Flickr8k at {FLICKR8K}")
def test_flickr8k() -> None:
    left_out = Counter[str]()
    lists = {
        split: str(FLICKR8K / f"Flickr_8k.{split}Images.txt") for split in ("train", "dev", "test")
    }
    tokens = str(FLICKR8K / "Flickr8k.token.txt")
    captions = list(
        read_source(CaptionsParams(source="flickr", input=tokens, split_lists=lists), left_out)
    )
    assert Counter(c.split for c in captions) == {"train": 30_000, "dev": 5_000, "test": 5_000}
    assert left_out == {"captions of images in no list": 460}
    assert len({c.image_id for c in captions}) == 8_000


KAGGLE_8K = (
    'image,caption\na.jpg,"A dog, on ""grass"" ."\na.jpg,A brown dog .\nb.jpg,A cat | a mat .\n'
)
KAGGLE_30K = """image_name| comment_number| comment
a.jpg| 0| A dog , on | grass .
a.jpg| 4   A dog runs across the grass .
b.jpg| 0| A cat .
"""


def test_kaggle_s_tables_of_flickr_are_known_by_their_header(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read("flickr", KAGGLE_8K, name="captions.txt")
    assert [(c.caption_id, c.text, c.image_file) for c in found] == [
        ("a.jpg#0", 'A dog, on "grass" .', "a.jpg"),
        ("a.jpg#1", "A brown dog .", "a.jpg"),
        ("b.jpg#0", "A cat | a mat .", "b.jpg"),
    ]
    found = read("flickr", KAGGLE_30K, name="results.csv")
    assert [(c.caption_id, c.text, c.row) for c in found] == [
        ("a.jpg#0", "A dog , on | grass .", 2),
        ("a.jpg#4", "A dog runs across the grass .", 3),
        ("b.jpg#0", "A cat .", 4),
    ]
    assert (
        "row 3: the bar behind the number is missing; read as caption 4" in capsys.readouterr().err
    )
    numbered = "image_name,comment_number,comment\na.jpg,3,A dog .\n"
    assert [c.caption_id for c in read("flickr", numbered)] == ["a.jpg#3"]
    (tmp_path / "list.txt").write_text("b.jpg\n")
    lists = {"test": str(tmp_path / "list.txt")}
    assert [(c.caption_id, c.split) for c in read("flickr", KAGGLE_30K, split_lists=lists)] == [
        ("b.jpg#0", "test")
    ]
    with pytest.raises(
        InputError,
        match=r"row 5: 'b.jpg A bird' has too few bars -> write each row as image\| number",
    ):
        read("flickr", KAGGLE_30K + "b.jpg A bird\n")
    with pytest.raises(
        InputError, match=r"row 5: the row has 3 fields, the header 2 -> a comma or quote inside"
    ):
        read("flickr", KAGGLE_8K + "b.jpg,A cat, a mat\n")


CAPTIONS = [f"caption {k}" for k in range(10)]


def precomp(
    folder: Path,
    captions: list[str] = CAPTIONS,
    ids: list[str] | None = None,
    split: str | None = "test",
) -> list[Caption]:
    (folder / "test_caps.txt").write_text("".join(f"{line}\n" for line in captions))
    if ids is not None:
        (folder / "test_ids.txt").write_text("".join(f"{line}\n" for line in ids))
    return list(read_source(CaptionsParams(source="precomp", input=str(folder), split=split)))


def test_without_ids_scans_images_are_numbered(tmp_path: Path) -> None:
    captions = precomp(tmp_path)
    assert captions[6] == Caption(
        "test-1", "test-1#1", "test", "caption 6", str(tmp_path / "test_caps.txt"), 7
    )
    assert [c.image_id for c in captions] == ["test-0"] * 5 + ["test-1"] * 5


def test_several_splits_of_scan_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "dev_caps.txt").write_text("".join(f"dev {k}\n" for k in range(5)))
    captions = precomp(tmp_path, split="test+dev")
    assert [c.split for c in captions] == ["test"] * 10 + ["dev"] * 5
    assert [c.image_id for c in captions[::5]] == ["test-0", "test-1", "dev-0"]


@pytest.mark.parametrize("ids", [["391895", "60623"], ["391895"] * 5 + ["60623"] * 5])
def test_ids_an_image_or_a_caption(tmp_path: Path, ids: list[str]) -> None:
    captions = precomp(tmp_path, ids=ids)
    assert [c.image_id for c in captions] == ["391895"] * 5 + ["60623"] * 5
    assert [c.caption_id for c in captions][4:6] == ["391895#4", "60623#0"]
    assert [c.text for c in captions] == CAPTIONS
    assert {c.image_id for c in precomp(tmp_path, CAPTIONS[:5], ids[: len(ids) // 2])} == {"391895"}


@pytest.mark.parametrize(
    ("captions", "ids", "message"),
    [
        (
            CAPTIONS[:9],
            None,
            r"test_caps.txt: 9 captions, 5 an image, for 9 captions of .* -> .*--source tsv",
        ),
        (
            CAPTIONS,
            ["1", "2", "3"],
            r"test_ids.txt: 3 ids \(3 images\) for 10 captions of test_caps.txt -> give one",
        ),
        (
            CAPTIONS,
            list("0123456789"),
            r"test_ids.txt: 10 different ids for 10 captions -> .*, not sentence ids",
        ),
        ([], [], r"test_ids.txt: 0 ids"),
    ],
)
def test_counts_that_do_not_fit_are_refused(
    tmp_path: Path, captions: list[str], ids: list[str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        precomp(tmp_path, captions, ids)


def test_the_split_of_scan_has_to_be_said_and_there(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"which split is not said -> choose with --split from: test"
    ):
        precomp(tmp_path, split=None)
    with pytest.raises(InputError, match=r"no split 'dev' -> choose from: test"):
        precomp(tmp_path, split="dev")
    (tmp_path / "test_caps.txt").unlink()
    with pytest.raises(
        InputError, match=r"no {split}_caps.txt or .* -> give the folder that holds them"
    ):
        list(read_source(CaptionsParams(source="precomp", input=str(tmp_path), split="test")))


def test_cc152k_has_the_image_before_each_caption(tmp_path: Path) -> None:
    """As the data loaders of NCR and its followers read it: the first two fields of a row. The
    features' rows are in the same order."""
    rows = ["0_17\ta dog runs", "3_5\ttwo men talk", "9_1\ta red bus\tignored"]
    (tmp_path / "dev_caps.tsv").write_text("".join(f"{row}\n" for row in rows))
    params = CaptionsParams(source="precomp", input=str(tmp_path), split="dev")
    found = list(read_source(params))
    assert [(c.image_id, c.caption_id, c.text) for c in found] == [
        ("0_17", "0_17#0", "a dog runs"),
        ("3_5", "3_5#0", "two men talk"),
        ("9_1", "9_1#0", "a red bus"),
    ]
    assert read_ids(tmp_path / "dev_ids.txt", 3, "rows") == (["0_17", "3_5", "9_1"], 1)
    assert "dev_caps.tsv" in digest_inputs(params)
    (tmp_path / "dev_caps.tsv").write_text("0_17\ta dog\na cat\n")
    with pytest.raises(InputError, match="row 2: no image id and caption -> write each row as"):
        list(read_source(params))
