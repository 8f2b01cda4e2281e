"""What a manifest names is opened only where the user names it too: encoders, files, folders, devices."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capgrade.labels.named import EXACT, as_named
from capgrade.pipelines.measures import embeddings
from capgrade.pipelines.publish.tables import own_without_themselves
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions

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
    shards: Any = SimpleNamespace(
        metadata={"params": {"measures": used}}, manifest={"inputs": {}}, folder=Path("shards")
    )
    with pytest.raises(InputError, match="shards: its labels were made with the encoder 'someone/encoder'"):
        own_without_themselves(make_captions([["a dog", "a cat"]]), shards, MeasuresParams())
