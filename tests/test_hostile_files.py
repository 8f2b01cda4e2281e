"""Files that are damaged or made to do harm, by every road that opens a user's file: one InputError
of one line, or what is whole in them, within seconds and 500 MB.

A file takes one line of FILES or ENDLESS; a road one line of ROADS.
"""

import io
import json
import os
import random
import signal
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from capgrade.agreement.judgement_files import read_judgements
from capgrade.apps.judging.question import load_prompts
from capgrade.coco_files import read_json
from capgrade.measures.imported import Imported
from capgrade.pickles import read_torch
from capgrade.pictures.listing import list_pictures
from capgrade.pipelines.detectors.checkpoint import load_bottom_up, read_names
from capgrade.pipelines.features.convert import import_regions, read_regions
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.sources.rows import open_rows
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.arrow import read_arrow
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_lines
from capgrade.schemas.params import read_yaml
from capgrade.schemas.tars import NO_FILE, NO_TARGET, SPARSE, expand_braces
from capgrade.trainer.evaluation.order import read_ids
from capgrade.trainer.evaluation.similarity import read_similarity
from tests.conftest import make_captions

SECONDS, MEGABYTES = 20, 500  # this machine's cores may be shared
CAPTIONS = make_captions([["a dog", "a cat"], ["a cow", "an ox"]])


@contextmanager
def bounded() -> Iterator[None]:
    """The block ends within SECONDS, and the process grows by less than MEGABYTES meanwhile."""

    def stop(*_: object) -> None:
        raise AssertionError(f"not within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what there is now
    start = _highest()
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert _highest() - start < MEGABYTES * 1024


def _highest() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])  # in kB


def held(read: Callable[[], Any], path: Path) -> InputError | None:
    """The InputError that is raised, in one line that names a file there, or None. Whatever else is
    raised fails the test."""
    try:
        with bounded():
            read()
    except InputError as error:
        text = str(error)
        assert "\n" not in text and len(text) < 1000 and path.parent.name in text, text
        assert "MemoryError" not in text and "allocate" not in text, text
        return error
    return None


def pictures_of(path: Path) -> None:
    """All pictures of a source, as `regions` reads them: one that is damaged is one of its left-out
    pictures."""
    for picture in list_pictures(path):
        try:
            picture.size()
            picture.stamp()
            picture.decode()
        except InputError as error:
            assert "\n" not in str(error)


def captions_of(source: str) -> Callable[[Path], Any]:
    return lambda path: list(
        read_source(CaptionsParams(source=source, input=str(path), split="test"))  # type: ignore[arg-type]
    )


def features_of(format: str, **options: Any) -> Callable[[Path], Any]:
    return lambda path: list(read_regions(format, path, **options))


def imported_features(path: Path) -> Any:
    params = RegionsParams(format="tsv", features=(str(path),))
    return import_regions(path.parent / "out", params)


