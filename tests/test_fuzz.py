"""Every reader on any bytes: what its files may hold, or one InputError of one line; nothing else
is raised."""

import dataclasses
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capgrade.measures.imported import Imported
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.detectors.bottom_up import BottomUpConfig
from capgrade.pipelines.detectors.caffemodel import read_caffemodel
from capgrade.pipelines.detectors.checkpoint import read_checkpoint, read_safetensors
from capgrade.pipelines.features import convert
from capgrade.pipelines.features.npz import LARGEST_IMAGE
from capgrade.pipelines.shards import shards
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_manifest, self_digest, write_json
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards, shard_name
from capgrade.trainer.evaluation.similarity import read_similarity
from tests.conftest import (
    caption_table,
    make_captions,
    random_sets,
    write_captions_folder,
    write_matrix,
)
from tests.pipelines.features.made import made
from tests.pipelines.features.test_layouts import MADE

QUICK = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
IMAGES = [made(str(k), 3, 4, seed=k) for k in range(2)]
SETS = random_sets(5, seed=1)
CAPTIONS = make_captions(SETS)
SHAPE = (CAPTIONS.n_images, CAPTIONS.n_captions)
MATRIX = np.random.default_rng(0).random(SHAPE).astype(np.float32)
SOURCES: dict[str, bytes] = {
    "tsv": "image_id\tcaption_id\tcaption\na\t1\tA dog’s 🐶\nb\t2\tA cat\n".encode(),
    "csv": b'image_id,caption_id,caption\na,1,"A dog, a cat"\nb,2,"a\nb"\n',
    "jsonl": b'{"image_id": "a", "caption": ["x", "y"]}\n{"image_id": 2, "caption": "z"}\n',
    "coco": (
        b'{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"id": 2, "image_id": 1,'
        b' "caption": "x"}]}'
    ),
    "karpathy": (
        b'{"images": [{"filename": "a.jpg", "cocoid": 3, "split": "test", "sentences": '
        b'[{"raw": "x", "sentid": 4}]}]}'
    ),
    "flickr": b"a.jpg#0\tA dog .\na.jpg#1\tA cat .\n",
    "precomp": b"one\ntwo\nthree\nfour\nfive\n",
}
ODD = [
    b"\xff" * 8,
    b"9" * 30,
    b"(" * 50,
    b"\\ud800",
    b"\x00",
    "\u2028".encode(),
    "\ufeff".encode(),
    b"9" * 5000,
]
ODD += [b"[" * 3000, b'{"a":' * 3000, b"1e999", b"NaN", b'"', b"\t", b"\r"]


def read_texts(folder: Path) -> list[Any]:
    """Captions of the source that the folder is called after, all of which Arrow can hold."""
    source = folder.name.partition(" ")[0]
    lists = {"t": str(folder / "list.txt")} if (folder / "list.txt").exists() else {}
    path, split = (folder, "test") if source == "precomp" else (folder / "captions_x.json", None)
    found = list(
        read_source(CaptionsParams(source=source, input=str(path), split=split, split_lists=lists))
    )  # type: ignore[arg-type]
    for caption in found:
        texts = (
            caption.image_id,
            caption.caption_id,
            caption.split,
            caption.text,
            caption.image_file or "",
        )
        assert all(isinstance(text, str) and text.encode("utf-8") is not None for text in texts)
        assert caption.image_id and caption.caption_id
    return found


def read_regions(folder: Path) -> list[Any]:
    name = folder.name.partition(" ")[0]
    file = {"tsv": "a.tsv", "lxmert": "a.tsv", "scan": "dev_ims.npy", "h5": "dev.h5"}.get(name)
    return list(convert.read_regions(name, folder / file if file else folder))


def use_matrix(folder: Path) -> None:
    (path,) = folder.glob("m.*")
    assert np.isfinite(Imported("x", str(path)).fit(CAPTIONS).score(np.arange(SHAPE[0]))).all()
    if path.suffix == ".arrow":
        read_relevance(path).matrix()


