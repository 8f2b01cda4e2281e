"""Pictures in a dataset: their bytes, a column that `datasets` and the hub show, and what is missing."""

import io
import json
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import Image as ImageColumn
from datasets import load_dataset
from PIL import Image

from capgrade.pipelines.publish import tables
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest

from .conftest import PARAMS
from .test_croissant import opened

MTEB = {"layout": "mteb", "measure": "rouge_l", "grades": {"fits": 0.5}}


@pytest.fixture(scope="module")
def pictures(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A picture of each image of both splits, in a folder and a zip."""
    root, data = tmp_path_factory.mktemp("pictures"), {}
    (root / "folder").mkdir()
    with zipfile.ZipFile(root / "all.zip", "w") as archive:
        for split in ("train", "val"):
            for k, image_id in enumerate(read_captions(made / "captions", split).image_ids):
                buffer = io.BytesIO()
                Image.new("RGB", (9 + k, 7), (20 * k, 90, 40)).save(buffer, "PNG")
                data[image_id] = buffer.getvalue()
                (root / "folder" / f"{image_id}.png").write_bytes(data[image_id])
                archive.writestr(f"sub/{image_id}.png", data[image_id])
    return {"folder": str(root / "folder").encode(), "zip": str(root / "all.zip").encode(), **data}


@pytest.mark.parametrize("source", ["folder", "zip"])
def test_pictures_are_a_config_that_is_shown(
    source: str, made: Path, pictures: dict[str, bytes], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(tables, "PICTURES_A_FILE", 5)
    told = PARAMS.model_copy(update={"images": pictures[source].decode()})
    out = tmp_path / "out"
    publish(made / "captions", [made / "train", made / "val"], out, told)
    assert len(list((out / "images").glob("train-*.parquet"))) == 3
    shown = load_dataset(str(out), "images", split="train", cache_dir=str(tmp_path / "cache"))
    assert isinstance(shown.features["image"], ImageColumn)
    ids = read_captions(made / "captions", "train").image_ids
    assert shown["image_id"][:] == ids and shown[3]["image"].size == (12, 7)
    rows = pq.read_table(out / "images" / "val-00000-of-00001.parquet").to_pylist()
    assert [row["image"]["bytes"] for row in rows] == [pictures[r["image_id"]] for r in rows]
    card = (out / "README.md").read_text()
    assert "dtype: image" in card and "16 pictures are in config `images`" in card
    said = json.loads((out / "croissant.json").read_text())
    assert "images are included" in said["rai:personalSensitiveInformation"]
    name = "images/val-00000-of-00001"
    assert [one[f"{name}/image"].size for one in opened(out).records(name)] == [
        (9, 7),
        (10, 7),
        (11, 7),
    ]
    assert check(str(out)).problems == ()
    assert read_manifest(out, "publish")["inputs"]["images"]
    assert str(tmp_path) not in card and str(Path(pictures["folder"].decode()).parent) not in card


def test_a_benchmark_has_them_in_its_corpus(
    made: Path, pictures: dict[str, bytes], tmp_path: Path
) -> None:
    told = PARAMS.model_copy(update={**MTEB, "images": pictures["zip"].decode()})
    publish(made / "captions", [made / "dense"], tmp_path / "out", told)
    corpus = load_dataset(
        str(tmp_path / "out"), "t2i-corpus", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert corpus.column_names == ["id", "image"] and corpus[0]["image"].size == (9, 7)
    assert "The pictures are not" not in (tmp_path / "out" / "task.py").read_text()


def test_what_is_missing_or_damaged_is_refused_or_left_out(
    made: Path, pictures: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = tmp_path / "some"
    some.mkdir()
    ids = read_captions(made / "captions", "train").image_ids
    for image_id in ids[1:]:
        (some / f"{image_id}.png").write_bytes(pictures[image_id])
    (some / f"{ids[2]}.png").write_bytes(pictures[ids[2]][:40])
    told = PARAMS.model_copy(update={**MTEB, "images": str(some)})
    with pytest.raises(InputError, match=f"no picture of 2 images: .*{ids[0]} .*--unreadable skip"):
        publish(made / "captions", [made / "dense"], tmp_path / "out", told)
    assert not (tmp_path / "out").exists()
    skip = told.model_copy(update={"unreadable": "skip"})
    publish(made / "captions", [made / "dense"], tmp_path / "out", skip)
    assert "no picture of 2 images" in capsys.readouterr().err
    corpus = pq.read_table(tmp_path / "out" / "images")["id"].to_pylist()
    assert corpus == [ids[1], *ids[3:]]
    for name in ("qrels", "gains"):
        assert set(pq.read_table(tmp_path / "out" / f"t2i-{name}")["corpus-id"].to_pylist()) <= {
            *corpus
        }
    assert "Of 2 images there was no readable picture" in (tmp_path / "out/README.md").read_text()
    other = PARAMS.model_copy(update={"images": str(some), "unreadable": "skip"})
    with pytest.raises(InputError, match="a picture of none of the images of split 'val'"):
        publish(made / "captions", [made / "val"], tmp_path / "val", other)
