"""Readers of regions, of imported matrices and of our own folders on any bytes: read, or refused with InputError."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capgrade.measures.imported import Imported
from capgrade.pipelines.detectors.bottom_up import BottomUpConfig
from capgrade.pipelines.detectors.caffemodel import read_caffemodel
from capgrade.pipelines.detectors.checkpoint import read_checkpoint, read_safetensors
from capgrade.pipelines.features import READERS, WRITERS
from capgrade.pipelines.features.npz import MOST_BYTES
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_manifest, self_digest, write_json
from capgrade.schemas.params import MeasuresParams, ShardsParams
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import write_regions
from capgrade.schemas.relevance import read_relevance, relevance_batch, relevance_schema
from capgrade.schemas.shards import read_shards
from capgrade.trainer.evaluation.task import read_similarity
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder
from tests.pipelines.features.made import made

QUICK = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
IMAGES = [made(str(k), 3, 4, seed=k) for k in range(2)]
CAPTIONS = make_captions(random_sets(5, seed=1))
SHAPE = (CAPTIONS.n_images, CAPTIONS.n_captions)


def held(what: Callable[[], Any]) -> Any:
    """What is returned, or InputError in one line; anything else that is raised fails the test."""
    try:
        return what()
    except InputError as error:
        assert "\n" not in str(error)
        return error


ODD = [b"\xff" * 8, b"9" * 30, b"(" * 50]


@st.composite
def changed(draw: st.DrawFn, whole: bytes, head: int = 400, odd: list[bytes] = ODD) -> bytes:
    """A file with bytes replaced, most often in its head, cut short, or random altogether."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode())))
    if kind == 1:
        return whole[: draw(st.integers(0, len(whole)))]
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(data), head if kind < 8 else len(data)) - 1))
        new = draw(st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(odd)))
        data[at : at + (len(new) if kind % 2 else 1)] = new
    return bytes(data)


def region_files(name: str, folder: Path) -> tuple[Path, Path]:
    """The path to read and the file to change."""
    if name == "npz":
        WRITERS["npz"](folder, IMAGES[:1])
        return folder, folder / "0.npz"
    if name == "teran":
        (folder / "bu_att").mkdir(exist_ok=True)
        (folder / "bu_box").mkdir(exist_ok=True)
        np.savez(folder / "bu_att" / "0.npz", feat=IMAGES[0].features)
        np.save(folder / "bu_box" / "0.npy", IMAGES[0].boxes)
        return folder, folder / "bu_box" / "0.npy"
    if name == "h5":
        with h5py.File(folder / "t.h5", "w") as file:
            file.create_dataset("feat", data=np.stack([image.features for image in IMAGES]))
        (folder / "t_ids.txt").write_text("0\n1\n")
        return folder / "t.h5", folder / "t.h5"
    path = folder / ("t_ims.npy" if name == "scan" else "a.tsv")
    WRITERS["scan" if name == "scan" else "tsv"](path, IMAGES)
    if name == "lxmert":
        fields = path.read_bytes().splitlines()[0].split(b"\t")
        ids, scores = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", b"AAAAAAAAAAAAAAAA"
        path.write_bytes(b"\t".join([*fields[:3], ids, scores, ids, scores, *fields[3:]]) + b"\n")
    return path, path


# Not h5: on a few changed bytes libhdf5 itself never returns (see tests/pipelines/features/test_scan.py).
@pytest.mark.parametrize("name", ["tsv", "lxmert", "npz", "teran", "scan"])
@QUICK
@given(data=st.data())
def test_changed_region_files(name: str, tmp_path: Path, data: st.DataObject) -> None:
    path, target = region_files(name, tmp_path)
    assert len(list(READERS[name](path))) >= 1
    target.write_bytes(data.draw(changed(target.read_bytes())))
    held(lambda: list(READERS[name](path)))


@pytest.mark.parametrize("name", ["scan", "h5"])
@QUICK
@given(ids=st.binary(max_size=40))
def test_ids_beside_features(name: str, tmp_path: Path, ids: bytes) -> None:
    path, _ = region_files(name, tmp_path)
    (tmp_path / "t_ids.txt").write_bytes(ids)
    held(lambda: list(READERS[name](path)))


def _virtual(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((2, 3, 4), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "inner" / "t.h5"), "feat", (2, 3, 4))
    file.create_virtual_dataset("feat", layout)