def write_files(folder: Path) -> Path:
    """Whole files of the format that the folder is called after; returns the folder."""
    folder.mkdir(parents=True)
    name, _, beside = folder.name.partition(" ")
    if folder.parent.name == "texts":
        (folder / ("test_caps.txt" if name == "precomp" else "captions_x.json")).write_bytes(
            SOURCES[name]
        )
        if beside:
            (folder / FORMATS[f"texts/{folder.name}"][0]).write_bytes(b"a.jpg\n")
    elif name in MADE:
        MADE[name](folder)
    elif name == "npy":
        np.save(folder / "m.npy", MATRIX)
    elif name == "arrow":
        write_matrix(folder / "m.arrow", MATRIX, CAPTIONS.image_ids, captions=CAPTIONS.digest)
    elif name == "captions":
        write_captions_folder(folder, [caption_table(SETS)])
    elif name == "shards":
        captions = write_captions_folder(folder.with_name("of_shards"), [caption_table(SETS)])
        shards(
            captions,
            folder,
            ShardsParams(measures=("rouge_l",), top=2, uniform=2),
            MeasuresParams(),
        )
    else:
        write_regions(folder, iter(IMAGES), dtype="float32")
    return folder


OURS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "ours/captions": (
        "captions.arrow",
        lambda folder: (read_captions(folder).tokens(), read_captions(folder).refs),
    ),
    "ours/shards": (
        f"{shard_name(0, 1)}",
        lambda folder: [one.to_pydict() for one in read_shards(folder).batches()],
    ),
    "ours/regions": (
        "regions-00000.arrow",
        lambda folder: [image.check() for image in RegionStore(folder)],
    ),
}
# Format -> the file that is changed, and the reader of its folder. Not features of h5: on a few
# changed bytes libhdf5 itself never returns (see tests/pipelines/features/test_layouts.py).
FORMATS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    **{f"texts/{name}": ("captions_x.json", read_texts) for name in SOURCES if name != "precomp"},
    "texts/precomp": ("test_caps.txt", read_texts),
    "texts/precomp ids": ("test_ids.txt", read_texts),
    "texts/flickr lists": ("list.txt", read_texts),
    **{f"regions/{name}": ("a.tsv", read_regions) for name in ("tsv", "lxmert")},
    "regions/npz": ("a.npz", read_regions),
    "regions/teran": ("bu_box/2.npy", read_regions),
    "regions/scan": ("dev_ims.npy", read_regions),
    **{f"regions/{name} ids": ("dev_ids.txt", read_regions) for name in ("scan", "h5")},
    "matrices/npy": ("m.npy", use_matrix),
    "matrices/arrow": ("m.arrow", use_matrix),
    **OURS,
}


def held(what: Callable[[], Any], folder: Path) -> Any:
    """What is returned, or an InputError in one line that names a file there; all else that is
    raised fails the test."""
    try:
        return what()
    except InputError as error:
        assert "\n" not in str(error) and str(folder) in str(error), error
        return error


def refused(what: Callable[[], Any], folder: Path, said: str = "") -> None:
    error = held(what, folder)
    assert isinstance(error, InputError) and said in error.problem, error


@st.composite
def changed(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with bytes replaced, most often in its head, cut short, or random altogether."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(
            st.one_of(
                st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode())
            )
        )
    if kind == 1:
        return whole[: draw(st.integers(0, len(whole)))]
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(data), 1000 if kind < 8 else len(data)) - 1))
        new = draw(st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(ODD)))
        data[at : at + (len(new) if kind % 2 else 1)] = new
    return bytes(data)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in FORMATS:
        write_files(folder / name)
    return folder


