"""`capgrade init`: what it says before it writes, what it writes, and what it never touches."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import yaml
from PIL import Image

from capgrade.params import load_params
from tests.conftest import ROOT, call, printed, refusal
from tests.layouts import LAYOUTS

N = 20
FLICKR8K = ROOT / "pipelines" / "project" / "flickr8k.yaml"
SCENES = ("--set", "regions.detector=scenes")


@pytest.fixture
def bare() -> None:
    """Asked for by tests of what is set up: git, and DVC by two processes of it."""


@pytest.fixture(autouse=True)
def dvc_is_there(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The others write where it is set up already."""
    if "bare" not in request.fixturenames:
        (tmp_path / ".dvc").mkdir()
        (tmp_path / ".dvc" / "config").touch()


@pytest.fixture
def flickr30k(tmp_path: Path) -> Path:
    LAYOUTS["flickr30k"](tmp_path / "f", N)
    return tmp_path / "f"


def written(project: Path) -> dict:
    return yaml.safe_load((project / "params.yaml").read_text())


def test_it_looks_then_writes_a_project(
    bare: None, flickr30k: Path, tmp_path: Path, capsys
) -> None:
    pictures = sorted((flickr30k / "flickr30k-images").glob("*"))
    pictures[0].rename(pictures[0].with_name("9.jpg"))
    project = tmp_path / "p"
    assert call("init", project, "--template", "flickr30k", "--data", flickr30k, *SCENES) == 0
    said = capsys.readouterr().out
    assert "5 captions an image, splits train 12 / val 4 / test 4, 19 of 20 pictures found" in said
    assert (
        "no pictures of 1 of the 20 images: '100" in said
        and "not asked for: 1 of 20 pictures: 9.jpg" in said
    )
    stops = "the stage `regions` stops for these pictures, unless --set regions.unreadable=skip"
    assert stops in said
    skip = ("--data", flickr30k, *SCENES, "--set", "regions.unreadable=skip")
    assert call("init", tmp_path / "q", "--template", "flickr30k", *skip) == 0
    assert "19 of 20 pictures" in (said := capsys.readouterr().out) and "stops for" not in said
    params = load_params(project / "params.yaml")
    assert params.captions.source == "karpathy" and Path(str(params.captions.input)).is_absolute()
    assert (params.train.split, params.train.validation, params.evaluate.split) == (
        "train",
        "val",
        "test",
    )
    assert (
        params.publish.name == "p"
        and params.runs == ("triplet",)
        and params.agree.judgements is None
    )
    assert (project / "dvc.yaml").read_bytes() == (ROOT / "dvc.yaml").read_bytes()
    assert (project / ".gitignore").read_text().splitlines() == ["/data/", "/dvc_plots/"]
    assert len((project / "README.md").read_text().splitlines()) <= 25
    assert 'type = "hardlink,copy"' in (project / ".dvc" / "config").read_text()
    assert (project / ".dvcignore").read_text().splitlines() == ["*.unfinished*"]


@pytest.mark.parametrize("name", ["params.yaml", "dvc.yaml", "README.md"])
def test_a_file_that_is_there_is_not_touched(flickr30k: Path, tmp_path: Path, name: str) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / name).write_text("mine\n")
    call("init", project, "--template", "flickr30k", "--data", flickr30k, *SCENES)
    assert [path.name for path in project.iterdir()] == [name] and (
        project / name
    ).read_text() == "mine\n"


