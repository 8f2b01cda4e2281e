"""No text of somebody else's is a formula in a spreadsheet, and what is read back is what was
written; text files of odd forms are read or named."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capgrade.pipelines.sources.rows import KINDS, open_rows
from capgrade.schemas import lines
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import (
    open_bytes,
    open_table,
    read_json,
    read_lines,
    text_of_cell,
    without_formulas,
)
from capgrade.schemas.tars import tar_members


@pytest.mark.parametrize(
    "text", ["=1+1", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "-1+cmd|' /C calc'!A0", "=", "-"]
)
def test_a_formula_becomes_text(text: str) -> None:
    assert without_formulas([text]) == ["'" + text]


@pytest.mark.parametrize("text", ["a dog", "", "-0.5", "+3", "-1e-05", "1-2", "'tis", "a=b"])
def test_other_text_and_numbers_stay(text: str) -> None:
    assert without_formulas([text, -1, -0.5]) == [text, -1, -0.5]


@given(st.text(alphabet="'=+-@\t\r1a") | st.text())
def test_what_is_read_is_what_was_written(text: str) -> None:
    (cell,) = without_formulas([text])
    assert text_of_cell(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r"))


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 146946961\n"


def test_a_pointer_of_git_lfs_is_named_by_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(POINTER)
    readers: list[Callable[[], object]] = [
        lambda: open_bytes(path),
        lambda: list(read_lines(path)),
        lambda: read_json(path),
        lambda: open_table(path),
        lambda: open_table(path, "\t"),
        *(lambda kind=kind: open_rows(path, kind) for kind in KINDS),
        lambda: list(tar_members(path, lambda *_: None)),
    ]
    for reader in readers:
        with pytest.raises(InputError, match=r"file: a pointer of Git LFS, .* -> git lfs pull"):
            reader()
    path.write_text(f"image_id,caption\n7,{POINTER.splitlines()[0]}\n")
    assert len(list(open_table(path)[1])) == 1, "a caption that speaks of it"


PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", PACKERS)
def test_rows_of_a_packed_file_are_read(tmp_path: Path, kind: str) -> None:
    text = '\ufeffimage_id,caption\r\n007,A dog.\r\n7,"A\r\ncat."\r\n'
    packed = PACKERS[kind](text.encode())
    path = tmp_path / "a.csv"
    path.write_bytes(packed)
    found = [tuple(row.values()) for _, row in open_table(path)[1]]
    assert found == [("007", "A dog."), ("7", "A\r\ncat.")]
    for damaged in (packed[:-12], packed[:20] + b"\0\0\0" + packed[23:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"a.csv: not whole, packed by {kind} \(.* -> downl"):
            list(open_table(path)[1])
    with pytest.raises(InputError, match=rf"compressed by {kind} -> "):
        path.write_bytes(packed)
        read_json(path)


def test_a_row_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_IN_A_ROW", 2**20)
    path = tmp_path / "a.tsv"
    path.write_bytes(gzip.compress(b"a\tb\n" + bytes(2**22)))
    with pytest.raises(InputError, match="a.tsv row 2: a row of more than 1 MB"):
        list(open_table(path, "\t")[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image_id,caption\n7,A\n".encode("utf-16"), "text in UTF-16, .* -> .*iconv -f UTF-16 -t"),
        (b"PK\x03\x04\xff", "compressed by zip -> unzip -p a.csv > converted"),
        (b"\x28\xb5\x2f\xfd\xff", "compressed by zstandard -> zstd -dc a.csv > converted"),
    ],
)
def test_what_else_a_table_may_be_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_table(tmp_path / "a.csv")


@pytest.mark.parametrize("first", ["sep=,", "\ufeffsep=,", '"sep=,"', "sep=;", "sep=\t", "sep=,,"])
def test_excel_s_line_names_the_separator(tmp_path: Path, first: str) -> None:
    mark = first.lstrip('\ufeff"')[4]
    text = f'{first}\r\nimage_id{mark}caption\r\n7{mark}"A{mark} dog"\r\n\r\n'
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    header, rows = open_table(path)
    assert header == ["image_id", "caption"]
    assert next(rows) == (3, {"image_id": "7", "caption": f"A{mark} dog"})
    with pytest.raises(InputError, match="a.csv row 4: an empty row"):
        next(rows)


def test_a_cell_may_be_wide(tmp_path: Path) -> None:
    """Such as a picture in base64: the csv module stops at 131,072 characters."""
    path = tmp_path / "a.csv"
    path.write_text(f"image_id,picture,caption\n7,{'A' * 200_000},A dog.\n")
    ((_, row),) = open_table(path)[1]
    assert (len(row["picture"]), row["caption"]) == (200_000, "A dog.")
