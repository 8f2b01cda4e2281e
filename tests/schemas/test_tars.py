"""Tars of WebDataset: which are meant, what is in them, and how one cut short is known."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from capgrade.schemas.errors import InputError
from capgrade.schemas.tars import expand_braces, list_tars, tar_members


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def refuse_any(reason: str, name: str) -> None:
    raise AssertionError(f"{name}: {reason}")


def test_members_by_key_and_ending_and_read_by_their_place(tmp_path: Path) -> None:
    given = {
        "a.b/01.JPG": b"picture",
        "a.b/01.txt": b"A dog.",
        "02.seg.png": b"x" * 3000,
        "._02.jpg": b"hidden",
    }
    members = list(tar_members(write_tar(tmp_path / "a.tar", given), refuse_any))
    assert [(one.key, one.ending) for one in members] == [
        ("a.b/01", "jpg"),
        ("a.b/01", "txt"),
        ("02", "seg.png"),
    ]
    assert [one.read() for one in members] == list(given.values())[:3]


def test_patterns_folders_and_lists(tmp_path: Path) -> None:
    assert expand_braces("d/{008..010}-{x,y}.tar")[:3] == [
        "d/008-x.tar",
        "d/008-y.tar",
        "d/009-x.tar",
    ]
    assert expand_braces("d/{8..10}.tar") == ["d/8.tar", "d/9.tar", "d/10.tar"]
    for name in ("00000.tar", "00001.tar", "below/00002.tar", ".hidden.tar"):
        write_tar(tmp_path / name, {"k.txt": b"A"})
    assert [one.name for one in list_tars([str(tmp_path)])] == [
        "00000.tar",
        "00001.tar",
        "00002.tar",
    ]
    two = [str(tmp_path / "{00000..00001}.tar"), str(tmp_path / "below")]
    assert [one.name for one in list_tars(two)] == ["00000.tar", "00001.tar", "00002.tar"]
    with pytest.raises(
        InputError,
        match=r"00002.tar: no such file, 2 such of 4 -> give a tar, a folder of tars, or",
    ):
        list_tars([str(tmp_path / "{00000..00003}.tar")])
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none: no .tar in this folder"):
        list_tars([str(tmp_path / "none")])


def test_what_is_no_whole_tar_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"a.txt": b"A" * 2000, "b.txt": b"B" * 2000})
    whole, at = path.read_bytes(), list(tar_members(path, refuse_any))[1].offset
    for content, message in (
        (whole[: at + 100], "a.tar: .*(not a whole tar|cut short)"),
        (
            whole[: at - 512],
            "cut short: the end of the tar is missing -> download or write it again",
        ),
        (whole + whole, "another tar behind its end"),
        (gzip.compress(whole), "a compressed tar -> decompress it"),
        (b"hello" * 1000, "not a whole tar"),
        (b"", "not a whole tar"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            list(tar_members(path, refuse_any))