def rows_of(kind: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        rows = open_rows(path, kind)
        return [] if rows is None else list(rows.read(rows.columns))

    return read


# What reads a file that the user names, by a name of its own, and what such files end with.
ROADS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "pictures": (".jpg", pictures_of),
    "zip": (".zip", pictures_of),
    "tar": (".tar", pictures_of),
    "parquet": (".parquet", pictures_of),
    "list": (".txt", pictures_of),
    "features tsv": (".tsv", features_of("tsv")),
    "features lxmert": (".tsv", features_of("lxmert")),
    "features scan": ("_ims.npy", features_of("scan")),
    "features npy": (".npz", features_of("npy")),
    "features h5": (".h5", features_of("h5")),
    "import": (".tsv", imported_features),
    "captions csv": (".csv", captions_of("csv")),
    "captions tsv": (".tsv", captions_of("tsv")),
    "captions jsonl": (".jsonl", captions_of("jsonl")),
    "captions coco": (".json", captions_of("coco")),
    "captions karpathy": (".json", captions_of("karpathy")),
    "captions flickr": (".token", captions_of("flickr")),
    "captions webdataset": (".tar", captions_of("webdataset")),
    "table parquet": (".parquet", rows_of(".parquet")),
    "table arrow": (".arrow", rows_of(".arrow")),
    "json": (".json", read_json),
    "yaml": (".yaml", read_yaml),
    "lines": (".txt", lambda path: list(read_lines(path))),
    "arrow": (".arrow", read_arrow),
    "weights": (".safetensors", load_bottom_up),
    "torch": (".pt", read_torch),
    "names": (".txt", lambda path: read_names(path, 1)),
    "imported": (".npy", lambda path: Imported("x", str(path)).fit(CAPTIONS)),
    "similarity npy": (".npy", lambda path: read_similarity(path, CAPTIONS)),
    "similarity npz": (".npz", lambda path: read_similarity(path, CAPTIONS)),
    "similarity csv": (".csv", lambda path: read_similarity(path, CAPTIONS)),
    "similarity torch": (".pt", lambda path: read_similarity(path, CAPTIONS)),
    "ids npy": (".npy", read_ids),
    "ids": (".txt", read_ids),
    "judgements": (".csv", lambda path: read_judgements(path, CAPTIONS)),
    "prompt": (".yaml", lambda path: load_prompts([str(path)], "chat", True)),
}
ENDLESS = ["device", "pipe", "socket", "link to a device"]


