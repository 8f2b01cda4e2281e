"""mteb runs the task file of a benchmark of Crisscrossed Captions' judgements, with pictures: a
hundred of MS-COCO's."""

import csv
import json
import runpy
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import call

DATA = Path(__file__).parents[3] / "shared" / "data" / "coco"
PICTURES, JUDGED, CAPTIONS = (
    DATA / name for name in ("tiny_coco.zip", "cxc_sits_test.csv", "test5k_captions.tsv")
)
TEMPLATE = "publish --layout mteb --license cc-by-4.0 --name coco-cxc --split test --language en"


def captions_of_both() -> list[tuple[str, str, str]]:
    """Image, caption id and text of the hundred pictures, and of every image of which a caption was
    judged with one of these: their pictures are not here."""
    rows: dict[str, tuple[str, str]] = {}
    with zipfile.ZipFile(PICTURES) as archive:
        for part in ("train", "val"):
            found = json.loads(archive.read(f"annotations/captions_{part}2017.json"))
            for one in found["annotations"]:
                text = " ".join(one["caption"].split())
                rows[str(one["id"])] = str(one["image_id"]), text
    images = {image for image, _ in rows.values()}
    with CAPTIONS.open(encoding="utf-8") as file:
        coco = {row["caption_id"]: row for row in csv.DictReader(file, delimiter="\t", quoting=3)}
    with JUDGED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            image = str(int(row["image"].removesuffix(".jpg").rpartition("_")[2]))
            caption = coco[row["caption"].rpartition(":")[2]]
            if image in images:
                rows[caption["caption_id"]] = caption["image_id"], caption["caption"]
    return [(image, caption_id, text) for caption_id, (image, text) in rows.items()]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not DATA.is_dir():
        pytest.skip(f"no {DATA}: MS-COCO's pictures and CxC's judgements are not in the repository")
    root = tmp_path_factory.mktemp("cxc")
    with (root / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("image_id", "caption_id", "caption"), *captions_of_both()])
    line = f"captions --source csv --input {root}/captions.csv --split test --out {root}/captions"
    assert call(*line.split()) == 0
    given = f"--captions {root}/captions --images {PICTURES} --unreadable skip"
    grades = f"--judgements {JUDGED} --grades related=2.5 --grades fits=4 --out {root}/out"
    assert call(*TEMPLATE.split(), *given.split(), *grades.split()) == 0
    return root


def test_the_task_file_prints_the_table_of_a_random_encoder(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures decoded by mteb, grades and queries those of the judgements; NDCG@10 of a random
    encoder is small, and not 0."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(benchmark / "cache"))
    out = benchmark / "out"
    judged = {
        (row["query-id"], row["corpus-id"]): row["gain"]
        for row in pq.read_table(out / "i2t-gains").to_pylist()
    }
    with JUDGED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            image = str(int(row["image"].removesuffix(".jpg").rpartition("_")[2]))
            if (pair := (image, row["caption"].rpartition(":")[2])) in judged:
                assert judged.pop(pair) == pytest.approx(float(row["agg_score"]))
    assert judged == {}
    corpus = pq.read_table(out / "images")
    assert corpus.num_rows == 100 and pq.read_table(out / "i2t-gains").num_rows == 152
    table = runpy.run_path(str(out / "task.py"))["table"]([])
    lines = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
    assert [line[2] for line in lines] == ["CocoCxcT2I", "CocoCxcI2T"]
    values = np.array([line[4:8] for line in lines], float)
    assert (values >= 0).all() and (values <= 1).all()
    assert 0.01 < values[:, 0].mean() < 0.5
