"""Captions, measures without an encoder, relevance, shards, metrics, and reading labels need no
extra."""

import importlib
import json
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pytest

import capgrade
from capgrade.measures import MEASURES, choose
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines import cli
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.extras import EXTRAS, MissingExtraError
from capgrade.schemas.files import write_manifest
from capgrade.schemas.relevance import read_relevance

TABLES_READ = ("meteor", "scene_graph", "spice")
ENCODED = ("sbert", "image_text", "reranker", "image_reranker", "trained")
IN_THE_CORE = [
    name for name in MEASURES if not name.startswith(ENCODED) and name not in TABLES_READ
]
SCENES = [
    f"captions.scenes.{k}={v}" for k, v in {"train": 4, "val": 0, "test": 6, "size": 64}.items()
]


def run(line: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    """Exit status of a command line."""
    monkeypatch.setattr(sys, "argv", ["capgrade", *line.split(), *more])
    try:
        cli.main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions that the command wrote, in the working folder."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sets = [word for value in SCENES for word in ("--set", value)]
        assert run("captions --out captions", patch, *sets) == 0
    captions = read_captions(folder / "captions", "test")
    judged = [f"{captions.image_ids[0]},{name},{k}" for k, name in enumerate(captions.caption_ids)]
    (folder / "judged.csv").write_text(
        "\n".join(["image_id,caption_id,score", *judged]) + "\n", encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def captions(folder: Path) -> Captions:
    return read_captions(folder / "captions", "test")


@pytest.fixture(scope="module")
def scores(captions: Captions) -> dict[str, np.ndarray]:
    """Relevance of every caption to every image, in memory."""
    chosen = choose(IN_THE_CORE, MeasuresParams())
    return {
        name: measure.fit(captions).score(np.arange(captions.n_images))
        for name, measure in chosen.items()
    }


def test_nothing_beside_the_core_is_here() -> None:
    if not os.environ.get("CAPGRADE_CORE_ALONE"):
        pytest.skip("CAPGRADE_CORE_ALONE is not set: other packages may be installed here")
    assert not [name for name in EXTRAS if PathFinder.find_spec(name)]
    assert Path(capgrade.__file__).is_relative_to(sys.prefix)


@pytest.mark.parametrize("name", IN_THE_CORE)
def test_a_measure_scores_in_memory(
    name: str, scores: dict[str, np.ndarray], captions: Captions
) -> None:
    values = scores[name]
    assert values.shape == (captions.n_images, captions.n_captions) and np.isfinite(values).all()
    own = values[captions.owner, np.arange(captions.n_captions)]
    assert own.mean() > 2 * values.mean()


def test_labels_are_made_read_shown_and_evaluated_against(
    folder: Path,
    scores: dict[str, np.ndarray],
    captions: Captions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert (
        run(
            "relevance --captions captions --split test --measures cider --out relevance",
            monkeypatch,
        )
        == 0
    )
    assert np.array_equal(
        read_relevance(folder / "relevance" / "cider.arrow").matrix(), scores["cider"]
    )
    assert capgrade.Labels.load("relevance", captions="captions").measures == ["cider"]
    assert (
        run("shards --captions captions --split test --measures cider --out shards", monkeypatch)
        == 0
    )
    pairs = next(capgrade.Labels.load("shards").stored.pairs("cider"))
    wanted = scores["cider"][pairs.image, pairs.caption]
    np.testing.assert_allclose(pairs.value, wanted, rtol=0, atol=1e-6)
    assert run("verify .", monkeypatch) == 0
    capsys.readouterr()
    assert run("search --captions captions --relevance relevance --json", monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["images"][0]["original"]
    np.save(folder / "similarity.npy", scores["rouge_l"])
    line = (
        "evaluate --captions captions --split test --similarity similarity.npy --relevance"
        " relevance --out run"
    )
    assert run(line, monkeypatch, "--set", "evaluate.samples=5") == 0
    assert (folder / "run" / "metrics.json").is_file()
    own = captions.owner[None] == np.arange(captions.n_images)[:, None]
    assert np.asarray(capgrade.metrics.ndcg(scores["rouge_l"], scores["cider"], k=5)).min() > 0.5
    assert np.asarray(capgrade.metrics.recall(scores["cider"], own, k=5)).mean() > 0.9


def test_public_names_of_tensors_name_the_extra() -> None:
    with pytest.raises(
        MissingExtraError, match=r"torch is not installed -> pip install 'capgrade\[train\]'"
    ):
        capgrade.losses  # noqa: B018


ENCODER, TABLES = "sentence_transformers", "pycocoevalcap"
LINES = {
    "relevance --captions captions --split test --out dense": (ENCODER, "encoder"),
    "relevance --captions captions --split test --measures cider --out dense -- --runner=DirectRunner": (
        "apache_beam",
        "beam",
    ),
    "shards --captions captions --split train --measures people --out s -- --runner=DirectRunner": (
        f"apache_beam, {ENCODER}, {TABLES}",
        "beam,encoder,meteor",
    ),
    "agree --captions captions --split test --judgements judged.csv": (ENCODER, "encoder"),
    "audit --captions captions --relevance relevance": ("vl_convert", "report"),
    "audit --captions captions --relevance relevance --stand-in 0": (
        f"vl_convert, {ENCODER}",
        "report,encoder",
    ),
    "score --candidates a.json --references b.json --measures sbert": (ENCODER, "encoder"),
    "score --candidates a.json --references b.json": (TABLES, "meteor"),
    "relevance --captions captions --split test --measures scene_graph --out dense": (
        TABLES,
        "meteor",
    ),
    "regions --images captions --out regions": ("torch", "train"),
    "train --captions captions --regions regions --out run2": (
        f"torch, {ENCODER}",
        "train,encoder",
    ),
    "search --run run --query dog": (f"torch, {ENCODER}", "train,encoder"),
    "publish --captions captions --shards SHARDS --license cc0-1.0 --out d": (
        "datasets",
        "publish",
    ),
    "explore sample --captions captions --out review": (ENCODER, "encoder"),
    "embed --run run --captions captions --regions regions --out index": ("torch", "train"),
    "captions --source hub --input nobody/nothing --out hub": ("datasets", "publish"),
    "publish push dataset nobody/nothing": ("huggingface_hub", "publish"),
    "report --data . --out report.html": ("vl_convert", "report"),
    "explore --captions captions": (f"fastapi, {ENCODER}", "explorer,encoder"),
    "explore --captions captions --shards SHARDS --run run": (
        f"fastapi, torch, {ENCODER}",
        "explorer,train,encoder",
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_names_all_that_it_lacks(
    line: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    modules, extras = LINES[line]
    (tmp_path / "shards.arrow").touch()
    params = {"measures": {"mine": {"weights": {"sbert": 1.0}, "measures": {"sbert": {}}}}}
    write_manifest(tmp_path, "shards", params=params, inputs={}, rows={"shards.arrow": 0})
    assert run(line.replace("SHARDS", str(tmp_path)), monkeypatch) == 2
    told = capsys.readouterr().err.strip()
    are = "are" if "," in modules else "is"
    told = told.removesuffix(", or leave meteor and scene_graph out of the measures")
    assert told == f"error: {modules} {are} not installed -> pip install 'capgrade[{extras}]'"


@pytest.mark.parametrize(
    ("name", "extra"), [("sbert", "encoder"), *((name, "meteor") for name in TABLES_READ)]
)
def test_what_a_measure_reads_is_asked_for_by_its_extra(
    name: str, extra: str, captions: Captions
) -> None:
    with pytest.raises(MissingExtraError, match=rf"capgrade\[{extra}\]"):
        choose([name], MeasuresParams())[name].fit(captions)


def test_a_missing_module_of_no_extra_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        importlib.import_module("capgrade.no_such_module")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run("verify .", monkeypatch)


def test_scores_of_captions() -> None:
    references = {"1": ["a dog is running", "the dog runs fast"], "2": ["two men are talking"]}
    candidates = {"1": ["a dog runs"], "2": ["two men talk"]}
    found = capgrade.score(candidates, references, measures=["bleu", "rouge_l", "cider"])
    assert all(0 < value < 10 for value in found.corpus.values())
    assert len(found.intervals(samples=10)) == 6
    reward = capgrade.CiderReward(capgrade.Frequencies.of(references))
    assert reward([["a dog runs"]], [references["1"]])[0, 0] == pytest.approx(
        found.sentences["cider"][0]
    )
    meter = capgrade.CaptionScores(["rouge_l"])
    meter.update({"1": ["a dog runs"]}, {"1": references["1"]})
    assert meter.compute().ids == ["1"]
    assert capgrade.coco.Rouge().method() == "Rouge"
