"""What is published names no place on this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from capgrade.labels.named import base_names
from tests.conftest import call, random_sets


def test_paths_become_their_last_names(tmp_path: Path) -> None:
    measures = {
        "cider": {"document_frequency": "/home/ann/captions#val", "sigma": 6.0},
        "cider_plain": {"document_frequency": "/home/ann/df.arrow"},
        "sbert": {"model": "/home/ann/models/mine", "references": "max"},
        "mine": {"imported": "../ann/m.npy"},
        "both": {"weights": {"mine": 1.0}, "measures": {"mine": {"imported": "/home/ann/m.npy"}}},
        "spice": {"cache": "/home/ann/spice"},
    }
    captions = {"source": "flickr", "input": "/home/ann/f.token", "split_lists": {"dev": "/home/ann/dev.txt"}}
    found = base_names({"captions": captions, "measures": measures, "imported": {"x": "a/b/c.npy"}})
    assert found["captions"] == {"source": "flickr", "input": "f.token", "split_lists": {"dev": "dev.txt"}}
    assert found["measures"]["cider"] == {"document_frequency": "captions#val", "sigma": 6.0}
    assert found["measures"]["both"]["measures"]["mine"] == {"imported": "m.npy"}
    assert found["imported"] == {"x": "c.npy"}
    assert "ann" not in json.dumps(found)


def test_ids_of_the_hub_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub = {"source": "hub", "input": "some-org/flickr30k"}
    assert base_names(hub) == hub
    assert base_names({"sbert": {"model": "org/model-v2"}})["sbert"]["model"] == "org/model-v2"
    assert base_names({"source": "tsv", "input": "ann/c.tsv"})["input"] == "c.tsv"
    (tmp_path / "ann" / "saved").mkdir(parents=True)
    assert base_names({"source": "hub", "input": "ann/saved"})["input"] == "saved"
    assert base_names({"sbert": {"model": "ann/saved"}})["sbert"]["model"] == "saved"


def test_no_file_of_a_published_folder_names_a_place(tmp_path: Path) -> None:
    root = tmp_path / "home-of-ann"
    root.mkdir()
    sets = random_sets(8, seed=5)
    rows = [f"i{i}\ti{i}#{k}\t{text}" for i, texts in enumerate(sets) for k, text in enumerate(texts)]
    (root / "c.tsv").write_text("image_id\tcaption_id\tcaption\n" + "\n".join(rows) + "\n")
    np.save(root / "mine.npy", np.random.default_rng(0).random((8, len(rows)), np.float32))
    given = f"--measures cider,mine={root}/mine.npy"
    counted = f"--set measures.cider.document_frequency={root}/df.arrow"
    for line in (
        f"captions --source tsv --input {root}/c.tsv --split test --out {root}/c",
        f"captions --input {root}/c --frequencies {root}/df.arrow",
        f"shards --captions {root}/c {given} {counted} --out {root}/s",
        f"relevance --captions {root}/c {given} --out {root}/r",
        f"publish --captions {root}/c --shards {root}/s --relevance {root}/r --license mit --out {root}/d {counted}",
    ):
        assert call(*line.split()) == 0
    for path in (path for path in (root / "d").rglob("*") if path.is_file()):
        assert b"home-of-ann" not in path.read_bytes(), path
    card = (root / "d" / "README.md").read_text()
    assert "input: c.tsv" in card and "mine: mine.npy" in card and "document_frequency: df.arrow" in card
    shutil.rmtree(root)
