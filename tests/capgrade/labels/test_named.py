"""What a manifest names is opened only where the user names it too; what is published names no place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from capgrade.labels.named import EXACT, as_named, base_names
from capgrade.measures import embeddings
from capgrade.pipelines.publish.tables import own_without_themselves
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from tests.conftest import call, make_captions, random_sets

MADE = Path("dataset")


def params(**blocks: Any) -> MeasuresParams:
    return MeasuresParams.model_validate(blocks)


def test_the_default_encoder_needs_no_name() -> None:
    made = params(sbert={"references": "mean"}, cider={"sigma": 3})
    assert as_named(made, params(sbert={"model": "mine"}), MADE) == made


@pytest.mark.parametrize("model", ["someone/encoder", "/home/them/encoder", "encoder", "../encoder", "."])
def test_another_encoder_is_refused_until_it_is_named(model: str) -> None:
    made = params(sbert={"model": model})
    with pytest.raises(InputError) as caught:
        as_named(made, MeasuresParams(), MADE)
    assert str(caught.value) == (
        f"dataset: its labels were made with the encoder '{model}', which is not opened unasked -> "
        f"if you trust it, name it: --set measures.sbert.model={model}"
    )
    assert as_named(made, params(sbert={"model": model}), MADE) == made
    with pytest.raises(InputError, match=r"name it: exact\(..., model='"):
        as_named(made, MeasuresParams(), MADE, EXACT)


def test_a_published_base_name_stands_for_the_path_that_is_given() -> None:
    made = params(sbert={"model": "encoder"}, cider={"document_frequency": "coco#train"})
    given = params(sbert={"model": "/models/encoder"}, cider={"document_frequency": "/data/coco#train"})
    assert as_named(made, given, MADE) == given
    with pytest.raises(InputError, match="encoder 'encoder'"):
        as_named(made, params(sbert={"model": "/models/other"}), MADE)


def test_devices_memory_and_folders_to_write_are_the_users() -> None:
    made = params(sbert={"device": "cuda"}, spice={"cache": "/home/them", "memory": "900G"})
    assert as_named(made, MeasuresParams(), MADE) == MeasuresParams()


@pytest.mark.parametrize("name", ["cider", "cider_plain"])
@pytest.mark.parametrize("file", ["/home/them/df.arrow", "../df.arrow", "/data/coco#train"])
def test_frequencies_elsewhere_are_refused_until_they_are_named(name: str, file: str) -> None:
    made = params(**{name: {"document_frequency": file}})
    with pytest.raises(InputError, match=f"-> if you trust it, name it: --set measures.{name}.document_frequency="):
        as_named(made, MeasuresParams(), MADE)
    assert as_named(made, made, MADE) == made
    below = params(**{name: {"document_frequency": "data/df.arrow"}})
    assert as_named(below, MeasuresParams(), MADE) == below, "where the command runs"


def test_publishing_opens_no_encoder_of_the_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "load_encoder", lambda *_: pytest.fail("opened"))
    used = params(sbert={"model": "someone/encoder"}).used(["sbert"])
    labels: Any = SimpleNamespace(made_with=used, inputs={}, file="shards", table=make_captions([["a dog", "a cat"]]))
    with pytest.raises(InputError, match="shards: its labels were made with the encoder 'someone/encoder'"):
        own_without_themselves(labels, MeasuresParams())


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
