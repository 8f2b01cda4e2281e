"""Digests of inputs: every byte that a stage reads changes them, and nothing else does."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from capgrade.measures import MEASURES, choose, file_digests
from capgrade.measures.params import MeasuresParams
from capgrade.measures.sbert import SbertParams
from capgrade.pipelines.detectors.catalogue import detector_digests
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.pretrained import fingerprint
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, folder_digest


def of(names: list[str], params: MeasuresParams) -> dict[str, str]:
    return file_digests(choose(names, params).values())


@pytest.mark.parametrize(
    "name", ["model.safetensors", "spiece.model", "tokenizer.json", "1_Pooling/config.py"]
)
def test_any_file_of_a_model_tells_it_from_another(name: str, tmp_path: Path) -> None:
    """Not those of some suffixes alone: a tokenizer's merges, code, a SentencePiece model."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1")
    (tmp_path / "other").write_text("2")
    before = fingerprint(str(tmp_path))
    (tmp_path / name).write_text("3")
    changed = fingerprint(str(tmp_path))
    (tmp_path / name).write_text("2")
    (tmp_path / "other").write_text("1")
    assert len({before, changed, fingerprint(str(tmp_path))}) == 3
    params = MeasuresParams(sbert=SbertParams(model=str(tmp_path)))
    assert (
        of(["sbert"], params)
        == {"measures.sbert.model": folder_digest(tmp_path)}
        == of(["sbert_mean"], params)
    )


def test_measures_name_what_they_read(tmp_path: Path) -> None:
    """Of an installed package, by name; those that read nothing beside the captions have
    nothing."""
    without = {"bleu", "rouge_l", "tfidf_cosine", "cider", "cider_plain"}
    found = {
        name: set(of([name], MeasuresParams()))
        for name in MEASURES
        if name not in ("spice", "image_text", "reranker", "image_reranker", "trained")
    }
    assert {name for name, read in found.items() if not read} == without
    assert found["meteor"] == {"meteor-1.5.jar", "paraphrase-en.gz"}
    assert found["scene_graph"] == {"meteor-1.5.jar"}
    mixed = of(["people"], MeasuresParams())
    assert set(mixed) == {"measures.sbert.model", "meteor-1.5.jar"}
    with pytest.raises(InputError, match="cannot be read"):
        of(["theirs"], MeasuresParams(imported={"theirs": str(tmp_path / "none.npy")}))


def test_a_config_s_bases_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that detectron2 has in its zoo, which another version may have changed."""
    zoo = tmp_path / "model_zoo" / "configs"
    zoo.mkdir(parents=True)
    (zoo / "base.yaml").write_text("MODEL: {}\n")
    (zoo / "middle.yaml").write_text('_BASE_: "base.yaml"\n')
    (zoo / "top.yaml").write_text("MODEL: {}\n_BASE_: middle.yaml\n")
    monkeypatch.setitem(
        sys.modules, "detectron2", SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    )
    names = {"config": "top.yaml", "config base 1": "middle.yaml", "config base 2": "base.yaml"}
    for config in (str(zoo / "top.yaml"), "top"):
        read = detector_digests(RegionsParams(detector="detectron2", config=config, weights="none"))
        assert read == {name: digest(zoo / file) for name, file in names.items()}