ZIPPED = {"chunks": (2**20, 64, 8), "maxshape": (None, None, None), "compression": "gzip"}
# Of other files, made to fill the memory, and of objects: what is written, and a part of what is said.
H5: dict[str, tuple[Callable[[h5py.File, Path], object], str]] = {
    "external link": (lambda f, at: f.__setitem__("feat", h5py.ExternalLink(f"{at}/inner/t.h5", "/feat")), ""),
    "soft link": (lambda f, at: f.__setitem__("feat", h5py.SoftLink("/feat")), ""),
    "external": (lambda f, at: f.create_dataset("feat", (2, 3, 4), "f4", external=[(f"{at}/secret", 0, 96)]), ""),
    "virtual": (_virtual, ""),
    "chunks": (lambda f, at: f.create_dataset("feat", (2, 3, 4), "f4", **ZIPPED), "chunks of shape"),
    "objects": (lambda f, at: f.create_dataset("feat", (2, 3, 4), h5py.vlen_dtype(np.dtype("f4"))), "type object"),
}


@pytest.mark.parametrize("kind", H5)
def test_h5_that_is_not_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(bytes(96))
    region_files("h5", tmp_path / "inner")
    (tmp_path / "t_ids.txt").write_text("0\n1\n")
    write, said = H5[kind]
    with h5py.File(tmp_path / "t.h5", "w") as file:
        write(file, tmp_path)
    error = held(lambda: list(READERS["h5"](tmp_path / "t.h5")))
    assert isinstance(error, InputError) and said in error.problem


def npy(shape: str, dtype: str = "<f4", body: bytes = b"\0" * 64) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


HUGE = [
    npy("(1099511627776, 3, 4)"), npy("(4611686018427387904, 4, 4)"), npy("(-1, 3, 4)"), npy("(0, 3, 4)"), npy("()"),
    npy(f"({'9' * 4999},)"), npy("(2, 3, 4)", "|O", b"cos\nsystem\n(S'false'\ntR."), npy("(2, 3, 4)", "<M8[ns]"),
    npy(f"(2, {SHAPE[1]})", "<f4"), npy(str(SHAPE), "<c8", bytes(8 * SHAPE[0] * SHAPE[1])), npy("[" * 300),
    npy(str(SHAPE), "<U999999999"),
]  # fmt: skip


@pytest.mark.parametrize("content", HUGE)
def test_headers_that_lie(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t_ims.npy").write_bytes(content)
    (tmp_path / "t_ids.txt").write_text("0\n1\n")
    assert isinstance(held(lambda: list(READERS["scan"](tmp_path / "t_ims.npy"))), InputError)
    assert isinstance(held(lambda: Imported("x", str(tmp_path / "t_ims.npy")).fit(CAPTIONS)), InputError)
    assert isinstance(held(lambda: read_similarity(tmp_path / "t_ims.npy", CAPTIONS)), InputError)
    region_files("teran", tmp_path)
    (tmp_path / "bu_box" / "0.npy").write_bytes(content)
    assert isinstance(held(lambda: list(READERS["teran"](tmp_path))), InputError)
    with zipfile.ZipFile(tmp_path / "bu_att" / "0.npz", "w") as archive:
        archive.writestr("feat.npy", content)
    assert isinstance(held(lambda: list(READERS["teran"](tmp_path))), InputError)


def test_an_archive_made_to_fill_the_memory(tmp_path: Path) -> None:
    region_files("teran", tmp_path)
    with (
        zipfile.ZipFile(tmp_path / "bu_att" / "0.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("feat.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(MOST_BYTES // 2**24 + 1):
            member.write(bytes(2**24))
    error = held(lambda: list(READERS["teran"](tmp_path)))
    assert isinstance(error, InputError) and "bytes when unpacked" in error.problem


def test_a_row_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgrade.pipelines.features.tsv.MOST_BYTES", 2**16)
    path, _ = region_files("tsv", tmp_path)
    assert len(list(READERS["tsv"](path))) == 2
    with path.open("ab") as file:
        file.truncate(2**32)  # of zeros, on no disk
    error = held(lambda: list(READERS["tsv"](path)))
    assert isinstance(error, InputError) and "a row of more than" in error.problem


@pytest.mark.parametrize("dims", [[2**63, 2, 0], [3], [2**64 - 1]])
def test_caffe_shapes_that_lie(dims: list[int], tmp_path: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    def varint(value: int) -> bytes:
        return (bytes([value & 127 | 128]) + varint(value >> 7)) if value > 127 else bytes([value])

    blob = field(7, field(1, b"".join(map(varint, dims)))) + field(5, b"")
    (tmp_path / "w").write_bytes(field(100, field(1, b"conv") + field(7, blob)))
    assert isinstance(held(lambda: read_caffemodel(tmp_path / "w")), InputError)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 16]}},
        {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 2**40]}},
        {"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}},
        {n: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} for n in "ab"},
        {"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}},
    ],
)
def test_safetensors_headers_that_lie(header: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "w").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    assert isinstance(held(lambda: read_safetensors(tmp_path / "w")), InputError)


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": [3, 10**9, 4, 3]},
        {"blocks": [0, 1, 1, 1]},
        {"width": 1e30},
        {"conventions": "os"},
        {"n_classes": 2**62},
    ],
)
def test_a_configuration_that_no_model_has(change: dict[str, Any], tmp_path: Path) -> None:
    facts = {"config": json.dumps({**dataclasses.asdict(BottomUpConfig()), **change})}
    error = held(lambda: read_checkpoint({}, facts, tmp_path / "w"))
    assert isinstance(error, InputError) and "configuration" in error.problem


