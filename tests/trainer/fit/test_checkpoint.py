"""A run's folder may be anybody's: what its files name is neither fetched nor opened beyond it."""

import json
import os
from pathlib import Path

import pytest
import torch

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.text import load_tokens
from capgrade.trainer.fit import CONFIG, MODEL, VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run, read_config, save_model
from capgrade.trainer.search.index import embed
from capgrade.trainer.stages.embed import EmbedParams

NAMES = [("teran", "text_model"), ("vse_infinity", "text_model"), ("clip", "pretrained")]


def theirs(folder: Path, name: str, **model: str) -> Path:
    folder.mkdir()
    config = {"params": {"model": {"name": name}}, "model": model, "feature_dim": 8}
    (folder / CONFIG).write_text(json.dumps(config))
    (folder / VOCABULARY).write_text(json.dumps({"tokenizer": "lower_split", "words": ["a"]}))
    (folder / MODEL).write_bytes(b"")
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hub's client was asked to fetch."""
    found: list[str] = []

    def fetch(model: str, *_: object, **__: object) -> None:
        found.append(model)
        raise OSError("out of reach")

    for name in ("AutoConfig", "AutoModel", "AutoTokenizer", "AutoImageProcessor"):
        monkeypatch.setattr(f"transformers.{name}.from_pretrained", fetch)
    return found


@pytest.mark.parametrize(("name", "option"), NAMES)
def test_no_model_that_a_run_names_is_fetched(
    name: str, option: str, tmp_path: Path, asked: list[str]
) -> None:
    run = theirs(tmp_path / "run", name, **{option: "someone/encoder"})
    message = (
        "names the model 'someone/encoder', which is not on this machine .* -> .* hf download"
        " someone/encoder"
    )
    with pytest.raises(InputError, match=message):
        load_run(run)
    with pytest.raises(InputError, match=message):
        embed(tmp_path, tmp_path / "out", EmbedParams(), run=run, regions=tmp_path)
    assert asked == []


@pytest.mark.parametrize("kind", ["model", "checkpoint"])
def test_nor_one_that_its_vocabulary_names(kind: str, tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / VOCABULARY).write_text(json.dumps({kind: "someone/encoder"}))
    with pytest.raises(InputError, match="names the model 'someone/encoder'"):
        load_tokens(tmp_path / VOCABULARY)
    assert asked == []


VSE = {"params": {"model": {"name": "vse"}}, "model": {}, "feature_dim": 8}
DAMAGED = {
    "configuration of a run": (
        CONFIG,
        [
            {**VSE, **change}
            for change in (
                {"params": {"model": {"name": ["vse"]}}},
                {"feature_dim": "8"},
                {"feature_dim": -8},
                {"model": None},
                {"model": {"text_model": 3}},
                {"model": {"pretrained": ["a"]}},
                {"inputs": ["text_model"]},
                {"inputs": {"text_model": 3}},
            )
        ],
    ),
    "vocabulary": (
        VOCABULARY,
        [
            {"model": 3},
            {"checkpoint": None},
            {"tokenizer": "lower_split", "words": 3},
            {"tokenizer": ["x"], "words": ["a"]},
            {"tokenizer": "lower_split", "words": ["a", 1]},
        ],
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_one_error(what: str, tmp_path: Path) -> None:
    run, (name, contents) = theirs(tmp_path / "run", "vse"), DAMAGED[what]
    for content in contents:
        (run / name).write_text(json.dumps(content))
        with pytest.raises(InputError, match=f"{name}: not (a|the) {what}"):
            load_run(run)


def test_a_folder_of_a_model_is_on_this_machine(tmp_path: Path) -> None:
    run = theirs(tmp_path / "run", "teran", text_model=str(tmp_path))
    assert read_config(run)["model"] == {"text_model": str(tmp_path)}


@pytest.mark.parametrize(
    ("name", "problem"),
    [("tern", "'mean' is not known -> choose from: MrSw, "), ("vse", "no pooling to choose")],
)
def test_another_pooling_is_one_of_teran(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        load_run(theirs(tmp_path / "run", name), pooling="mean")


def test_weights_outside_the_run_are_refused(tmp_path: Path) -> None:
    run = theirs(tmp_path / "run", "sam")
    (tmp_path / "other.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"'../other.safetensors' is not a file of the run"):
        load_run(run, weights="../other.safetensors")


def test_a_model_may_be_read_as_every_other_file_of_the_run(tmp_path: Path) -> None:
    """By the umask: safetensors writes files that nobody else reads."""
    before = os.umask(0o027)
    try:
        save_model(tmp_path, torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    finally:
        os.umask(before)
    assert (tmp_path / MODEL).stat().st_mode & 0o777 == 0o640