@pytest.mark.parametrize("name", FORMATS)
@QUICK
@given(data=st.data())
def test_changed_files(name: str, root: Path, data: st.DataObject) -> None:
    """A table of ours keeps its size, so that the manifest does not see it; only `verify` compares
    digests."""
    file, read = FORMATS[name]
    path = root / name / file
    whole = path.read_bytes()
    assert not isinstance(held(lambda: read(root / name), root), InputError)
    content = data.draw(changed(whole))
    try:
        path.write_bytes(
            content[: len(whole)].ljust(len(whole), b"\0") if name in OURS else content
        )
        held(lambda: read(root / name), root)
    finally:
        path.write_bytes(whole)


KEYS = st.text(max_size=3) | st.sampled_from(
    ["images", "annotations", "sentences", "id", "raw", "caption"]
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)
IN_JSON = [f"texts/{source}" for source in ("jsonl", "coco", "karpathy")]


@pytest.mark.parametrize("name", IN_JSON)
@QUICK
@given(value=JSON)
def test_any_json(name: str, tmp_path: Path, value: Any) -> None:
    (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / name / "captions_x.json").write_text(json.dumps(value))
    held(lambda: read_texts(tmp_path / name), tmp_path)


@pytest.mark.parametrize("name", OURS)
@QUICK
@given(data=st.data())
def test_changed_manifests(name: str, root: Path, data: st.DataObject) -> None:
    """Some with a checksum made to fit, as whoever means ill would."""
    path = root / name / MANIFEST
    whole = path.read_bytes()
    manifest = json.loads(whole)
    try:
        if data.draw(st.booleans()):
            path.write_bytes(data.draw(changed(whole)))
        else:
            entry = next(iter(manifest["files"].values()))
            place = data.draw(st.sampled_from([manifest, manifest["files"], entry]))
            place[data.draw(st.sampled_from([*sorted(place), "x"]))] = data.draw(JSON)
            manifest["sha256"] = self_digest(manifest)
            write_json(path, manifest)
        held(lambda: read_manifest(path.parent, path.parent.name), root)
        held(lambda: OURS[name][1](path.parent), root)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b'{"files":' * 200_000, b"9" * 5000, b"\xff", b"null", b"[]"]
)
def test_json_that_python_will_not_parse(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    refused(lambda: read_manifest(tmp_path, "shards"), tmp_path)
    for name in IN_JSON if len(content) > 4 else ():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "captions_x.json").write_bytes(content)
        refused(lambda folder=tmp_path / name: read_texts(folder), tmp_path, "not valid JSON")


def _virtual(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((2, 3, 4), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "inner" / "dev.h5"), "feat", (2, 3, 4))
    file.create_virtual_dataset("feat", layout)


ZIPPED = {"chunks": (2**20, 64, 8), "maxshape": (None, None, None), "compression": "gzip"}
# Of other files, made to fill the memory, and of objects: what is written, and a part of what is
# said.
H5: dict[str, tuple[Callable[[h5py.File, Path], object], str]] = {
    "external link": (
        lambda f, at: f.__setitem__("feat", h5py.ExternalLink(f"{at}/inner/dev.h5", "/feat")),
        "",
    ),
    "soft link": (lambda f, at: f.__setitem__("feat", h5py.SoftLink("/feat")), ""),
    "external": (
        lambda f, at: f.create_dataset("feat", (2, 3, 4), "f4", external=[(f"{at}/secret", 0, 96)]),
        "",
    ),
    "virtual": (_virtual, ""),
    "chunks": (
        lambda f, at: f.create_dataset("feat", (2, 3, 4), "f4", **ZIPPED),
        "chunks of shape",
    ),
    "objects": (
        lambda f, at: f.create_dataset("feat", (2, 3, 4), h5py.vlen_dtype(np.dtype("f4"))),
        "type object",
    ),
}


