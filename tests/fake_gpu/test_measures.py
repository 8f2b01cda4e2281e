"""The measures with a form for a GPU, and the encoder, on a device: the kernels' values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.measures import choose, embeddings, on_device
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.fake_gpu.device import DEVICE, FakeGpu
from tests.pipelines.measures.test_on_device import FORMS


@pytest.mark.parametrize(("name", "block"), FORMS, ids=str)
def test_equals_the_kernels(name: str, block: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across chunks, with short, long and very long references."""
    monkeypatch.setattr("capgrade.pipelines.measures.base.CHUNK", 32)
    monkeypatch.setattr("capgrade.pipelines.measures.cider.CHUNK", 32)
    captions = make_captions([*random_sets(12, seed=5, least=2), ["a dog " * 20, "cat"], ["red ball " * 40, "a dog"]])
    fitted = choose([name], MeasuresParams(**{name: block}))[name].fit(captions)
    images = np.random.default_rng(0).permutation(captions.n_images)
    with FakeGpu():
        moved = on_device.on_device(fitted, DEVICE)
        assert type(moved) is not type(fitted)
        found = moved.score(images)
    assert np.abs(found - fitted.score(images)).max() < 1e-5


def test_the_encoder_goes_where_it_is_told_and_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is there, and cpu was asked for: the library alone would take the GPU."""
    texts, told = ["a dog", "two cats on a mat"], []
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda _, device: told.append(device))
    with FakeGpu():
        for device in ("cpu", "cuda"):
            embeddings.load_encoder(embeddings.EMBEDDED, device)
        assert told == ["cpu", "cuda:0"]
        names = {embeddings.cache_name(texts, embeddings.EMBEDDED, device) for device in ("cpu", "cuda", "cuda:0")}
        assert len(names) == 2
        with pytest.raises(InputError, match="no GPU 7 for device cuda:7: torch sees 1 -> use cuda:0"):
            embeddings.embed(texts, embeddings.EMBEDDED, tmp_path, "cuda:7")