def test_within_git_and_where_dvc_is_there(bare: None, flickr30k: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    (repository / ".gitignore").write_text("*.tmp\n")
    given = ("--template", "flickr30k", "--data", flickr30k, *SCENES)
    assert call("init", repository, *given) == 0
    assert (repository / ".gitignore").read_text().splitlines() == [
        "*.tmp",
        "/data/",
        "/dvc_plots/",
    ]
    config = (repository / ".dvc" / "config").read_bytes()
    assert call("init", repository / "below", *given) == 0
    assert (
        not (repository / "below" / ".dvc").exists()
        and (repository / ".dvc" / "config").read_bytes() == config
    )


def test_a_source_without_splits_is_divided_by_its_images(tmp_path: Path, capsys) -> None:
    LAYOUTS["webdataset"](tmp_path / "w", N)
    given = (
        "--source",
        "webdataset",
        "--input",
        tmp_path / "w",
        "--images",
        tmp_path / "w",
        *SCENES,
    )
    assert call("init", tmp_path / "p", *given) == 0
    assert written(tmp_path / "p")["captions"]["divide"] == {"val": 0.1, "test": 0.1}
    assert (
        "no splits: 0.1 of the images are val, 0.1 of the images are test"
        in capsys.readouterr().out
    )
    assert printed("init", tmp_path / "q", *given)["params"] == written(tmp_path / "q")


def test_what_no_stage_would_take_is_refused_before_anything_is_written(
    flickr30k: Path, tmp_path: Path
) -> None:
    project = tmp_path / "p"
    given = ("init", project, "--template", "flickr30k", "--data", flickr30k)
    said = refusal(*given)
    assert "no detector for these pictures" in said
    assert "--set regions.detector=patches --set regions.model=MODEL" in said
    assert "unknown preset 'nosuch'" in refusal(*given, *SCENES, "--preset", "nosuch")
    assert "unknown parameter 'shards.tops'" in refusal(*given, *SCENES, "--set", "shards.tops=8")
    assert "none of train2014, val2014" in refusal(
        "init", project, "--template", "coco", "--data", flickr30k
    )
    assert "no such folder" in refusal(
        "init", project, "--template", "coco", "--data", tmp_path / "nothing"
    )
    assert "near it: flickr8k, flickr30k; choose from: scenes, flickr8k" in refusal(
        "init", project, "--template", "flicker"
    )
    assert "give --template, or --source" in refusal("init", project)
    weights = ("--set", "regions.detector=bottom_up", "--set", "regions.weights=w.pth")
    assert "no such file -> check regions.weights" in refusal(*given, *weights)
    other = tmp_path / "other"
    LAYOUTS["coco"](other, 5)
    captions = ("--source", "karpathy", "--input", flickr30k / "dataset_flickr30k.json")
    said = refusal("init", project, *captions, "--images", other / "train2014", *SCENES)
    assert "3 pictures, of none of the 20 images" in said and "100009" in said
    assert not project.exists()


def test_features_are_read_before_anything_is_written(tmp_path: Path) -> None:
    """Another layout's rows have ids too, so that ids alone do not tell."""
    LAYOUTS["coco"](tmp_path / "c", 5)
    given = ("init", tmp_path / "p", "--template", "coco", "--data", tmp_path / "c")
    features = tmp_path / "c" / "trainval_resnet101_faster_rcnn_genome_36.tsv"
    given = (*given, "--features", features)
    assert "both their place and their format" in refusal(*given)
    assert "looks like the format tsv" in refusal(*given, "--format", "lxmert")
    assert not (tmp_path / "p").exists()
    assert call(*given, "--format", "tsv") == 0


def test_scenes_are_the_repositorys_own_parameters(tmp_path: Path) -> None:
    assert (
        call("init", tmp_path / "p", "--template", "scenes", "--set", "captions.scenes.train=9")
        == 0
    )
    own = yaml.safe_load((ROOT / "params.yaml").read_text())
    own["captions"]["scenes"]["train"] = 9
    assert written(tmp_path / "p") == own


def test_captions_of_another_language_have_to_be_named(tmp_path: Path) -> None:
    """Publishing would ask for it, after hours."""
    ids = {
        row.split("\t")[0]
        for row in (ROOT / "examples" / "german.tsv").read_text().splitlines()[1:]
    }
    (tmp_path / "pictures").mkdir()
    for image_id in ids:
        Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / f"{image_id}.png")
    given = (
        "--source",
        "tsv",
        "--input",
        ROOT / "examples" / "german.tsv",
        "--images",
        tmp_path / "pictures",
        *SCENES,
    )
    assert (
        "tell English (a, the, of, with, and, ...) -> say what they are in: --language en"
        in refusal("init", tmp_path / "p", *given)
    )
    assert call("init", tmp_path / "p", *given, "--language", "de") == 0
    assert written(tmp_path / "p")["publish"]["language"] == "de"


def test_splits_of_unusual_names_are_asked_for(tmp_path: Path, capsys) -> None:
    rows = [
        f"{k}\t{split}\ta red dog on the sand" for k, split in enumerate(["learn", "learn", "hold"])
    ]
    (tmp_path / "c.tsv").write_text("image_id\tsplit\tcaption\n" + "\n".join(rows) + "\n")
    for k in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{k}.png")
    given = (
        "init",
        tmp_path / "p",
        "--source",
        "tsv",
        "--input",
        tmp_path / "c.tsv",
        "--images",
        tmp_path,
        *SCENES,
    )
    assert "splits learn, hold: which are to learn from" in refusal(*given)
    assert call(*given, "--set", "train.split=learn", "--set", "evaluate.split=hold") == 0
    assert (
        "triplet trains in batches of 128, and learn has 2 captions: --set train.batch_size=N"
    ) in capsys.readouterr().out
    params = load_params(tmp_path / "p" / "params.yaml")
    assert (params.shards.split, params.relevance.split, params.train.validation) == (
        "learn",
        "hold",
        None,
    )