@pytest.mark.parametrize("kind", H5)
def test_h5_that_is_not_read(kind: str, tmp_path: Path) -> None:
    write_files(tmp_path / "h5").rename(tmp_path / "inner")
    (tmp_path / "secret").write_bytes(bytes(96))
    (tmp_path / "t_ids.txt").write_text("0\n1\n")
    write, said = H5[kind]
    with h5py.File(tmp_path / "t.h5", "w") as file:
        write(file, tmp_path)
    refused(lambda: list(convert.read_regions("h5", tmp_path / "t.h5")), tmp_path, said)


def npy(shape: str, dtype: str = "<f4", body: bytes = b"\0" * 64) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


HUGE = [
    npy("(1099511627776, 3, 4)"),
    npy("(4611686018427387904, 4, 4)"),
    npy("(-1, 3, 4)"),
    npy("(0, 3, 4)"),
    npy("()"),
    npy(f"({'9' * 4999},)"),
    npy("(2, 3, 4)", "|O", b"cos\nsystem\n(S'false'\ntR."),
    npy("(2, 3, 4)", "<M8[ns]"),
    npy(f"(2, {SHAPE[1]})", "<f4"),
    npy(str(SHAPE), "<c8", bytes(8 * SHAPE[0] * SHAPE[1])),
    npy("[" * 300),
    npy(str(SHAPE), "<U999999999"),
]


@pytest.mark.parametrize("content", HUGE)
def test_headers_that_lie(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t_ims.npy").write_bytes(content)
    (tmp_path / "t_ids.txt").write_text("0\n1\n")
    refused(lambda: list(convert.read_regions("scan", tmp_path / "t_ims.npy")), tmp_path)
    refused(lambda: Imported("x", str(tmp_path / "t_ims.npy")).fit(CAPTIONS), tmp_path)
    refused(lambda: read_similarity(tmp_path / "t_ims.npy", CAPTIONS), tmp_path)
    teran = write_files(tmp_path / "teran")
    (teran / "bu_box" / "2.npy").write_bytes(content)
    refused(lambda: list(convert.read_regions("teran", teran)), tmp_path)
    with zipfile.ZipFile(teran / "bu_att" / "2.npz", "w") as archive:
        archive.writestr("feat.npy", content)
    refused(lambda: list(convert.read_regions("teran", teran)), tmp_path)


def test_an_archive_made_to_fill_the_memory(tmp_path: Path) -> None:
    teran = write_files(tmp_path / "teran")
    with (
        zipfile.ZipFile(
            teran / "bu_att" / "2.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1
        ) as archive,
        archive.open("feat.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(LARGEST_IMAGE // 2**24 + 1):
            member.write(bytes(2**24))
    refused(lambda: list(convert.read_regions("teran", teran)), tmp_path, "bytes when unpacked")


def test_a_row_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgrade.pipelines.features.tsv.LARGEST_ROW", 2**16)
    path = write_files(tmp_path / "tsv") / "a.tsv"
    assert len(list(convert.read_regions("tsv", path))) == 2
    with path.open("ab") as file:
        file.truncate(2**32)  # of zeros, on no disk
    refused(lambda: list(convert.read_regions("tsv", path)), tmp_path, "a row of more than")


@pytest.mark.parametrize("dims", [[2**63, 2, 0], [3], [2**64 - 1]])
def test_caffe_shapes_that_lie(dims: list[int], tmp_path: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    def varint(value: int) -> bytes:
        return (bytes([value & 127 | 128]) + varint(value >> 7)) if value > 127 else bytes([value])

    blob = field(7, field(1, b"".join(map(varint, dims)))) + field(5, b"")
    (tmp_path / "w").write_bytes(field(100, field(1, b"conv") + field(7, blob)))
    refused(lambda: read_caffemodel(tmp_path / "w"), tmp_path)


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
    refused(lambda: read_safetensors(tmp_path / "w"), tmp_path)


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
    refused(lambda: read_checkpoint({}, facts, tmp_path / "w"), tmp_path, "configuration")