@pytest.mark.parametrize("name", ["a/b", "../x", "..", ".hidden", "a\\b", "a\0b", "a\nb"])
def test_ids_that_are_paths_are_not_exported(name: str, tmp_path: Path) -> None:
    image = made(name, 3, 4)
    assert isinstance(held(lambda: WRITERS["npz"](tmp_path / "out", [image])), InputError)
    assert not list(tmp_path.iterdir())


def matrix(layout: str) -> bytes:
    values = np.random.default_rng(0).random(SHAPE).astype(np.float32)
    sink = io.BytesIO()
    if layout == "arrow":
        schema = relevance_schema(SHAPE[1], "float32", {"captions": CAPTIONS.digest})
        with pa.ipc.new_file(sink, schema) as out:
            out.write_batch(relevance_batch(CAPTIONS.image_ids, values, schema))
    else:
        np.save(sink, values)
    return sink.getvalue()


@pytest.mark.parametrize("layout", ["npy", "arrow"])
@QUICK
@given(data=st.data())
def test_changed_matrices(layout: str, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m"
    path.write_bytes(data.draw(changed(matrix(layout), 1500)))

    def use() -> None:
        fitted = Imported("x", str(path)).fit(CAPTIONS)
        assert np.isfinite(fitted.score(np.arange(SHAPE[0]))).all()
        if layout == "arrow":
            read_relevance(path).matrix()

    held(use)


OPEN: dict[str, Callable[[Path], Any]] = {
    "captions": lambda folder: (read_captions(folder).tokens(), read_captions(folder).refs),
    "shards": lambda folder: [batch.to_pydict() for batch in read_shards(folder).batches()],
    "regions": lambda folder: [image.check() for image in RegionStore(folder)],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folders")
    write_captions_folder(root / "captions", [caption_table(random_sets(5, seed=4))])
    sampled = ShardsParams(measures=("rouge_l",), top=2, uniform=2)
    shards(root / "captions", root / "shards", sampled, MeasuresParams())
    write_regions(root / "regions", iter(IMAGES), dtype="float32")
    return root


@pytest.mark.parametrize("kind", OPEN)
@QUICK
@given(data=st.data())
def test_changed_tables_of_ours(kind: str, folders: Path, data: st.DataObject) -> None:
    """The size stays, so that the manifest does not see it; only `verify` compares digests."""
    path = next((folders / kind).glob("*.arrow"))
    whole = path.read_bytes()
    content = data.draw(changed(whole, len(whole)))
    try:
        path.write_bytes(content[: len(whole)].ljust(len(whole), b"\0"))
        held(lambda: OPEN[kind](folders / kind))
    finally:
        path.write_bytes(whole)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", OPEN)
@QUICK
@given(data=st.data())
def test_changed_manifests(kind: str, folders: Path, data: st.DataObject) -> None:
    """Some with a checksum made to fit, as whoever means ill would."""
    path = folders / kind / MANIFEST
    whole = path.read_bytes()
    manifest = json.loads(whole)
    try:
        if data.draw(st.booleans()):
            path.write_bytes(data.draw(changed(whole)))
        else:
            entry = next(iter(manifest["files"].values()))
            place = data.draw(st.sampled_from([manifest, manifest["files"], entry]))
            place[data.draw(st.sampled_from([*sorted(place), "x"]))] = data.draw(VALUES)
            manifest["sha256"] = self_digest(manifest)
            write_json(path, manifest)
        held(lambda: read_manifest(folders / kind, kind))
        held(lambda: OPEN[kind](folders / kind))
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"files":' * 200_000, b"9" * 5000, b"\xff", b"null", b"[]"])
def test_manifests_that_python_will_not_parse(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert isinstance(held(lambda: read_manifest(tmp_path, "shards")), InputError)
