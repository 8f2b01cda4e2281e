"""Without a network: one error within seconds from all that fetches by a library, and what was
fetched is used."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets  # noqa: F401  before the clock starts
import pytest
import sentence_transformers  # noqa: F401
from huggingface_hub import constants

from capgrade.measures.embeddings import load_encoder
from capgrade.pipelines.sources import read_source
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.pretrained import from_pretrained
from capgrade.schemas.errors import InputError
from capgrade.schemas.hub import WAIT, hub_source
from capgrade.trainer.models.text_encoder import load_tokenizer


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache of the hub's client; nobody listens where the hub should be."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield tmp_path


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        ("model", load_encoder),
        ("model", load_tokenizer),
        ("dataset", lambda name: list(read_source(CaptionsParams(source="hub", input=name)))),
    ],
    ids=["encoder", "trainer", "captions"],
)
def test_one_error_within_seconds(
    kind: str, load: Callable, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError) as found:
        load("nobody/nothing")
    assert time.perf_counter() - start < WAIT + 10
    problem = f"the {kind} 'nobody/nothing' is not on this machine, and the hub does not answer (http://127.0.0.1:9)"
    assert str(found.value) == f"{problem} -> check the network and HF_ENDPOINT, or give a folder"
    assert "Retrying" not in capfd.readouterr().err


def test_what_was_fetched_is_used(fetched: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, commit = fetched / "models--me--bert", "1" * 40
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text(
        json.dumps({"model_type": "bert", "hidden_size": 24})
    )
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    assert from_pretrained("AutoConfig", "text encoder", "me/bert").hidden_size == 24
    said = capfd.readouterr().err
    assert said == "the hub does not answer: the model 'me/bert' is as an earlier run fetched it\n"


def test_folders_and_what_is_no_name_of_the_hub_are_not_asked_for(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "nothing"), "a/b/c"):
        assert hub_source(name) == name
