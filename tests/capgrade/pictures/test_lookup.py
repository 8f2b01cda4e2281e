"""Pictures of a captions table: from a folder, a zip and addresses; what is missing is said
once."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from PIL import Image

from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.apps.report import report
from capgrade.measures.params import MeasuresParams
from capgrade.pictures.lookup import MAX_UNANSWERED, find_pictures
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.say import CapgradeWarning
from tests.conftest import call, caption_table, random_sets, write_captions_folder
from tests.tools.served import Handler, serving

N = 8
FILES = [f"val/Ä {i}.png" for i in range(N)]  # the last has no picture, the first is damaged


def png(i: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (40, 30), (i * 20, 90, 200)).save(data, "PNG")
    return b"no picture" if i == 0 else data.getvalue()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions that name image files, their pictures in a folder and in a zip, and dense
    relevance."""
    folder: Path = tmp_path_factory.mktemp("found")
    table = caption_table(random_sets(N, seed=1, least=2, most=3), prefix="")
    files = pa.array([FILES[int(image_id)] for image_id in table["image_id"].to_pylist()])
    table = table.set_column(table.column_names.index("image_file"), "image_file", files)
    write_captions_folder(folder / "data" / "captions", [table])
    with zipfile.ZipFile(folder / "pictures.zip", "w") as packed:
        for i in range(N - 1):
            path = folder / "pictures" / FILES[i]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(i))
            packed.write(path, f"./deep/{FILES[i]}")
    block = RelevanceParams(measures=("rouge_l",))
    relevance(folder / "data" / "captions", folder / "data" / "relevance", block, MeasuresParams())
    return folder


@pytest.fixture
def captions(world: Path) -> Captions:
    return read_captions(world / "data" / "captions")


asked: list[str] = []  # of the server, in order
MOVED: dict[str, str] = {}  # below /moved/: where it sends on to; else to the same path without it


def answer(handler: Handler) -> None:
    name = unquote(handler.path).removeprefix("/")
    asked.append(name)
    if name.startswith("moved/"):
        to = MOVED.get(name.split("/")[1], handler.path.removeprefix("/moved"))
        return handler.reply(302, headers={"Location": to})
    there = name in FILES[:-1]
    return handler.reply(200 if there else 404, png(FILES.index(name)) if there else b"")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(answer) as at:
        yield at


def sources(world: Path, address: str) -> dict[str, str]:
    folder = {"folder": str(world / "pictures"), "zip": str(world / "pictures.zip")}
    return {**folder, "template": address + "/{file}"}


@pytest.mark.parametrize("kind", ["folder", "zip", "template"])
def test_each_source_has_the_same_pictures(
    world: Path, address: str, captions: Captions, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    found = find_pictures(captions, sources(world, address)[kind])
    shown = [found.image(one) for one in captions.image_ids]
    assert [i for i, one in enumerate(shown) if one is None] == [0, N - 1]
    assert [one.getpixel((5, 5)) for one in shown if one] == [
        (i * 20, 90, 200) for i in range(1, N - 1)
    ]
    found.warn_of_missing()
    (error,) = [str(one.message) for one in recwarn]
    assert f"no picture of 2 of the {N} images" in error and "'0'" in error


def test_pages_show_them_with_links_and_the_rest_as_links(
    world: Path,
    address: str,
    captions: Captions,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    pages = {}
    for kind, source in sources(world, address).items():
        report(world / "data", world / "page.html", images=source, force=True)
        pages[kind] = (world / "page.html").read_text()
    shown = {
        kind: set(re.findall(r'src="(data:image/webp[^"]*)"', page)) for kind, page in pages.items()
    }
    assert shown["folder"] == shown["zip"] == shown["template"] and len(shown["zip"]) == N - 2
    assert 'href="pictures/val/%C3%84%201.png"' in pages["folder"], (
        "beside the page, wherever both are moved"
    )
    assert f'href="{address}/val/%C3%84%201.png"' in pages["template"]
    assert 'href="/' not in pages["folder"]
    assert "<a href=" not in re.sub(r'<a (class|href="#).*?>', "", pages["zip"]), (
        "nothing to link to"
    )
    assert sum(one.category is CapgradeWarning for one in recwarn) == 3, "one for each page"
    monkeypatch.setattr("capgrade.apps.page.thumbnails.MOST_BYTES", 1)
    few = PageThumbnails(world / "data" / "captions", world / "pictures", world)
    assert few.uri("1", 30) is None and few.link("1") == "pictures/val/%C3%84%201.png"


@pytest.mark.parametrize("place", [
    "http://localhost:{port}/{file}", "http://127.0.0.1:9/{file}", "http://169.254.169.254/latest/meta-data",
    "https://evil.example/x.png", "file:///etc/passwd",
])  # fmt: skip
def test_an_address_that_sends_on_to_another_host_is_not_followed(
    place: str, address: str, captions: Captions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are fetched from where the user has said, not from inside the user's network."""
    port = address.rpartition(":")[2]
    monkeypatch.setitem(MOVED, "away", place.format(port=port, file=FILES[0]))
    asked.clear()
    found = find_pictures(captions, address + "/moved/away/{file}")
    image_id = captions.image_ids[0]
    assert found.read(image_id) is None
    said = (
        r"302 (sends on to \S+, another host, which is not followed|.* Redirection to url 'file:.*'"
        r" is not allowed)"
    )
    assert re.fullmatch(said, found.unavailable[image_id])
    assert len(asked) == 1 and found.failures == 0


def test_an_address_that_sends_on_within_its_host_is_followed(
    address: str, captions: Captions
) -> None:
    found = find_pictures(captions, address + "/moved/{file}")
    assert found.read(captions.image_ids[0]) == png(0)


def test_addresses_that_do_not_answer_are_not_asked_for_ever(captions: Captions) -> None:
    found = find_pictures(captions, "http://127.0.0.1:9/{id}")
    assert [found.read(one) for one in captions.image_ids] == [None] * N
    assert sum("not asked for" in why for why in found.unavailable.values()) == N - MAX_UNANSWERED


def test_what_is_wrong_is_one_line(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\3\4")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as packed:
        packed.writestr("other.png", png(1))
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as packed:
        packed.writestr("a/val/Ä 0.png", png(1)), packed.writestr("b/val/Ä 0.png", png(1))
    for source, said in {
        "https://example.org/x.jpg": "write {file} or {id}",
        "https://{file}": "the host is not the same for every image -> write the host",
        "https://{id}.example.org/a.png": "the host is not the same",
        "http://example.org{file}": "the host is not the same",
        str(tmp_path / "x.zip"): "not a whole zip",
        str(tmp_path / "other.zip"): f"none of the {N} images",
        str(tmp_path / "no.zip"): "no such file",
        str(
            tmp_path / "twice.zip"
        ): "twice.zip: image '0' has two, 'Ä 0' (a/val/Ä 0.png) and 'Ä 0' (b/val/Ä 0.png)",
    }.items():
        line = [
            "report",
            "--data",
            str(world / "data"),
            "--out",
            str(tmp_path / "x.html"),
            "--images",
            source,
        ]
        assert call(*line) == 2
        error = capsys.readouterr().err.strip()
        assert said in error and "\n" not in error
