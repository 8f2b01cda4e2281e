"""`capgrade explore`, and `agree` of a review, as they are typed."""

import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.apps.explorer.voices import DEPTH
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.captions import Captions
from capgrade.schemas.reviews import read_plan
from tests.conftest import call, refusal
from tests.pipelines.publish.conftest import BOTH, PARAMS
from tests.tools.commands import CAPGRADE


@pytest.fixture(scope="module")
def folder(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of one split."""
    folder: Path = tmp_path_factory.mktemp("commands")
    publish(made / "captions", [made / "train"], folder / "dataset", PARAMS)
    return folder


def test_a_server_for_others_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """And so does one whose port is taken."""
    explore = ("explore", "--dataset", folder / "dataset", "--set")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call(*explore, f"explore.port={port}") == 2
    assert f"127.0.0.1:{port} cannot be listened on" in capsys.readouterr().err
    monkeypatch.setattr("capgrade.apps.explorer.app.serve", lambda *_: None)
    for host, others in {
        "0.0.0.0": True,
        "192.168.1.5": True,
        "127.0.0.1": False,
        "localhost": False,
    }.items():
        assert call(*explore, f"explore.host={host}") == 0
        warned = (
            "everybody who reaches this machine by network can search and rate, without a password"
        )
        assert (warned in capsys.readouterr().err) == others


def test_a_dataset_folder_is_served_until_interrupted(folder: Path, tmp_path: Path) -> None:
    command = [
        *CAPGRADE,
        "explore",
        "--dataset",
        str(folder / "dataset"),
        "--set",
        "explore.port=0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("explorer at http://127.0.0.1:")
            assert b"capgrade explorer" in urllib.request.urlopen(line.split()[-1]).read()
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(timeout=20)
    assert status in (0, 130)
    assert list(tmp_path.iterdir()) == [], "nothing is written before somebody reviews"


def test_a_dataset_of_the_hub_is_served_to_everybody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Space does."""
    served: list = []
    monkeypatch.setattr("capgrade.apps.explorer.app.serve", lambda *given: served.extend(given))
    monkeypatch.setattr("capgrade.labels.hub.download", lambda *_: folder / "dataset")
    for dataset in (folder / "dataset", "me/mine"):
        assert call("explore", "--dataset", dataset, "--set", "explore.host=0.0.0.0") == 0
    assert served[1:4] == [Path("reviews"), "0.0.0.0", 7860] and served[
        0
    ].corpus.pairs.values.keys() == set(BOTH)
    assert served[6].corpus.fingerprint == served[0].corpus.fingerprint


def test_a_dataset_of_ids_is_shown_with_the_texts_of_captions(
    made: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the dataset with texts, so that one review is of both; without captions it is said what is
    lacking."""
    served: list = []
    monkeypatch.setattr("capgrade.apps.explorer.app.serve", lambda *given: served.append(given[0]))
    ids = PARAMS.model_copy(update={"captions": "ids"})
    publish(made / "captions", [made / "train"], tmp_path / "ids", ids)
    said = refusal("explore", "--dataset", tmp_path / "ids")
    assert "captions have no text here, but ids -> give --captions FOLDER: what" in said
    assert call("explore", "--dataset", tmp_path / "ids", "--captions", made / "captions") == 0
    assert call("explore", "--dataset", folder / "dataset") == 0
    one, other = served
    assert one.corpus.fingerprint == other.corpus.fingerprint
    assert one.corpus.captions.texts == other.corpus.captions.texts
    hits = [[hit.number for hit in explorer.answer_caption(3)[0].hits] for explorer in served]
    assert hits[0] == hits[1]


def test_a_review_is_chosen_and_exported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """By labels, and of what a model misses that ranks each caption's own image last; its index is
    where `search` looks for it."""

    def loaded(name: str, run: Path, index: Path, captions: Captions) -> SimpleNamespace:
        first = [np.delete(np.arange(captions.n_images), owner)[:DEPTH] for owner in captions.owner]
        assert index == run / "index"
        images = np.arange(captions.n_captions), np.array(first)
        return SimpleNamespace(name=name, retrieve_images=lambda *_: images, retrieve_captions=None)

    monkeypatch.setattr("capgrade.apps.explorer.models.open_model_voice", loaded)
    sample = (
        "explore",
        "sample",
        "--dataset",
        folder / "dataset",
        "--set",
        "explore.count=3",
        "--set",
        "explore.seed=5",
    )
    assert call(*sample, "--out", tmp_path / "review") == 0
    plan = read_plan(tmp_path / "review")
    assert (len(plan.items), plan.seed, plan.protocol) == (3, 5, "information")
    assert call(*sample, "--out", tmp_path / "x", "--set", "explore.gallery=2") == 2, (
        "without a run it says nothing"
    )
    texts = "--set", "explore.direction=t2i"
    assert call(*sample, *texts, "--out", tmp_path / "misses", "--run", tmp_path / "mine") == 0
    plan = read_plan(tmp_path / "misses")
    assert (len(plan.items), plan.facts["model"], plan.facts["hits"]) == (3 * DEPTH, "mine", 0)
    for item in range(3):
        ReviewRatings.open(tmp_path / "review").rate("ann", item, item)
    assert call("explore", "export", tmp_path / "review", "--out", tmp_path / "judgements.csv") == 0
    assert "3 pairs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("explore", "give --dataset or --captions"),
        ("explore --dataset {dataset} --captions x", "x: no such folder"),
        ("explore --dataset {dataset} --shards {dataset}", "leave --shards and --relevance out"),
        ("explore --dataset nowhere", "no such folder, nor a dataset USER/NAME"),
        ("explore --dataset {dataset} --index x", "--index for 0 --run"),
        ("explore --dataset {dataset} --images {dataset}", "no column of pictures"),
        ("explore export nowhere --out x.csv", "capgrade explore sample"),
        ("explore export nowhere --out x.arrow", "call it .csv"),
        ("agree raters nowhere", "not a review"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*command.format(dataset=folder / "dataset").split()) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