def make_endless(kind: str, path: Path) -> Path | None:
    """Something of that kind at the path; returns what to keep open meanwhile."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as one:  # by a short name: theirs are limited
            one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ENDLESS[:3])
@pytest.mark.parametrize("road", ROADS)
def test_what_has_no_end_is_refused(road: str, kind: str, tmp_path: Path) -> None:
    ending, read = ROADS[road]
    path = tmp_path / f"x{ending}"
    make_endless(kind, path)
    assert held(lambda: read(path), path) is not None


@pytest.mark.parametrize("kind", ENDLESS)
def test_places_that_a_table_or_a_list_names(kind: str, tmp_path: Path) -> None:
    """Each is a picture that cannot be read, and the others are."""
    make_endless(kind, tmp_path / "x.png")
    (tmp_path / "good.png").write_bytes(PNG)
    (tmp_path / "list.txt").write_text("a\tx.png\nb\tgood.png\nc\t/dev/zero\n")
    rows = [{"bytes": None, "path": name} for name in ("x.png", "good.png", "no\0.png")]
    pq.write_table(pa.table({"image": rows}), tmp_path / "t.parquet")
    for source in ("list.txt", "t.parquet"):
        with bounded():
            found = list_pictures(tmp_path / source)
            sizes = [one.size() for one in found]
            for one in found:
                one.stamp()
            assert sizes[0] is None and sizes[1] == (4, 3)
            for one in (found[0], found[2]):
                with pytest.raises(InputError, match="where a file is needed|cannot be read"):
                    one.decode()


@pytest.mark.parametrize(
    "pattern",
    ["{0..999999999}.tar", "{a,b}" * 26 + ".tar", f"{{0..{'9' * 5000}}}.tar", "{1..9999}{1..9999}"],
)
def test_patterns_without_end(pattern: str, tmp_path: Path) -> None:
    with bounded(), pytest.raises(InputError, match="a pattern of more than 1,000,000 tars"):
        expand_braces(pattern)
    if len(pattern) < 250:
        for read in (pictures_of, captions_of("webdataset")):
            path = tmp_path / (pattern if pattern.endswith(".tar") else f"{pattern}.tar")
            assert "a pattern of more than" in str(held(lambda: read(path), path))  # noqa: B023


def test_patterns_stand_for_what_a_shell_makes_of_them() -> None:
    assert expand_braces("{3..1}-{a,b}") == ["3-a", "3-b", "2-a", "2-b", "1-a", "1-b"]
    assert expand_braces("x") == ["x"] and expand_braces("{a}") == ["{a}"]


def png(kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 3), (9, 99, 199)).save(data, kind)
    return data.getvalue()


PNG = png()


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def bomb(name: str, size: int, head: bytes = b"", claimed: int | None = None) -> bytes:
    """A zip with a member of so many bytes, the first of which are given; it may claim to have
    fewer."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(name, "w", force_zip64=True) as member:
            member.write(head)
            for _ in range(size // 2**24):
                member.write(bytes(2**24))
        if claimed is not None:
            archive.filelist[0].file_size = claimed
    return data.getvalue()


def npy(array: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def header(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def npz(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def tarred(
    *members: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT
) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=format) as archive:
        for one in members:
            info, content = (
                (one, b"")
                if isinstance(one, tarfile.TarInfo)
                else (tarfile.TarInfo(one[0]), one[1])
            )
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **pax: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.pax_headers = kind, target, pax
    return made


def parquet(**columns: Any) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data)
    return data.getvalue()


def columns_twice() -> bytes:
    data = io.BytesIO()
    image = pa.array([{"bytes": PNG, "path": "a"}])
    pq.write_table(pa.Table.from_arrays([image, image], ["image", "image"]), data)
    return data.getvalue()


def of_type(field: str, kind: pa.DataType, value: Any) -> bytes:
    fields = {"bytes": pa.binary(), "path": pa.string(), field: kind}
    row = {"bytes": PNG, "path": "a.png", field: value}
    return parquet(image=pa.array([row], pa.struct(list(fields.items()))))


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{k + 1}: &a{k + 1} [*a{k}, *a{k}]\n" for k in range(64))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n"
# The name of a case -> the road, the file's content, and a part of what is said.
FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a zip that is none": ("zip", lambda: b"PK\5\6", "not a whole zip"),
    "a zip that unpacks to 1 GB": ("zip", lambda: bomb("a.png", 2**30, PNG), "when unpacked"),
    "a tar of size -5": ("tar", lambda: tarred(info("a.png", size="-5")), "not a whole tar|a size of"),
    "a tar of a size beyond it": ("tar", lambda: tarred(info("a.png", size="9" * 30)), "tar"),
    "a tar of a size that is no number": ("tar", lambda: tarred(info("a.png", size="x")), "tar"),
    "a tar without pictures": ("tar", lambda: tarred(("a.txt", b"a")), "no picture"),
    "paths that are numbers": ("parquet", lambda: of_type("path", pa.int64(), 7), "paths in column 'image' are of type int64"),
    "paths that are bytes": ("parquet", lambda: of_type("path", pa.binary(), b"x"), "paths in column 'image' are of type binary"),
    "bytes that are texts": ("parquet", lambda: of_type("bytes", pa.string(), "x"), "of type string, not of pictures' bytes"),
    "a column twice": ("parquet", columns_twice, "column 'image' comes twice"),
    "ids that are bytes": ("parquet", lambda: parquet(image=[PNG], image_id=[b"x"]), "of type binary, not of ids"),
    "ids that are lists": ("parquet", lambda: parquet(image=[PNG], image_id=[["x"]]), "not of ids"),
    "a million rows of nothing": ("parquet", lambda: parquet(image=pa.nulls(10**6, pa.binary())), "rows in"),
    "a list that is no text": ("list", lambda: b"\xff\xfe\x00\x01", "not text in UTF-8"),
    "a list of one long line": ("list", lambda: b"a" * 2**20, "a line of"),
    "a picture in AVIF": ("list", lambda: b"\0\0\0\x1cftypavif\0\0\0\0", "in AVIF, which is not read"),
    "features of another sign": ("features scan", lambda: header("(-1, 36, 8)") + bytes(64), "cannot be read"),
    "features of a huge shape": ("features scan", lambda: header("(1099511627776, 36, 8)"), "cannot be read"),
    "features that unpack to 1 GB": ("features npy", lambda: bomb("f.npy", 2**30, header("(20, 13107200)")), "when unpacked"),
    "features that unpack to more than they say": ("features npy", lambda: bomb("f.npy", 2**30, header("(2, 134217728)"), 4096), ""),
    "features by bzip2": ("features npy", lambda: zipped({"f.npy": npy(np.ones((2, 3))), "ids.npy": npy(np.arange(2))}, zipfile.ZIP_BZIP2), "numpy does not pack"),
    "features by LZMA": ("features npy", lambda: zipped({"f.npy": header("(2, 268435456)") + bytes(2**27)}, zipfile.ZIP_LZMA), "when unpacked|numpy does not pack"),
    "features of objects": ("features npy", lambda: zipped({"f.npy": header("(1,)", "|O") + b"cos\nsystem\n(S'false'\ntR.", "ids.npy": npy(np.arange(1))}), "cannot be read"),
    "a similarity that unpacks to 1 GB": ("similarity npz", lambda: bomb("f.npy", 2**30, header("(20, 13107200)")), "when unpacked"),
    "a checkpoint that unpacks to 1 GB": ("torch", lambda: bomb("archive/data.pkl", 2**30), "when unpacked"),
    "aliases of aliases": ("yaml", LAUGHS.encode, "stands for more than 1,000,000 values"),
    "a prompt of aliases": ("prompt", LAUGHS.encode, "stands for more than 1,000,000 values"),
    "a time that is none": ("yaml", lambda: b"a: !!timestamp x", "not valid YAML"),
    "a key that is a list": ("yaml", lambda: b"? [a, b]\n: c", "not valid YAML"),
    "a YAML of zeros": ("yaml", lambda: bytes(999), "not valid YAML"),
    "JSON without end": ("json", lambda: b"[" * 10**6, "not valid JSON"),
    "a caption that is half a sign": ("captions jsonl", lambda: b'{"image_id": "a", "caption": "\\ud83d"}', "surrogate"),
    "a weight of 2**61 numbers": ("weights", lambda: struct.pack("<Q", 71) + b'{"a": {"dtype": "F32", "shape": [2305843009213693952], ' + b'"data_offsets": [0, 16]}}', "safetensors"),
    "names of weights that are no text": ("weights", lambda: struct.pack("<Q", 9) + b'{"\xff": 1}' + bytes(99), "safetensors"),
    "a caffemodel that is none": ("weights", lambda: b"\n\xff\xff\xff\xff\xff\xff\xff\xff", "not a whole caffemodel"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_made_to_do_harm(name: str, tmp_path: Path) -> None:
    road, content, said = FILES[name]
    ending, read = ROADS[road]
    path = tmp_path / f"x{ending}"
    path.write_bytes(content())
    (tmp_path / "x_ids.txt").write_text("0\n1\n")
    error = held(lambda: read(path), path)
    assert error is not None
    assert any(part in str(error) for part in said.split("|")), error


@pytest.mark.parametrize(("side", "fine"), [(6_000, True), (7_000, False), (2**14, False)])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_pixels_without_number(kind: str, side: int, fine: bool, tmp_path: Path) -> None:
    """Of one colour, in a few thousand bytes; a large photograph has bytes for its pixels."""
    data = io.BytesIO()
    if kind == "WEBP":  # whose sides are of 14 bits
        Image.new("RGB", (8, 8)).save(data, kind, lossless=True)
        head = bytearray(data.getvalue())
        head[21:25] = struct.pack("<I", (side - 1) << 14 | (side - 1))
        data = io.BytesIO(bytes(head))
    else:
        how = {"compression": "group4"} if kind == "TIFF" else {}
        Image.new("1", (side, side)).save(data, kind, **how)
    (tmp_path / "x.png").write_bytes(data.getvalue())
    (picture,) = list_pictures(tmp_path / "x.png")
    with bounded():
        if fine and kind == "WEBP":
            assert picture.size() == (side, side)  # its few bytes may be decoded or not
        elif fine:
            assert picture.decode()[0].shape == (side, side, 3)
        else:
            with pytest.raises(InputError, match="x.png: (too many pixels|not a readable)"):
                picture.decode()
            assert picture.size() is None


def damaged_zip(how: int) -> bytes:
    """The pixels of the first member are damaged, or the way in which it is packed is unknown."""
    content = bytearray(zipped({"a.png": PNG * 9, "b.png": PNG}, how if how < 90 else 8))
    start = 30 + len("a.png")
    if how == 99:
        content[content.index(b"PK\1\2") + 10] = content[8] = 99
    else:
        content[start : start + 12] = b"\xff" * 12
    return bytes(content)


@pytest.mark.parametrize("how", [0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99])
def test_a_damaged_member_is_counted_and_the_others_are_read(how: int, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(damaged_zip(how))
    with bounded():
        found = list_pictures(tmp_path / "x.zip")
    names = {one.path for one in found}
    assert "b.png" in names and next(one for one in found if one.path == "b.png").size() == (4, 3)
    assert ("a.png" in names) != any("a.png" in all_ for all_ in found.not_taken.values())


def test_a_member_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    """Its size stands in the archive's list; what is packed is 1 GB."""
    (tmp_path / "x.zip").write_bytes(bomb("a.png", 2**30, PNG, 99))
    held(lambda: pictures_of(tmp_path / "x.zip"), tmp_path / "x.zip")


def test_links_in_a_tar_are_what_they_lead_to(tmp_path: Path) -> None:
    links = [
        info("b.png", tarfile.LNKTYPE, "./d/a.png"),
        info("d/c.png", tarfile.SYMTYPE, "a.png"),
        info("d/d.png", tarfile.SYMTYPE, "../later.png"),
        info("e.png", tarfile.SYMTYPE, "d/d.png"),
        info("f.png", tarfile.SYMTYPE, "/etc/passwd"),
        info("g.png", tarfile.SYMTYPE, "g.png"),
        info("h.png", tarfile.LNKTYPE, "nothing"),
        info("i.png", tarfile.CHRTYPE),
        info("j.png", tarfile.FIFOTYPE),
    ]
    path = tmp_path / "x.tar"
    path.write_bytes(tarred(("d/a.png", PNG), *links, ("later.png", PNG)))
    found = list_pictures(path)
    names = ["d/a.png", "b.png", "d/c.png", "d/d.png", "e.png", "later.png"]
    assert [one.path for one in found] == names and [one.image_id for one in found][1] == "b"
    assert all(one.read() == PNG for one in found)
    assert found.not_taken == {
        NO_TARGET: ["f.png", "g.png", "h.png"],
        NO_FILE: ["i.png", "j.png"],
    }


def sparse_tar(old: bool) -> bytes:
    """As `tar --sparse` writes one: GNU's own type, or names of GNU in a pax header."""
    if old:
        made = info("a.png", tarfile.GNUTYPE_SPARSE)
        block = bytearray(made.tobuf(tarfile.GNU_FORMAT))
        block[386:410] = b"%011o\0%011o\0" % (0, 0)
        block[483:495] = b"%011o\0" % 4096
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        head = bytes(block)
    else:
        names = {"GNU.sparse.size": "4096", "GNU.sparse.numblocks": "0", "GNU.sparse.map": "0,0"}
        made = info("a.png", **names)
        head = made.tobuf(tarfile.PAX_FORMAT)
    return head + tarred(("b.png", PNG))


@pytest.mark.parametrize("old", [True, False])
def test_sparse_members_of_a_tar_are_named(old: bool, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(sparse_tar(old))
    found = list_pictures(tmp_path / "x.tar")
    assert [one.path for one in found] == ["b.png"] and found.not_taken == {SPARSE: ["a.png"]}


@pytest.mark.parametrize("road", [road for road in ROADS if road != "features h5"])
def test_a_pointer_of_git_lfs_is_no_file(road: str, tmp_path: Path) -> None:
    ending, read = ROADS[road]
    path = tmp_path / f"x{ending}"
    path.write_bytes(POINTER)
    held(lambda: read(path), path)


def many(count: int) -> dict[str, bytes]:
    return {f"{k}.png": PNG for k in range(count)}


def torch_file() -> bytes:
    data = io.BytesIO()
    torch.save({"model": {"a": torch.zeros(3)}}, data)
    return data.getvalue()


def safetensors_file(folder: Path) -> bytes:
    save_file({"a": np.zeros((3, 2), np.float32)}, folder / "made")
    return (folder / "made").read_bytes()


MATRIX = np.arange(8, dtype=np.float32).reshape(2, 4)
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg"}],
    "annotations": [{"id": 2, "image_id": 1, "caption": "a dog"}],
}
TEXT = b'image_id,caption_id,caption\na,1,"A dog, a cat"\nb,2,a\n'
ROW = b"7\t9\t9\t1\tAAAAAAAAAAAAAABBAAAAQQ==\tAACAPwAAAEA=\n"
# A road, and a whole file of it, whose bytes are then changed.
WHOLE: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    **{f"picture {kind}": ("pictures", lambda _, kind=kind: png(kind)) for kind in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")},
    **{f"zip {how}": ("zip", lambda _, how=how: zipped(many(3), how)) for how in (0, 8, 12, 14)},
    "tar": ("tar", lambda _: tarred(*many(3).items(), info("l.png", tarfile.LNKTYPE, "0.png"))),
    "tar of GNU": ("tar", lambda _: tarred(("x" * 200, PNG), format=tarfile.GNU_FORMAT)),
    "tar with pax": ("tar", lambda _: tarred(info("a.png", comment="x" * 99), ("b.png", PNG))),
    "parquet": ("parquet", lambda _: parquet(image=[{"bytes": PNG, "path": "a.png"}] * 9, image_id=list("abcdefghi"))),
    "table of texts": ("table parquet", lambda _: parquet(image_id=list("abc"), caption=["a dog"] * 3)),
    "samples": ("captions webdataset", lambda _: tarred(("a.png", PNG), ("a.txt", b"a dog"))),
    "npy": ("similarity npy", lambda _: npy(MATRIX)),
    "imported": ("imported", lambda _: npy(MATRIX)),
    "ids": ("ids npy", lambda _: npy(np.array(["a", "b"]))),
    "npz": ("similarity npz", lambda _: npz(similarity=MATRIX)),
    "features": ("features npy", lambda _: npz(x=np.ones((2, 3, 4), np.float32), ids=np.arange(2))),
    "tsv": ("features tsv", lambda _: ROW * 3),
    "torch": ("torch", lambda _: torch_file()),
    "matrix of torch": ("similarity torch", lambda _: torch_file()),
    "safetensors": ("weights", safetensors_file),
    "csv": ("captions csv", lambda _: TEXT),
    "judgements": ("judgements", lambda _: b"image_id,caption_id,score,rater\ni0,i0#1,3,x\n"),
    "json": ("captions coco", lambda _: json.dumps(COCO).encode()),
    "jsonl": ("captions jsonl", lambda _: b'{"image_id": "a", "caption": ["x", "y"]}\n'),
    "yaml": ("yaml", lambda _: b"shards: {top: 3, seed: 0}\npublish: {date: 2024-01-01}\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_changed_bytes(name: str, tmp_path: Path) -> None:
    """Cut short, bytes replaced or swapped, at places by chance: only InputError comes out."""
    road, make = WHOLE[name]
    ending, read = ROADS[road]
    whole, chance = make(tmp_path), random.Random(name)
    for k in range(40):
        content = bytearray(whole)
        if k % 4 == 0:
            del content[chance.randrange(len(content)) :]
        for _ in range(chance.randint(1, 4) if content else 0):
            at = chance.randrange(len(content))
            new = chance.choice([b"\xff", b"\0", b"\x80", b"-", bytes([chance.randrange(256)]) * 4])
            content[at : at + len(new)] = new
        # A file of its own each, as what is open stays open.
        path = tmp_path / f"{k}{ending}"
        path.write_bytes(content)
        held(lambda: read(path), path)  # noqa: B023