def test_what_lies_here_is_found_from_the_project(
    flickr30k: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pth").touch()
    sets = ("--set", "regions.detector=bottom_up", "--set", "regions.weights=w.pth")
    assert call("init", "p", "--template", "flickr30k", "--data", "f", *sets) == 0
    tree = written(tmp_path / "p")
    assert tree["regions"]["weights"] == "../w.pth"
    assert tree["regions"]["images"] == "../f/flickr30k-images"


@pytest.mark.parametrize("given", [
    "measures.cider_plain.document_frequency=f/df.arrow", "measures.cider.document_frequency=f/df.arrow#a",
    "measures.image_text.model=f", "measures.reranker.model=f", "embed.coarse=f/s.npy",
    "train.init=f", "measures.imported.mine=f/m.npy", "presets.own={init: f}",
    "train.model.options={words: f/dataset_flickr30k.json}", "regions.boxes_of=f",
    "evaluate.judgements=[f/dataset_flickr30k.json]",
])  # fmt: skip
def test_every_place_that_a_set_names_is_found_from_the_project(
    given: str, flickr30k: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ("--template", "flickr30k", "--data", "f", *SCENES, "--set", given)
    found = printed("init", "p", *args)["params"]
    assert found == written(tmp_path / "p") and str(tmp_path) not in str(found)
    loaded = load_params(tmp_path / "p" / "params.yaml").model_dump(mode="json")
    value, (key, _, typed) = loaded, given.partition("=")
    for name in key.split("."):
        value = value[name]
    several = value.values() if isinstance(value, dict) else value
    texts = [one for one in ([value] if isinstance(value, str) else several) if one]
    assert texts == [str(tmp_path / typed.strip("{}[]").rpartition(": ")[2])]


def test_what_lies_elsewhere_stays_absolute_and_names_stay_names(
    tmp_path: Path, monkeypatch
) -> None:
    LAYOUTS["flickr30k"](tmp_path / "far" / "f", N)
    far = tmp_path / "far" / "f"
    given = ("--template", "flickr30k", "--data", far, "--set", "regions.detector=patches")
    model = (
        "--set",
        "regions.model=google/vit",
        "--set",
        "agree.judgements=data/captions/truth.arrow",
    )
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    assert call("init", "p", *given, *model) == 0
    tree = written(tmp_path / "home" / "p")
    assert tree["regions"]["images"] == str(far / "flickr30k-images")
    assert tree["regions"]["model"] == "google/vit"
    assert tree["agree"]["judgements"] == "data/captions/truth.arrow"


def test_splits_and_presets_that_are_not_there_are_refused_with_the_nearest(
    flickr30k: Path, tmp_path: Path
) -> None:
    given = ("init", tmp_path / "p", "--template", "flickr30k", "--data", flickr30k, *SCENES)
    for key in ("evaluate.split", "train.validation", "relevance.split", "regions.split"):
        said = refusal(*given, "--set", f"{key}=tset")
        assert (
            f"{key} is 'tset': the captions have no split 'tset' -> near it: test; choose from: "
            in said
        )
    assert call(*given, "--set", "train.split=train+val", "--set", "train.validation=null") == 0
    given = ("init", tmp_path / "q", "--template", "flickr30k", "--data", flickr30k, *SCENES)
    said = refusal(*given, "--preset", "nope", "--set", "runs=[triplet]")
    assert "--preset and --set runs name two lists" in said
    scenes = ("init", tmp_path / "q", "--template", "scenes")
    assert "unknown preset 'nope'" in refusal(*scenes, "--preset", "nope")
    assert call(*scenes, "--preset", "scenes_sam", "--license", "mit") == 0
    tree = written(tmp_path / "q")
    assert (tree["runs"], tree["publish"]["license"]) == (["scenes_sam"], "mit")


@pytest.mark.parametrize("ids", ["regions.ids={}", "regions.ids=[{}]"])
def test_ids_of_an_array_are_given_by_a_set(ids: str, flickr30k: Path, tmp_path: Path) -> None:
    names = [path.stem for path in sorted((flickr30k / "flickr30k-images").iterdir())]
    np.save(tmp_path / "F.npy", np.ones((len(names), 2, 4), np.float32))
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    given = ("init", tmp_path / "p", "--template", "flickr30k", "--data", flickr30k)
    given = (*given, "--features", tmp_path / "F.npy", "--format", "npy")
    said = refusal(*given)
    assert "an array without its image ids -> give --set regions.ids=FILE" in said
    assert call(*given, "--set", ids.format(tmp_path / "names.txt")) == 0
    assert "../names.txt" in str(written(tmp_path / "p")["regions"]["ids"])


def test_a_project_has_git_or_does_not_speak_of_experiments(
    bare: None, tmp_path: Path, monkeypatch
) -> None:
    assert call("init", tmp_path / "p", "--template", "scenes") == 0
    assert (tmp_path / "p" / ".git").is_dir()
    assert "dvc exp run" in (tmp_path / "p" / "README.md").read_text()
    monkeypatch.setattr("capgrade.pipelines.project.init.which", lambda _: None)
    assert call("init", tmp_path / "q", "--template", "scenes") == 0
    assert not (tmp_path / "q" / ".git").exists()
    assert "dvc exp" not in (tmp_path / "q" / "README.md").read_text()


def flickr8k(folder: Path, zipped: bool) -> Path:
    """Flickr8K as people hold it: texts with judgements in one folder, pictures in another one or
    in a zip without folders; one captioned name has no picture."""
    LAYOUTS["flickr8k"](folder, N)
    texts, pictures = folder / "Flickr8k_text", folder / "Flicker8k_Dataset"
    texts.mkdir()
    for path in folder.glob("Flickr*.txt"):
        path.rename(texts / path.name)
    names = (texts / "Flickr_8k.testImages.txt").read_text().split()
    rows = [f"{name}\t{names[0]}#{k}\t{k / 3}\t{k}\t{3 - k}" for name in names for k in range(4)]
    (texts / "CrowdFlowerAnnotations.txt").write_text("\n".join(rows) + "\n")
    rows = [f"{name}\t{names[1]}#{k}\t{k}\t{k}\t4" for name in names for k in range(1, 4)]
    (texts / "ExpertAnnotations.txt").write_text("\n".join(rows) + "\n")
    sorted(pictures.iterdir())[0].unlink()
    if zipped:
        with ZipFile(folder / "Flicker8k_224.zip", "w") as archive:
            for path in sorted(pictures.iterdir()):
                archive.write(path, path.name)
        shutil.rmtree(pictures)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_flickr8k_is_a_template_with_its_detector_its_runs_and_its_judgements(
    zipped: bool, tmp_path: Path, capsys
) -> None:
    data = flickr8k(tmp_path / "f", zipped)
    assert call("init", tmp_path / "p", "--template", "flickr8k", "--data", data) == 0
    said = capsys.readouterr().out
    assert "splits train 12 / val 4 / test 4, 19 of 20 pictures found" in said
    assert "no pictures of 1 of the 20 images: '1000268201_0" in said and "stops for" not in said
    assert "flickr8k_vse trains in batches of 128, and train has 60 captions: " in said
    assert "frozen trains in batches of 512, and train has 12 images: " in said
    tree, template = written(tmp_path / "p"), yaml.safe_load((FLICKR8K).read_text())
    pictures = "Flicker8k_224.zip" if zipped else "Flicker8k_Dataset"
    assert tree["regions"] == {"images": f"../f/{pictures}", **template["regions"]}
    assert (tree["runs"], tree["presets"]) == (template["runs"], template["presets"])
    crowd, experts = (
        f"../f/Flickr8k_text/{name}Annotations.txt" for name in ("CrowdFlower", "Expert")
    )
    assert tree["agree"] == {"judgements": crowd}
    assert tree["evaluate"]["judgements"] == [crowd, experts]


def test_what_is_given_stands_before_the_template(tmp_path: Path) -> None:
    data = flickr8k(tmp_path / "f", zipped=False)
    (data / "Flickr8k_text" / "CrowdFlowerAnnotations.txt").unlink()
    given = ("--template", "flickr8k", "--data", data)
    assert call("init", tmp_path / "p", *given, *SCENES, "--preset", "triplet") == 0
    tree, experts = written(tmp_path / "p"), "../f/Flickr8k_text/ExpertAnnotations.txt"
    assert tree["regions"] == {"images": "../f/Flicker8k_Dataset", "detector": "scenes"}
    assert tree["runs"] == ["triplet"] and tree["agree"] == {"judgements": experts}
    finer = ("--set", "regions.boxes=25", "--set", "evaluate.judgements=[]")
    assert call("init", tmp_path / "q", *given, *finer) == 0
    tree = written(tmp_path / "q")
    assert (tree["regions"]["boxes"], tree["regions"]["detector"]) == (25, "patches")
    assert tree["evaluate"]["judgements"] == []
    (data / "Flickr8k_text" / "ExpertAnnotations.txt").unlink()
    assert call("init", tmp_path / "r", *given) == 0
    tree = written(tmp_path / "r")
    assert tree["agree"] == {"judgements": None} and "judgements" not in tree["evaluate"]


def test_a_folder_that_its_repository_ignores_stands_alone(
    bare: None, flickr30k: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=repository, check=True)
    (repository / ".gitignore").write_text("/mine/\n")
    given = ("--template", "flickr30k", "--data", flickr30k, *SCENES)
    assert call("init", repository / "mine", *given) == 0
    assert (repository / "mine" / ".dvc").is_dir() and (repository / "mine" / ".git").is_dir()
    assert call("init", repository / "ours", *given) == 0
    assert not (repository / "ours" / ".dvc").exists()
