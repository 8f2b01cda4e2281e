"""Strict text: UTF-8 or a located error, and only line feeds end a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from capgrade.pipelines.sources.fields import read_json, read_lines, source_path
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import CaptionsParams


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.txt"


def test_rows_are_numbered_from_one_without_their_ends(file: Path) -> None:
    file.write_bytes(b"one\r\ntwo\n\nfour")
    assert list(read_lines(file)) == [(1, "one"), (2, "two"), (3, ""), (4, "four")]
    assert [line for _, line in read_lines(file, keep_ends=True)] == ["one\r\n", "two\n", "\n", "four"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_row(file: Path, separator: str) -> None:
    line = f"before{separator}after"
    file.write_bytes(f"{line}\nnext\n".encode())
    assert list(read_lines(file)) == [(1, line), (2, "next")]


def test_a_byte_order_mark_is_dropped_from_the_first_row_alone(file: Path) -> None:
    file.write_bytes("\ufeffone\n\ufefftwo\n".encode())
    assert list(read_lines(file)) == [(1, "one"), (2, "\ufefftwo")]
    file.write_bytes('\ufeff{"a": 1}'.encode())
    assert read_json(file) == {"a": 1}


def test_an_empty_file_has_no_rows(file: Path) -> None:
    file.write_bytes(b"")
    assert list(read_lines(file)) == []


def test_a_byte_that_is_not_utf8_is_located(file: Path) -> None:
    file.write_bytes("fine\ncafé\n".encode("latin-1"))
    rows = read_lines(file)
    assert next(rows) == (1, "fine")
    with pytest.raises(InputError, match=r"rows.txt row 2: byte 0xe9 at position 4 .* -> .*iconv") as error:
        next(rows)
    assert (error.value.file, error.value.row) == (file, 2)


def test_a_byte_that_is_not_utf8_is_located_in_json(file: Path) -> None:
    file.write_bytes('{\n"caption": "café"}'.encode("latin-1"))
    with pytest.raises(InputError, match=r"row 2: byte 0xe9 at position 16 is not UTF-8 -> .*iconv"):
        read_json(file)


def test_malformed_json_is_located(file: Path) -> None:
    file.write_text('{"a": 1,\n "b" 2}')
    with pytest.raises(InputError, match=r"row 2: not valid JSON at column 6: Expecting ':' .* -> correct this row"):
        read_json(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent.txt: no such file -> check the path"):
        next(read_lines(tmp_path / "absent.txt"))
    with pytest.raises(InputError, match=r"a folder where a file is needed -> name the file"):
        read_json(tmp_path)


def test_a_source_without_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"source scenes needs an input -> name it with --input"):
        source_path(CaptionsParams())
