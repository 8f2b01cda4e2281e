"""The measures with a form for a GPU, and the encoder, on a device: the kernels' values."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from capgrade.kernels import id_keys
from capgrade.measures import Fitted, choose, embeddings, on_device
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.sampling.sampler import Plan, Sampler
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs
from tests.capgrade.measures.test_on_device import FORMS
from tests.conftest import make_captions, random_sets
from tests.fake_gpu.device import DEVICE, FakeGpu


@pytest.mark.parametrize(("name", "block"), FORMS, ids=str)
def test_equals_the_kernels(name: str, block: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across chunks, with short, long and very long references."""
    monkeypatch.setattr("capgrade.measures.base.CHUNK", 32)
    captions = make_captions(
        [*random_sets(12, seed=5, least=2), ["a dog " * 20, "cat"], ["red ball " * 40, "a dog"]]
    )
    fitted = choose([name], MeasuresParams(**{name: block}))[name].fit(captions)
    images = np.random.default_rng(0).permutation(captions.n_images)
    with FakeGpu():
        moved = on_device.on_device(fitted, DEVICE)
        assert type(moved) is not type(fitted)
        found = moved.score(images)
    assert np.abs(found - fitted.score(images)).max() < 1e-5


def test_what_is_kept_does_not_depend_on_blocks() -> None:
    """Bit for bit on a device; its values are within 1e-5 of the processor's."""
    params = MeasuresParams(mixtures={"both": {"cider": 0.1, "sbert": 1.0}})
    captions = make_captions(
        [*random_sets(70, seed=6, least=2), ["a dog " * 20, "cat"], ["red ball " * 40, "a dog"]]
    )
    measures = choose(["cider", "rouge_l", "sbert", "both"], params)
    fitted = {name: measure.fit(captions) for name, measure in measures.items()}
    plan = Plan(
        *zip(*((m.low, m.high) for m in measures.values()), strict=True), 5, 0.1, 0.05, 2, 6, 0
    )
    keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)

    def sampled(fitted: Mapping[str, Fitted], size: int) -> Iterator[np.ndarray]:
        sampler = Sampler(plan, fitted, *keys, captions.ref_ptr, captions.refs)
        blocks = np.split(np.arange(captions.n_images), range(size, captions.n_images, size))
        parts = [sampler.sample(block) for block in blocks]
        kept = Pairs.concatenate(part.pairs(names=list(fitted)) for part in parts)
        yield from (kept.caption, kept.reasons, kept.weight, np.stack(list(kept.values.values())))

    with FakeGpu():
        moved = {name: on_device.on_device(one, DEVICE) for name, one in fitted.items()}
        here, *there = [
            [*sampled(*given)] for given in ((fitted, 64), (moved, 16), (moved, 64), (moved, 512))
        ]
    for one in there:
        assert all(np.array_equal(a, b) for a, b in zip(one, there[0], strict=True))
        assert all(
            np.array_equal(a, b) for a, b in zip(one[:3], here[:3], strict=True)
        )  # no value is near an edge
        np.testing.assert_allclose(one[3], here[3], atol=1e-5, rtol=0)


def test_the_encoder_goes_where_it_is_told_and_is_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is there, and cpu was asked for: the library alone would take the GPU."""
    texts, told = ["a dog", "two cats on a mat"], []
    monkeypatch.setattr(
        "sentence_transformers.SentenceTransformer",
        lambda _, device, revision: told.append(device) or [None],
    )
    with FakeGpu():
        for device in ("cpu", "cuda"):
            embeddings.load_encoder(embeddings.EMBEDDED, device)
        assert told == ["cpu", "cuda:0"]
        names = {
            embeddings.cache_name(embeddings.EMBEDDED, device)
            for device in ("cpu", "cuda", "cuda:0")
        }
        assert len(names) == 2
        with pytest.raises(
            InputError, match="no GPU 7 for device cuda:7: torch sees 1 -> use cuda:0"
        ):
            embeddings.embed(texts, embeddings.EMBEDDED, tmp_path, "cuda:7")
